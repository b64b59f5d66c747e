"""Clients that write: as it comes, or in transactions."""

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
"""How long the client tries to deliver a message."""
OPENING_LIMIT_S = 300.0
"""How long a writer tries to open while no broker answers."""
COMMIT_LIMIT_S = 30.0
"""How long a step of a transaction is tried again."""


class _Sent(NamedTuple):
    """A message in a client's buffer, and the time that it was given there."""

    category: str
    message: Outgoing
    at_ms: int


class MemoryWriter:
    """Writes at once; or, where the network says so, when it is flushed."""

    def __init__(self, cluster: Cluster, network: Network) -> None:
        self._cluster = cluster
        self._network = network
        self._waiting: list[_Sent] = []

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Hand messages over."""
        self._waiting.extend(_Sent(category, message, self._cluster.now_ms()) for message in messages)
        if not self._network.buffers():
            self._deliver()

    def _deliver(self) -> None:
        waiting, self._waiting = self._waiting, []
        for category, message, sent_ms in waiting:
            self._cluster.append(category, message, sent_ms=sent_ms)

    def flush(self) -> None:
        """Return when all that was sent is stored."""
        try:
            self._network.request("flush", self._deliver, DELIVERY_LIMIT_S)
        except BusUnreachable as error:
            raise DeliveryFailed(f"Messages did not arrive: {error}") from error

    def close(self) -> None:
        """Drop what was not stored."""
        self._waiting.clear()


class MemoryTransactionalWriter:
    """Writes in transactions; each begins with the first message after a commit."""

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
        self._waiting: list[_Sent] = []
        self._failure: Fenced | None = None
        self._epoch = network.request(
            "open transactions", lambda: cluster.transactions.begin_epoch(identity), OPENING_LIMIT_S
        )
        self._abort_leftovers(writes)

    def _abort_leftovers(self, writes: Collection[str]) -> None:
        """Abort what the identity has open although the coordinator takes it for ended, as the client for Kafka does."""
        if self._network.request("look for leftovers", lambda: self._has_open(writes), OPENING_LIMIT_S):
            self._network.request("abort leftovers", lambda: self._abort_open(writes), OPENING_LIMIT_S)

    def _has_open(self, writes: Collection[str]) -> bool:
        self._cluster.tick()
        logs = self._logs(writes)
        return any(log.stable_end < log.end for log in logs) or any(group.undecided for group in self._groups)

    def _abort_open(self, writes: Collection[str]) -> None:
        self._current()  # refused where another writer of the identity was opened since
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
        """Hand messages over."""
        self._waiting.extend(_Sent(category, message, self._cluster.now_ms()) for message in messages)
        if not self._network.buffers():
            self._deliver()

    def _deliver(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            for category, message, sent_ms in waiting:
                transaction = self._current()
                transaction.touch(self._cluster.append(category, message, self._identity, sent_ms=sent_ms))
        except Fenced as error:
            self._failure = error

    def _current(self) -> Transaction:
        now_ms = self._cluster.tick()
        return self._cluster.transactions.current(self._identity, self._epoch, now_ms, self._limit_ms)

    def flush(self) -> None:
        """Return when all that was sent is stored, in a transaction that is open."""
        try:
            self._network.request("flush in transaction", self._deliver, DELIVERY_LIMIT_S)
        except BusUnreachable as error:
            raise Aborted(f"Messages did not arrive: {error} The transaction is taken back.") from error
        if self._failure is not None:
            raise Aborted(f"Messages did not arrive: {self._failure}") from self._failure

    def enlist(self) -> None:
        """Note the membership that the next commit depends on."""
        self._member = None if self._reader is None else self._reader.membership

    def commit(self, positions: Sequence[Position]) -> None:
        """Make what was sent and the positions count."""
        self.flush()
        try:
            if positions and self._member is not None:
                self._network.request("add positions", lambda: self._add(positions), COMMIT_LIMIT_S)
            self._network.request("commit transaction", lambda: self._end(MessageState.COMMITTED), COMMIT_LIMIT_S)
        except BusUnreachable as error:
            raise Fenced(f"{error} Whether the transaction counts, the group's positions tell.") from error

    def _add(self, positions: Sequence[Position]) -> None:
        transaction = self._current()
        if self._reader is None or self._member is None:
            raise TypeError("a transaction without a member was asked to commit positions")
        try:
            self._reader.group.expect_member(*self._member)
        except (Fenced, MembershipLost, CommitUnconfirmed) as error:
            raise Aborted(f"{error} Nothing was written.") from error
        transaction.add_positions(self._reader.group, positions)

    def _end(self, fate: MessageState) -> None:
        self._cluster.tick()
        self._cluster.transactions.end(self._identity, self._epoch, fate)

    def abort(self) -> None:
        """Drop what was sent."""
        self._waiting.clear()
        self._failure = None
        self._network.request("abort transaction", lambda: self._end(MessageState.ABORTED))

    def close(self) -> None:
        """Drop what was not committed."""
        try:
            self.abort()
        except BusError:
            return  # what was open counts for nothing: the bus ends it, at the latest when its time is up
