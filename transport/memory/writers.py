"""Writers, with and without transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ...processors import counted
from ..errors import (
    Aborted,
    BusError,
    BusUnreachable,
    CommitUnconfirmed,
    Fenced,
    MembershipLost,
    OutputsTimedOut,
    unconfirmed_commit,
)
from ..messages import Bucket, Outgoing, Position, size_of
from .cluster import MemoryCluster
from .groups import MemoryGroup
from .log import BucketLog, MessageState
from .network import Network
from .readers import MemoryReader
from .transactions import Transaction

DELIVERY_LIMIT_S = 300.0
"""The time limit for the delivery of a message."""
OPENING_LIMIT_S = 300.0
"""The time limit for opening a writer while no broker answers."""
COMMIT_LIMIT_S = 30.0
"""The time limit for repeating a step of a transaction."""
CONFIRMATION_LIMIT_S = 10.0
"""The time limit for the group's positions to show a commit. Here, they show it at once or never."""


class _Buffered(NamedTuple):
    """A message in a client's buffer, and its time of sending."""

    category: str
    message: Outgoing
    at_ms: int

    def arrives(self, network: Network, cluster: MemoryCluster, limit_s: float) -> bool:
        """Send it; return whether it arrives within a time limit from its sending."""
        left_s = limit_s - (cluster.now_ms() - self.at_ms) / 1000
        return left_s >= 0 and network.transfers(size_of(self.message), left_s)

    def bucket(self, cluster: MemoryCluster) -> Bucket:
        """Return its bucket."""
        return cluster.bucket_of(self.category, self.message)


def _reaching(
    buffered: Sequence[_Buffered], network: Network, cluster: MemoryCluster
) -> tuple[list[_Buffered], list[_Buffered]]:
    """Return the messages whose leaders answer, and the messages that have to wait."""
    if network.reaches_all():
        return list(buffered), []
    now, later = list[_Buffered](), list[_Buffered]()
    for waiting in buffered:
        (now if network.reaches(waiting.bucket(cluster)) else later).append(waiting)
    return now, later


