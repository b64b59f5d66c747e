"""Writers, with and without transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ..errors import Aborted, BusError, BusUnreachable, CommitUnconfirmed, DeliveryFailed, Fenced, MembershipLost
from ..messages import Outgoing, Position
from .cluster import Cluster
from .groups import Group
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


class _Buffered(NamedTuple):
    """A message in a client's buffer, and its time of sending."""

    category: str
    message: Outgoing
    at_ms: int


class MemoryWriter:
    """Writes messages at once, or with the flush if the network buffers them."""

    def __init__(self, cluster: Cluster, network: Network) -> None:
        self._cluster = cluster
        self._network = network
        self._buffer: list[_Buffered] = []

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Queue messages."""
        self._buffer.extend(_Buffered(category, message, self._cluster.now_ms()) for message in messages)
        self.send_now()

    def send_now(self) -> None:
        """Deliver queued messages, unless the network buffers them."""
        if not self._network.buffers():
            self._deliver()

    def _deliver(self) -> None:
        buffered, self._buffer = self._buffer, []
        for category, message, sent_ms in buffered:
            self._cluster.append(category, message, sent_ms=sent_ms)

    def flush(self) -> None:
        """Store all sent messages."""
        try:
            self._network.request("flush", self._deliver, DELIVERY_LIMIT_S)
        except BusUnreachable as error:
            raise DeliveryFailed(f"Messages were not delivered: {error}") from error

    def close(self) -> None:
        """Drop messages that were not flushed."""
        self._buffer.clear()


class MemoryTransactionalWriter:
    """Writes in transactions. Each begins with the first message after a commit."""

    def __init__(
        self,
        cluster: Cluster,
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
        self._limit_ms = int(timeout_s * 1000)
        self._buffer: list[_Buffered] = []
        self._failure: Fenced | None = None
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
    def _groups(self) -> list[Group]:
        return [] if self._reader is None else [self._reader.group]

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Queue messages."""
        self._buffer.extend(_Buffered(category, message, self._cluster.now_ms()) for message in messages)
        self.send_now()

    def send_now(self) -> None:
        """Deliver queued messages, unless the network buffers them."""
        if not self._network.buffers():
            self._deliver()

    def _deliver(self) -> None:
        buffered, self._buffer = self._buffer, []
        try:
            for category, message, sent_ms in buffered:
                transaction = self._current()
                transaction.touch(self._cluster.append(category, message, self._identity, sent_ms=sent_ms))
        except Fenced as error:
            self._failure = error

    def _current(self) -> Transaction:
        now_ms = self._cluster.tick()
        return self._cluster.transactions.current(self._identity, self._epoch, now_ms, self._limit_ms)

    def flush(self) -> None:
        """Store all sent messages in the open transaction."""
        try:
            self._network.request("flush in transaction", self._deliver, DELIVERY_LIMIT_S)
        except BusUnreachable as error:
            raise Aborted(f"Messages were not delivered: {error} The transaction was aborted.") from error
        if self._failure is not None:
            raise Aborted(f"Messages were not delivered: {self._failure}") from self._failure

    def enlist(self) -> None:
        """Make the next commit depend on the present membership."""
        self._member = None if self._reader is None else self._reader.membership

    def commit(self, positions: Sequence[Position]) -> None:
        """Commit the sent messages and the positions atomically."""
        self.flush()
        try:
            if positions and self._member is not None:
                self._network.request("add positions", lambda: self._add(positions), COMMIT_LIMIT_S)
            self._network.request("commit transaction", lambda: self._end(MessageState.COMMITTED), COMMIT_LIMIT_S)
        except BusUnreachable as error:
            raise Fenced(f"{error} The group's positions show whether the transaction was committed.") from error

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

    def abort(self) -> None:
        """Abort the sent messages."""
        self._buffer.clear()
        self._failure = None
        self._network.request("abort transaction", lambda: self._end(MessageState.ABORTED))

    def close(self) -> None:
        """Abort uncommitted messages."""
        try:
            self.abort()
        except BusError:
            return  # the bus aborts the open transaction, at the latest when it expires
