"""Readers of topics: members of a consumer group, and readers of fixed partitions from fixed offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from threading import Lock
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ..bounded_calls import NoAnswer
from ..bus import OwnershipListener
from ..errors import BusUnreachable, CommitUnconfirmed, IdentityTaken, MembershipLost, OffsetOutOfRange
from ..messages import Bucket, End, Polled, Position, RawBatch
from .catalog import SETTLE_LIMIT_S, SETTLE_STEP_S
from .column_queue import ColumnQueue, open_column_queue
from .error_translation import is_transient, membership_lost, translate, translated
from .kept_client import KeptClient
from .positions import is_membership, to_commit, to_read
from .settings import KafkaSettings

_LOG = logging.getLogger("penstock.kafka")
SEEK_LIMIT_S = 5.0
"""The time limit for the client to accept a new offset. If it has lost the bucket, the next poll reports that."""
ASSIGNING_S = 1.0
"""The time in which the client should have begun to read an assigned bucket."""
LEADER_LIMIT_S = 5.0
"""The time limit for the leaders of the buckets of a category. Without them, the client asks later."""
FORWARD_STEP_S = 0.002
"""The time between two attempts to forward an assigned bucket; a fetch takes longer."""
POLL_LIMIT = 10_000
"""The greatest number of messages of a poll."""


class GroupCategories(NamedTuple):
    """A consumer group and its categories."""

    name: str
    categories: tuple[str, ...]


class KafkaScanner:
    """Groups the client's messages into batches by bucket.

    Messages come as columns where these are available. The client takes a bucket back at some moment after it is assigned; messages that it
    has fetched then come as objects.

    Args:
        settings: the cluster.
        configuration: the client's.
        categories: the categories to read.
        request: the purpose, for errors.
    """

    poll_limit = POLL_LIMIT
    _calls_back = False

    def __init__(
        self, settings: KafkaSettings, configuration: dict[str, Any], categories: Sequence[str], request: str
    ) -> None:
        self._request = request
        self._closing = Lock()
        topic = categories[0] if categories else None
        self._kept = KeptClient(settings, Consumer, configuration, request, topic=topic, calls_back=self._calls_back)
        self._connect()
        self._paused: set[Bucket] = set()
        self._new: Collection[Bucket] = ()
        self._new_until_s = 0.0

    def _connect(self) -> None:
        self._columns = open_column_queue(self._consumer, self._kept.handle, POLL_LIMIT)
        self._open = True

    @property
    def _consumer(self) -> Consumer:
        return self._kept.client

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Translate errors of the block, and close the client after them: the caller receives no reader to close."""
        try:
            with translated(self._request):
                yield
        except BaseException:
            self.close()
            raise

    def _drop_gathered(self, buckets: Collection[Bucket]) -> None:
        """Forget messages that no poll has returned, because the buckets are read from another offset, or no more."""
        if self._columns is not None:
            self._columns.drop(buckets)

    def _forward_from_now_on(self, buckets: Collection[Bucket]) -> None:
        """Forward newly assigned buckets with each poll for a moment, so that the client takes none of their messages."""
        self._new, self._new_until_s = buckets, time.monotonic() + ASSIGNING_S

    def poll(self, timeout_s: float) -> Polled:
        """Return the next messages; wait up to `timeout_s` if there are none."""
        polled = self._poll_once(timeout_s)
        if polled.batches or polled.ended:
            self._kept.note_answer()
        elif self._kept.is_lost():
            self._replace()
        return polled

    def _replace(self) -> None:
        """Replace the client, which does not recover from an outage."""
        raise NotImplementedError

    def _poll_once(self, timeout_s: float) -> Polled:
        deadline_s = time.monotonic() + timeout_s
        polled = self._poll_client(timeout_s) if self._columns is None else self._poll_columns(self._columns)
        while not (polled.batches or polled.ended) and (left_s := deadline_s - time.monotonic()) > 0:
            if self._columns is None:
                polled = self._poll_client(left_s)  # an error of the connection ended the last one early
                continue
            self._columns.wait(min(left_s, FORWARD_STEP_S) if self._new else left_s)
            polled = self._poll_columns(self._columns)
        return polled

    def _poll_columns(self, columns: ColumnQueue) -> Polled:
        if self._new:
            columns.forward(self._new)
            self._new = self._new if time.monotonic() < self._new_until_s else ()
        polled = self._poll_client(0)  # before the queue, because its messages are older
        if polled.batches or polled.ended:
            columns.forward(batch.bucket for batch in polled.batches)
            return polled
        with translated(self._request):
            batches, errors = columns.take(self.poll_limit, self._paused)
        ended = [self._ended(error.error, error.bucket, error.offset) for error in errors]
        return Polled(batches, list(filter(None, ended)))

    def _poll_client(self, timeout_s: float) -> Polled:
        """Return the messages of the client's own queue, and serve its callbacks."""
        with translated(self._request):
            first = self._consumer.poll(timeout_s)
            if first is None:
                return Polled([], [])
            # Add the messages that have arrived, without waiting to fill a batch.
            messages = [first, *self._consumer.consume(self.poll_limit - 1, 0)]
        if not any(map(Message.error, messages)):
            return Polled(_by_bucket(messages), [])
        errors = [(error, message) for message in messages if (error := message.error())]
        ended = [
            self._ended(error, Bucket(str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0))
            for error, message in errors
        ]
        return Polled(_by_bucket(message for message in messages if not message.error()), list(filter(None, ended)))

    def _ended(self, error: KafkaError, bucket: Bucket, offset: int) -> End | None:
        """Return the end of a bucket if the client reports it; raise errors from which the client does not recover."""
        if error.fatal():
            raise membership_lost(error, self._request)
        if is_transient(error):
            return None
        if error.code() == KafkaError._PARTITION_EOF:
            return End(bucket, offset)
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise OffsetOutOfRange(
                f"{bucket}: the bus does not have the position to read from: {error.str()}. Events at this position have expired. Nothing was "
                "skipped."
            )
        raise translate(error, self._request)

    def close(self) -> None:
        """Release the buckets."""
        if self._open:
            with self._closing:
                self._open = False
            if self._columns is not None:
                self._columns.close()
            with translated(self._request):
                self._kept.close()


