"""One message of each bucket, without fetching what follows it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ..bus import Bucket, Position
from .places import to_read
from .settings import KafkaSettings
from .translation import passes

POLL_S = 0.2


class Peeking:
    """Looks at the next message of buckets, in no group. One thread; close it."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._consumer = Consumer(settings.for_peeking())

    def arrivals_ms(self, positions: Sequence[Position], limit_s: float) -> dict[Bucket, int]:
        """Return when the first message from each position on arrived; buckets that have none, or do not answer in time, are left out."""
        self._consumer.assign(to_read(positions))
        asked, found = {position.bucket for position in positions}, dict[Bucket, int]()
        deadline = time.monotonic() + limit_s
        while asked and time.monotonic() < deadline:
            for message in self._consumer.consume(len(positions), POLL_S):
                bucket, error = Bucket(str(message.topic()), int(message.partition() or 0)), message.error()
                if error is None and bucket in asked:
                    found[bucket] = message.timestamp()[1]
                    self._consumer.pause([TopicPartition(*bucket)])
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    asked.discard(bucket)
                elif not passes(error):
                    raise KafkaException(error)
        return found

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
