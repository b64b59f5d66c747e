"""Reads a category with a plain Kafka consumer, without Penstock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

LIMIT_S = 120.0


def read(kafka: str, category: str, client: Mapping[str, str] | None = None) -> list[Message]:
    """Return the committed messages of a category, in order for each partition.

    Waits for open transactions at the ends; the broker aborts those of dead workers after their timeouts. It also writes the markers of a
    transaction after it has confirmed its commit.

    Args:
        kafka: the address of the broker.
        category: the name of the category.
        client: settings of the client that the broker requires.
    """
    ends = _ends(kafka, category, client or {})
    found: list[Message] = []
    settings = {"enable.partition.eof": True, "fetch.wait.max.ms": 20, "isolation.level": "read_committed"}
    with closing(_consumer(kafka, {**settings, **(client or {})})) as consumer:
        consumer.assign([TopicPartition(category, number, 0) for number in ends])
        while ends:
            message = consumer.poll(LIMIT_S)
            assert message is not None, f"{category} cannot be read to its end: a transaction is still open"
            if not message.error():
                found.append(message)
            elif int(message.offset() or 0) >= ends.get(int(message.partition() or 0), 0):
                # A partition's end is reported again after each transaction that finishes there.
                ends.pop(int(message.partition() or 0), None)
    return found


def _ends(kafka: str, category: str, client: Mapping[str, str]) -> dict[int, int]:
    """Return the end offset of each partition, after open transactions as well."""
    with closing(_consumer(kafka, {"isolation.level": "read_uncommitted", **client})) as consumer:
        numbers = consumer.list_topics(category, LIMIT_S).topics[category].partitions
        return {n: consumer.get_watermark_offsets(TopicPartition(category, n), timeout=LIMIT_S)[1] for n in numbers}


def _consumer(kafka: str, settings: dict[str, Any]) -> Consumer:
    return Consumer({"bootstrap.servers": kafka, "group.id": "plain", "enable.auto.commit": False, **settings})


def messages(kafka: str, category: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return the partition, key and value of all committed messages, in order for each partition."""
    return [(int(message.partition() or 0), message.key(), message.value()) for message in read(kafka, category)]


def values(kafka: str, category: str) -> list[dict[str, Any]]:
    """Return the records of a JSON category."""
    return [json.loads(value or b"") for _, _, value in messages(kafka, category)]
