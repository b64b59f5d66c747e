"""Reads a category with a plain Kafka consumer, without Penstock."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, TopicPartition


def messages(kafka: str, category: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return the partition, key and value of all committed messages, in order for each partition."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "plain", "enable.partition.eof": True})
    numbers = consumer.list_topics(category, 30).topics[category].partitions
    consumer.assign([TopicPartition(category, number, 0) for number in numbers])
    found, ended = [], 0
    while ended < len(numbers):
        message = consumer.poll(30.0)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append((int(message.partition() or 0), message.key(), message.value()))
    consumer.close()
    return found


def values(kafka: str, category: str) -> list[dict[str, Any]]:
    """Return the records of a JSON category."""
    return [json.loads(value or b"") for _, _, value in messages(kafka, category)]
