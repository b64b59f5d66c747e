"""Reading one message of each bucket, without fetching later messages."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from itertools import groupby, zip_longest
from operator import attrgetter

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ..messages import Bucket, Position
from .error_translation import is_transient
from .kept_client import brief_client
from .positions import to_read
from .settings import KafkaSettings

POLL_WAIT_S = 0.2


def arrivals_ms(settings: KafkaSettings, positions: Collection[Position], limit_s: float) -> dict[Position, int]:
    """Return the arrival time of the first message at or after each position. Omits positions without a message or a timely answer.

    Raises:
        KafkaException: the client does not recover from an error.
    """
    found: dict[Position, int] = {}
    with brief_client(Consumer, settings.for_peeking(), "The oldest waiting events were not read") as consumer:
        for distinct in _rounds(positions):
            found |= _arrivals_ms(consumer, {position.bucket: position for position in distinct}, limit_s)
    return found


def _arrivals_ms(consumer: Consumer, wanted: dict[Bucket, Position], limit_s: float) -> dict[Position, int]:
    consumer.assign(to_read(wanted.values()))
    consumer.resume([TopicPartition(*bucket) for bucket in wanted])  # a pause outlasts an assignment
    at_most, found = len(wanted), dict[Position, int]()
    deadline = time.monotonic() + limit_s
    while wanted and time.monotonic() < deadline:
        for message in consumer.consume(at_most, POLL_WAIT_S):
            bucket, error = Bucket(str(message.topic()), int(message.partition() or 0)), message.error()
            if error is None and bucket in wanted:
                found[wanted[bucket]] = message.timestamp()[1]
                consumer.pause([TopicPartition(*bucket)])
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                wanted.pop(bucket, None)
            elif not is_transient(error):
                raise KafkaException(error)
    return found


def _rounds(positions: Collection[Position]) -> Iterator[list[Position]]:
    """Group positions so that each group has one per bucket: the client reads a bucket at one place at a time."""
    by_bucket = groupby(sorted(positions), attrgetter("bucket"))
    for distinct in zip_longest(*(list(of_bucket) for _, of_bucket in by_bucket)):
        yield [position for position in distinct if position is not None]
