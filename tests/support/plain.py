"""Reads a category with a plain Kafka consumer, without Penstock."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, TopicPartition


def values(kafka: str, category: str) -> list[dict[str, Any]]:
    """Return the records of a JSON category."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "plain", "enable.partition.eof": True})
    consumer.assign([TopicPartition(category, number, 0) for number in range(4)])
    found, ended = [], 0
    while ended < 4:
        message = consumer.poll(10.0)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(json.loads(message.value() or b""))
    consumer.close()
    return found