class GroupReader(KafkaScanner):
    """A member of a consumer group, which calls `OwnershipListener` when its buckets change.

    `start` assigns a bucket to the client, with its offset. If the bucket were assigned earlier and moved by a seek, the client might return
    to the first event: a late answer to its own offset request overrides the seek.
    """

    _calls_back = True

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        categories: Sequence[str],
        ownership: OwnershipListener,
        identity: str | None,
    ) -> None:
        self.group = GroupCategories(group, tuple(categories))
        self.session_s = settings.session_timeout_s
        self._poll_interval_s = settings.poll_interval_s
        self._has_overslept = False
        self._cooperative = len(categories) == 1
        self._ownership = ownership
        self._reading: dict[Bucket, int] = {}
        configuration = settings.for_reader(group, identity, co_partitioned=not self._cooperative)
        super().__init__(settings, configuration, categories, f"Reading {', '.join(categories)} as group {group}")
        with self._opening():
            self._consumer.subscribe(
                list(categories), on_assign=self._on_assigned, on_revoke=self._on_revoked, on_lost=self._on_lost
            )

    def poll(self, timeout_s: float) -> Polled:
        """Return the next messages; wait up to `timeout_s` if there are none."""
        with self._naming_the_cause():
            polled = super().poll(timeout_s)
        for batch in polled.batches:
            self._advance(batch.bucket, batch.next_offset)
        for bucket, end in polled.ended:
            self._advance(bucket, end)
        return polled

    def keep_alive(self) -> None:
        """Count as polling, while the process works. Any thread."""
        with self._closing:
            if self._open and self._columns is not None:
                self._columns.keep_alive()

    def _ended(self, error: KafkaError, bucket: Bucket, offset: int) -> End | None:
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            self._has_overslept = True
            _LOG.warning("%s", self._overslept)
        return super()._ended(error, bucket, offset)

    @property
    def _overslept(self) -> str:
        return (
            f"{self._request}: the worker did not poll for more than {self._poll_interval_s:.0f} s (max.poll.interval.ms in [kafka-settings]), so it "
            "left its group: its process was paused, or a step of its loop took longer. The events since the last checkpoint are read again."
        )

    @contextmanager
    def _naming_the_cause(self) -> Iterator[None]:
        """After a long time without a poll, the client has left the group itself, and takes its own new membership for another process's."""
        try:
            yield
        except IdentityTaken as error:
            if not self._has_overslept:
                raise
            raise MembershipLost(self._overslept) from error

    def _replace(self) -> None:
        raise MembershipLost(
            f"{self._request}: the client does not recover from an outage. The worker joins the group again."
        )

    def _advance(self, bucket: Bucket, offset: int) -> None:
        if bucket in self._reading:
            self._reading[bucket] = max(offset, self._reading[bucket])

    def start(self, positions: Sequence[Position]) -> None:
        """Read owned buckets from these offsets on."""
        moved = [position for position in positions if position.bucket in self._reading]
        self._reading |= {position.bucket: position.offset for position in positions if position.offset is not None}
        self._drop_gathered([position.bucket for position in positions] if self._cooperative else self._reading)
        with translated(self._request):
            if self._cooperative:
                self._consumer.incremental_assign(to_read(set(positions).difference(moved)))
                for partition in to_read(moved):
                    self._seek(partition)
            else:
                # The eager protocol cannot add buckets: assign all of them, each with its present offset.
                self._consumer.assign(to_read(Position(*reading) for reading in self._reading.items()))
        self._forward_from_now_on(list(self._reading))
        self.resume([position.bucket for position in positions if position.bucket in self._paused])
        self.pause(list(self._paused))

    def pause(self, buckets: Sequence[Bucket]) -> None:
        """Stop returning messages of owned buckets."""
        self._paused.update(buckets)
        if buckets:
            with translated(self._request):
                self._consumer.pause(_partitions(buckets))

    def resume(self, buckets: Sequence[Bucket]) -> None:
        """Continue paused buckets."""
        self._paused.difference_update(buckets)
        if buckets:
            with translated(self._request):
                self._consumer.resume(_partitions(buckets))

    def _seek(self, partition: TopicPartition) -> None:
        """Move the client's position; the client refuses while its assignment is in progress."""
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
                f"{self._request}: positions were not saved, because this reader is not a member of the group at present. They are saved "
                "with the next checkpoint."
            )
        # Without a coordinator, the client keeps the commit for a whole session, and nothing polls meanwhile.
        try:
            with self._naming_the_cause(), translated(f"{self._request}: positions were not saved"):
                self._kept.call_unless_lost(lambda: self._consumer.commit(offsets=offsets, asynchronous=False))
        except NoAnswer:
            self._replace()
        except BusUnreachable as error:
            raise CommitUnconfirmed(str(error)) from error

    def _on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with translated(self._request):
            (consumer.incremental_assign if self._cooperative else consumer.assign)([])
        self._ownership.assigned(_buckets(partitions))

    def _on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._ownership.revoked(_buckets(partitions))
        self._unassign(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._ownership.lost(_buckets(partitions))
        self._unassign(consumer, partitions)

    def _unassign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        released = [bucket for bucket in _buckets(partitions) if self._reading.pop(bucket, None) is not None]
        self.resume([bucket for bucket in released if bucket in self._paused])
        self._drop_gathered(released)
        with translated(self._request):
            if self._cooperative:
                consumer.incremental_unassign(_partitions(released))
            else:
                consumer.unassign()

    def membership(self) -> Any:
        """Return the present group metadata of this member, for a transaction."""
        return self._consumer.consumer_group_metadata()

    def leave(self) -> None:
        """Release all buckets and leave the group at once; `close` alone keeps the buckets of a member with an identity.

        The client sends its request to leave when it has released its buckets, and then has no member id any more. If it is closed before, it
        sends none, and the buckets of a member with an identity have no owner until its session ends.
        """
        try:
            with translated(self._request):
                self._consumer.unsubscribe()
        except MembershipLost:
            return  # the membership has ended already
        with translated(self._request):
            deadline = time.monotonic() + SETTLE_LIMIT_S
            while self._consumer.memberid() and time.monotonic() < deadline:
                self._consumer.poll(SETTLE_STEP_S)


class BucketScanner(KafkaScanner):
    """Reads buckets from given offsets, outside of any group."""

    def __init__(self, settings: KafkaSettings, positions: Sequence[Position]) -> None:
        categories = sorted({position.bucket.category for position in positions})
        super().__init__(settings, settings.for_scanner(), categories, f"Reading {', '.join(categories)}")
        self._positions = {position.bucket: position.offset for position in positions}
        self._assign()

    def _assign(self) -> None:
        with self._opening():
            self._learn_leaders({bucket.category for bucket, offset in self._positions.items() if offset is None})
            self._consumer.assign(to_read(Position(*reading) for reading in self._positions.items()))
        self._forward_from_now_on(list(self._positions))

    def poll(self, timeout_s: float) -> Polled:
        """Return the next messages; wait up to `timeout_s` if there are none."""
        polled = super().poll(timeout_s)
        self._positions |= dict(polled.ended)  # first, since a bucket may have had an end before these messages
        self._positions |= {batch.bucket: batch.next_offset for batch in polled.batches}
        return polled

    def _replace(self) -> None:
        self.close()
        self._kept.replace()
        self._connect()
        self._assign()

    def _learn_leaders(self, categories: Collection[str]) -> None:
        """Ask for the leaders of buckets whose first offset the client has to ask for.

        Without it, the client (2.16) finds no leader to ask, and tries again half a second later.
        """
        for category in categories:
            with suppress(KafkaException):  # of an outage, which `poll` waits for
                self._consumer.list_topics(category, timeout=LEADER_LIMIT_S)


def _partitions(buckets: Iterable[Bucket]) -> list[TopicPartition]:
    return [TopicPartition(*bucket) for bucket in buckets]


def _buckets(partitions: Iterable[TopicPartition]) -> list[Bucket]:
    return [Bucket(partition.topic, partition.partition) for partition in partitions]


def _by_bucket(messages: Iterable[Any]) -> list[RawBatch]:
    """Group messages by bucket. Runs of one bucket are long, so group by run first."""
    batches: dict[Bucket, list[Any]] = {}
    for _, grouped in groupby(messages, Message.partition):
        run = list(grouped)
        for topic, of_topic in groupby(run, Message.topic):
            batches.setdefault(Bucket(str(topic), run[0].partition()), []).extend(of_topic)
    return [RawBatch(bucket, batch) for bucket, batch in batches.items()]
