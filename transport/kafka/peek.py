"""Reading one message of each bucket, without fetching later messages."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from itertools import groupby, zip_longest
from operator import attrgetter

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ..messages import Bucket, Position
from .error_translation import is_transient, open_client
from .positions import to_read
from .settings import KafkaSettings

POLL_WAIT_S = 0.2


class Peeker:
    """Reads the next message of buckets, outside of any group. One thread; close it."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._consumer = open_client(Consumer, settings.for_peeking(), "The oldest waiting events were not read")

    def arrivals_ms(self, positions: Collection[Position], limit_s: float) -> dict[Position, int]:
        """Return the arrival time of the first message at or after each position. Omits positions without a message or a timely answer."""
        found: dict[Position, int] = {}
        for distinct in _rounds(positions):
            found |= self._arrivals_ms({position.bucket: position for position in distinct}, limit_s)
        return found

    def _arrivals_ms(self, wanted: dict[Bucket, Position], limit_s: float) -> dict[Position, int]:
        self._consumer.assign(to_read(wanted.values()))
        self._consumer.resume([TopicPartition(*bucket) for bucket in wanted])  # a pause outlasts an assignment
        at_most, found = len(wanted), dict[Position, int]()
        deadline = time.monotonic() + limit_s
        while wanted and time.monotonic() < deadline:
            for message in self._consumer.consume(at_most, POLL_WAIT_S):
                bucket, error = Bucket(str(message.topic()), int(message.partition() or 0)), message.error()
                if error is None and bucket in wanted:
                    found[wanted[bucket]] = message.timestamp()[1]
                    self._consumer.pause([TopicPartition(*bucket)])
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    wanted.pop(bucket, None)
                elif not is_transient(error):
                    raise KafkaException(error)
        return found

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


def _rounds(positions: Collection[Position]) -> Iterator[list[Position]]:
    """Group positions so that each group has one per bucket: the client reads a bucket at one place at a time."""
    by_bucket = groupby(sorted(positions), attrgetter("bucket"))
    for distinct in zip_longest(*(list(of_bucket) for _, of_bucket in by_bucket)):
        yield [position for position in distinct if position is not None]
