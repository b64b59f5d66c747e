"""Reading topics: as a member of a consumer group, or given partitions from given offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from ..bus import Bucket, End, Ownership, Polled, Position, RawBatch
from ..errors import OffsetOutOfRange
from .catalog import KafkaCatalog
from .settings import KafkaSettings
from .translation import translate, translated

POLL_LIMIT = 10_000
"""How many messages a poll gives at most."""

# Conditions that the client itself recovers from while we go on polling.
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)


class KafkaReader:
    """Turns what the client hands out into batches by bucket."""

    def __init__(self, consumer: Consumer, what: str) -> None:
        self._consumer = consumer
        self._what = what
        self._open = True

    def poll(self, timeout_s: float) -> Polled:
        """Return what is there, waiting up to `timeout_s` where there is nothing."""
        with translated(self._what):
            first = self._consumer.poll(timeout_s)
            if first is None:
                return Polled([], [])
            # What else has arrived comes without waiting, so that a trickle is not held back to fill a batch.
            messages = [first, *self._consumer.consume(POLL_LIMIT - 1, 0)]
        if not any(map(Message.error, messages)):
            return Polled(_by_bucket(messages), [])
        ended = [position for message in messages if (position := self._ended(message))]
        return Polled(_by_bucket(message for message in messages if not message.error()), ended)

    def _ended(self, message: Message) -> End | None:
        """Return a bucket's end, for the client's note of it; raise what cannot pass by itself."""
        error = message.error()
        if error is None or error.code() in _PASSING or error.retriable():
            return None
        if error.code() == KafkaError._PARTITION_EOF:
            return End(Bucket(str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0))
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise OffsetOutOfRange(
                f"{message.topic()}/{message.partition()}: the position to read from is not on the bus (any more): "
                f"{error.str()}. Events between are gone from the bus; nothing was skipped."
            )
        raise translate(error, self._what)

    def commit(self, positions: Sequence[Position]) -> None:
        """Save the group's positions."""
        offsets = [TopicPartition(*bucket, offset) for bucket, offset in positions if offset is not None]
        if offsets:
            with translated(f"{self._what}: positions were not saved"):
                self._consumer.commit(offsets=offsets, asynchronous=False)

    def close(self) -> None:
        """Give up all buckets and leave the group."""
        if self._open:
            self._open = False
            with translated(self._what):
                self._consumer.close()


class GroupReader(KafkaReader):
    """A member of a consumer group, which tells its owner of the buckets that come and go."""

    def __init__(
        self,
        catalog: KafkaCatalog,
        settings: KafkaSettings,
        group: str,
        categories: Sequence[str],
        ownership: Ownership,
    ) -> None:
        self._catalog = catalog
        self._group = group
        self._cooperative = len(categories) == 1
        self._ownership = ownership
        consumer = Consumer(settings.for_reader(group, co_partitioned=not self._cooperative))
        super().__init__(consumer, f"Reading {', '.join(categories)} as group {group}")
        with translated(self._what):
            consumer.subscribe(list(categories), on_assign=self._gained, on_revoke=self._given_up, on_lost=self._lost)

    def _gained(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        # Asked from outside the group: while it forms anew, the member itself may wait for an answer that does not come.
        committed = {name: self._catalog.committed(self._group, name) for name in {p.topic for p in partitions}}
        known = [Position(Bucket(p.topic, p.partition), committed[p.topic].get(p.partition)) for p in partitions]
        assignment = [
            TopicPartition(*bucket, OFFSET_BEGINNING if offset is None else offset)
            for bucket, offset in self._ownership.gained(known)
        ]
        with translated(self._what):
            (consumer.incremental_assign if self._cooperative else consumer.assign)(assignment)

    def _given_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:  # noqa: ARG002 - the client's signature
        self._ownership.given_up([Bucket(p.topic, p.partition) for p in partitions])

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:  # noqa: ARG002 - the client's signature
        self._ownership.lost([Bucket(p.topic, p.partition) for p in partitions])


def open_scanner(settings: KafkaSettings, positions: Sequence[Position]) -> KafkaReader:
    """Return a reader of given buckets from given offsets; it belongs to no group, and `commit` is not for it."""
    consumer = Consumer(settings.for_scanner())
    what = f"Reading {', '.join(sorted({bucket.category for bucket, _ in positions}))}"
    with translated(what):
        consumer.assign(
            [TopicPartition(*bucket, OFFSET_BEGINNING if offset is None else offset) for bucket, offset in positions]
        )
    return KafkaReader(consumer, what)


def _by_bucket(messages: Iterable[Any]) -> list[RawBatch]:
    """Group messages by bucket. They come in long runs of one bucket, so the runs are found first."""
    batches: dict[Bucket, list[Any]] = {}
    for _, grouped in groupby(messages, Message.partition):
        run = list(grouped)
        for topic, of_topic in groupby(run, Message.topic):
            batches.setdefault(Bucket(str(topic), run[0].partition()), []).extend(of_topic)
    return [RawBatch(bucket, batch) for bucket, batch in batches.items()]