class MemoryWriter:
    """Writes messages at once, or with the flush if the network buffers them. Messages that are buffered for too long are dropped."""

    def __init__(self, cluster: MemoryCluster, network: Network, limit_s: float) -> None:
        self._cluster = cluster
        self._network = network
        self._limit_s = limit_s
        self._dropped = 0
        self._buffer: list[_Buffered] = []
        self._waiting: list[_Buffered] = []

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Queue messages."""
        self._buffer.extend(_Buffered(category, message, self._cluster.now_ms()) for message in messages)
        self.send_now()

    def send_now(self) -> None:
        """Deliver queued messages, unless the network buffers them."""
        if not self._network.buffers():
            self._deliver()

    def _deliver(self) -> None:
        buffered, self._waiting = _reaching([*self._waiting, *self._buffer], self._network, self._cluster)
        self._buffer = []
        for waiting in buffered:
            if waiting.arrives(self._network, self._cluster, self._limit_s):
                self._cluster.append(waiting.category, waiting.message, sent_ms=waiting.at_ms)
            else:
                self._dropped += 1

    def flush(self) -> None:
        """Store all sent messages."""
        try:
            self._network.request("flush", self._deliver, self._limit_s)
            while self._waiting:
                leaders = [waiting.bucket(self._cluster) for waiting in self._waiting]
                self._network.wait_for_leaders("flush", leaders, self._limit_s)
                self._deliver()
        except BusUnreachable as error:
            raise OutputsTimedOut(f"Messages were not delivered: {error}") from error
        dropped, self._dropped = self._dropped, 0
        if dropped:
            raise OutputsTimedOut(_not_delivered(dropped, self._limit_s))

    def close(self) -> None:
        """Drop messages that were not flushed."""
        self._buffer.clear()
        self._waiting.clear()


class MemoryTransactionalWriter:
    """Writes in transactions. Each begins with the first message after a commit."""

    def __init__(
        self,
        cluster: MemoryCluster,
        network: Network,
        identity: str,
        member: MemoryReader | None,
        timeout_s: float,
        *,
        writes: Collection[str] = (),
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._identity = identity
        self._reader = member
        self._member = None if member is None else member.membership
        self._limit_s = timeout_s
        self._sent = self._delivered = self._dropped = 0
        self._buffer: list[_Buffered] = []
        self._waiting: list[_Buffered] = []
        self._failure: Fenced | None = None
        self._began_ms: int | None = None
        self._epoch = network.request(
            "open transactions", lambda: cluster.transactions.begin_epoch(identity), OPENING_LIMIT_S
        )
        self._abort_left_open(writes)

    def _abort_left_open(self, writes: Collection[str]) -> None:
        """Abort transactions of the identity that the coordinator has ended without a marker, as the Kafka writer does."""
        if self._network.request("find open transactions", lambda: self._has_open(writes), OPENING_LIMIT_S):
            self._network.request("abort open transactions", lambda: self._abort_open(writes), OPENING_LIMIT_S)

    def _has_open(self, writes: Collection[str]) -> bool:
        self._cluster.tick()
        logs = self._logs(writes)
        return any(log.stable_end < log.end for log in logs) or any(group.undecided for group in self._groups)

    def _abort_open(self, writes: Collection[str]) -> None:
        self._current()  # raises Fenced after another writer of the identity was opened
        for log in self._logs(writes):
            log.mark(self._identity, MessageState.ABORTED)
        for group in self._groups:
            group.decide(self._identity, MessageState.ABORTED)
        self._end(MessageState.ABORTED)

    def _logs(self, writes: Collection[str]) -> list[BucketLog]:
        return [log for name in writes if name in self._cluster.topics for log in self._cluster.topics[name].logs]

    @property
    def _groups(self) -> list[MemoryGroup]:
        return [] if self._reader is None else [self._reader.group]

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Queue messages."""
        sent = [_Buffered(category, message, self._cluster.now_ms()) for message in messages]
        self._sent += len(sent)
        self._buffer += sent
        self.send_now()

    def send_now(self) -> None:
        """Deliver queued messages, unless the network buffers them."""
        if not self._network.buffers():
            self._deliver()

    def _deliver(self) -> None:
        buffered, self._waiting = _reaching([*self._waiting, *self._buffer], self._network, self._cluster)
        self._buffer = []
        try:
            for waiting in buffered:
                self._current()  # begins with the request for the first message, not with its arrival
                if waiting.arrives(self._network, self._cluster, self._limit_s):
                    transaction = self._current()
                    log = self._cluster.append(waiting.category, waiting.message, self._identity, sent_ms=waiting.at_ms)
                    transaction.touch(log)
                    self._delivered += 1
                else:
                    self._dropped += 1
        except Fenced as error:
            self._failure = error

    def _current(self) -> Transaction:
        now_ms = self._cluster.tick()
        transaction = self._cluster.transactions.current(self._identity, self._epoch, now_ms, int(self._limit_s * 1000))
        self._began_ms = transaction.began_ms
        return transaction

    def flush(self) -> None:
        """Store all sent messages in the open transaction."""
        try:
            self._network.request("flush in transaction", self._deliver, self._limit_s)
            while self._waiting and self._failure is None:
                leaders = [waiting.bucket(self._cluster) for waiting in self._waiting]
                self._network.wait_for_leaders("flush in transaction", leaders, self._limit_s)
                self._deliver()
        except BusUnreachable as error:
            raise OutputsTimedOut(f"Messages were not delivered: {error} The transaction was aborted.") from error
        with self._blaming_time():
            if self._failure is not None:
                raise Aborted(f"Messages were not delivered: {self._failure}") from self._failure
        if self._dropped:
            raise OutputsTimedOut(_not_delivered(self._dropped, self._limit_s), self._accepted)
        self._sent = self._delivered = 0

    @property
    def _accepted(self) -> float:
        """The share of the messages since the last flush that were delivered."""
        return self._delivered / max(1, self._sent)

    @contextmanager
    def _blaming_time(self) -> Iterator[None]:
        """Name the cause of a failure after the time limit of the transaction, as the Kafka writer does."""
        try:
            yield
        except (Aborted, Fenced) as error:
            if self._began_ms is None or self._cluster.now_ms() - self._began_ms < self._limit_s * 1000:
                raise
            raise OutputsTimedOut(
                f"Transaction of {self._identity}: it was not committed within {self._limit_s:.0f} s. It was aborted, and the same events are read "
                "again, fewer at a time.",
                self._accepted,
            ) from error

    def enlist(self) -> None:
        """Make the next commit depend on the present membership."""
        self._member = None if self._reader is None else self._reader.membership

    def commit(self, positions: Sequence[Position]) -> None:
        """Commit the sent messages and the positions atomically. The commit counts when the group's positions show it."""
        self.flush()
        with self._blaming_time():
            self._commit(positions)

    def _commit(self, positions: Sequence[Position]) -> None:
        is_in_force = True
        try:
            if positions and self._member is not None:
                self._network.request("add positions", lambda: self._add(positions), COMMIT_LIMIT_S)
            self._network.request("commit transaction", lambda: self._end(MessageState.COMMITTED), COMMIT_LIMIT_S)
            if positions and self._member is not None:
                is_in_force = self._network.request("confirm positions", self._is_decided, COMMIT_LIMIT_S)
        except BusUnreachable as error:
            raise Fenced(f"{error} The group's positions show whether the transaction was committed.") from error
        if not is_in_force:
            raise Fenced(unconfirmed_commit(self._identity, CONFIRMATION_LIMIT_S))

    def _is_decided(self) -> bool:
        return all(self._identity not in group.undecided for group in self._groups)

    def _add(self, positions: Sequence[Position]) -> None:
        transaction = self._current()
        if self._reader is None or self._member is None:
            raise TypeError("a transaction without a member was asked to commit positions")
        try:
            self._reader.group.expect_member(*self._member)
        except (Fenced, MembershipLost, CommitUnconfirmed) as error:
            raise Aborted(f"{error} Nothing was written.") from error
        transaction.add_positions(self._reader.group, positions)

    def _end(self, outcome: MessageState) -> None:
        self._cluster.tick()
        self._cluster.transactions.end(self._identity, self._epoch, outcome)
        self._began_ms = None

    def abort(self) -> None:
        """Abort the sent messages."""
        self._buffer.clear()
        self._waiting.clear()
        self._failure, self._dropped = None, 0
        self._network.request("abort transaction", lambda: self._end(MessageState.ABORTED))

    def close(self) -> None:
        """Abort uncommitted messages."""
        try:
            self.abort()
        except BusError:
            return  # the bus aborts the open transaction, at the latest when it expires


def _not_delivered(messages: int, limit_s: float) -> str:
    return f"{counted(messages, 'message')} not delivered within {limit_s:.0f} s."
