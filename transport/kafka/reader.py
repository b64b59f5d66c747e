"""Reading topics: as a member of a consumer group, or given partitions from given offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ..bus import Ownership
from ..errors import BusUnreachable, CommitUnconfirmed, MembershipLost, OffsetOutOfRange
from ..messages import Bucket, End, Polled, Position, RawBatch
from .catalog import SETTLE_LIMIT_S, SETTLE_STEP_S
from .error_translation import is_transient, translate, translated
from .positions import is_membership, to_commit, to_read
from .settings import KafkaSettings

SEEK_LIMIT_S = 5.0
"""How long the client may refuse to move in a bucket; if it has lost the bucket, the next poll says so."""
POLL_LIMIT = 10_000
"""How many messages a poll gives at most."""


class Group(NamedTuple):
    """A consumer group, and the categories that it reads."""

    name: str
    categories: tuple[str, ...]


class KafkaScanner:
    """Turns what the client hands out into batches by bucket."""

    poll_limit = POLL_LIMIT

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
            messages = [first, *self._consumer.consume(self.poll_limit - 1, 0)]
        if not any(map(Message.error, messages)):
            return Polled(_by_bucket(messages), [])
        ended = [position for message in messages if (position := self._ended(message))]
        return Polled(_by_bucket(message for message in messages if not message.error()), ended)

    def _ended(self, message: Message) -> End | None:
        """Return a bucket's end, for the client's note of it; raise what cannot pass by itself."""
        error = message.error()
        if error is not None and error.fatal():
            raise MembershipLost(f"{self._what}: {error.str()}. The member has to join anew.")
        if error is None or is_transient(error):
            return None
        if error.code() == KafkaError._PARTITION_EOF:
            return End(Bucket(str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0))
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise OffsetOutOfRange(
                f"{message.topic()}/{message.partition()}: the position to read from is not on the bus (any more): "
                f"{error.str()}. Events between are gone from the bus; nothing was skipped."
            )
        raise translate(error, self._what)

    def close(self) -> None:
        """Let go of the buckets."""
        if self._open:
            self._open = False
            with translated(self._what):
                self._consumer.close()


class GroupReader(KafkaScanner):
    """A member of a consumer group, which tells its owner of the buckets that come and go.

    The client is given a bucket only when `start` says where to begin. Given earlier and moved later, it may go back to the first
    event: an answer to its question where the bucket begins, which the move has made stale, makes it ask and go there again.
    """

    def __init__(
        self, settings: KafkaSettings, group: str, categories: Sequence[str], ownership: Ownership, identity: str | None
    ) -> None:
        self.group = Group(group, tuple(categories))
        self._cooperative = len(categories) == 1
        self._ownership = ownership
        self._reading: dict[Bucket, int] = {}
        self._paused: set[Bucket] = set()
        consumer = Consumer(settings.for_reader(group, identity, co_partitioned=not self._cooperative))
        super().__init__(consumer, f"Reading {', '.join(categories)} as group {group}")
        with translated(self._what):
            consumer.subscribe(list(categories), on_assign=self._gained, on_revoke=self._given_up, on_lost=self._lost)

    def poll(self, timeout_s: float) -> Polled:
        """Return what is there, waiting up to `timeout_s` where there is nothing."""
        polled = super().poll(timeout_s)
        for batch in polled.batches:
            self._note(batch.bucket, batch.next_offset)
        for bucket, end in polled.ended:
            self._note(bucket, end)
        return polled

    def _note(self, bucket: Bucket, offset: int) -> None:
        if bucket in self._reading:
            self._reading[bucket] = max(offset, self._reading[bucket])

    def start(self, positions: Sequence[Position]) -> None:
        """Read owned buckets from these offsets on."""
        moved = [position for position in positions if position.bucket in self._reading]
        self._reading |= {bucket: offset for bucket, offset, _ in positions if offset is not None}
        with translated(self._what):
            if self._cooperative:
                self._consumer.incremental_assign(to_read(set(positions).difference(moved)))
                for partition in to_read(moved):
                    self._seek(partition)
            else:
                # This protocol has no way to add buckets: all are given anew, each from where it is.
                self._consumer.assign(to_read(Position(*reading) for reading in self._reading.items()))
        self.resume([position.bucket for position in positions if position.bucket in self._paused])
        self.pause(list(self._paused))

    def pause(self, buckets: Sequence[Bucket]) -> None:
        """Give no more of owned buckets for now."""
        self._paused.update(buckets)
        if buckets:
            with translated(self._what):
                self._consumer.pause(_partitions(buckets))

    def resume(self, buckets: Sequence[Bucket]) -> None:
        """Go on with buckets that were paused."""
        self._paused.difference_update(buckets)
        if buckets:
            with translated(self._what):
                self._consumer.resume(_partitions(buckets))

    def _seek(self, partition: TopicPartition) -> None:
        """Move the client's own position; it refuses while it is still taking the bucket over."""
        deadline = time.monotonic() + SEEK_LIMIT_S
        while True:
            try:
                self._consumer.seek(partition)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE or time.monotonic() > deadline:
                    raise
            else:
                return
            time.sleep(SETTLE_STEP_S)

    def commit(self, positions: Sequence[Position]) -> None:
        """Save the group's positions."""
        offsets = to_commit(positions)
        if not offsets:
            return
        if not is_membership(self.membership()):
            raise CommitUnconfirmed(
                f"{self._what}: positions were not saved, since this is no member of the group just now."
            )
        try:
            with translated(f"{self._what}: positions were not saved"):
                self._consumer.commit(offsets=offsets, asynchronous=False)
        except BusUnreachable as error:
            raise CommitUnconfirmed(str(error)) from error

    def _gained(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with translated(self._what):
            (consumer.incremental_assign if self._cooperative else consumer.assign)([])
        self._ownership.assigned(_buckets(partitions))

    def _given_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._ownership.revoked(_buckets(partitions))
        self._let_go(consumer, partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._ownership.lost(_buckets(partitions))
        self._let_go(consumer, partitions)

    def _let_go(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = [bucket for bucket in _buckets(partitions) if self._reading.pop(bucket, None) is not None]
        self.resume([bucket for bucket in gone if bucket in self._paused])
        with translated(self._what):
            if self._cooperative:
                consumer.incremental_unassign(_partitions(gone))
            else:
                consumer.unassign()

    def membership(self) -> Any:
        """Return what a transaction needs to know of this member, as of now."""
        return self._consumer.consumer_group_metadata()

    def leave(self) -> None:
        """Give up all buckets and leave the group at once, also with an identity, which `close` alone would keep."""
        try:
            with translated(self._what):
                self._consumer.unsubscribe()
        except MembershipLost:
            return  # it had left already
        with translated(self._what):
            deadline = time.monotonic() + SETTLE_LIMIT_S
            while self._consumer.assignment() and time.monotonic() < deadline:
                self._consumer.poll(SETTLE_STEP_S)


def open_scanner(settings: KafkaSettings, positions: Sequence[Position]) -> KafkaScanner:
    """Return a reader of given buckets from given offsets; it belongs to no group."""
    consumer = Consumer(settings.for_scanner())
    what = f"Reading {', '.join(sorted({position.bucket.category for position in positions}))}"
    with translated(what):
        consumer.assign(to_read(positions))
    return KafkaScanner(consumer, what)


def _partitions(buckets: Iterable[Bucket]) -> list[TopicPartition]:
    return [TopicPartition(*bucket) for bucket in buckets]


def _buckets(partitions: Iterable[TopicPartition]) -> list[Bucket]:
    return [Bucket(partition.topic, partition.partition) for partition in partitions]


def _by_bucket(messages: Iterable[Any]) -> list[RawBatch]:
    """Group messages by bucket. They come in long runs of one bucket, so the runs are found first."""
    batches: dict[Bucket, list[Any]] = {}
    for _, grouped in groupby(messages, Message.partition):
        run = list(grouped)
        for topic, of_topic in groupby(run, Message.topic):
            batches.setdefault(Bucket(str(topic), run[0].partition()), []).extend(of_topic)
    return [RawBatch(bucket, batch) for bucket, batch in batches.items()]
