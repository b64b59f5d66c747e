"""A simulated remote store, shared by all machines. It can be unreachable or slow, lose answers, and perform requests late.

States, retries and fencing are the library's. A `Row` performs one request at a time, atomically, like a database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.processors.declare import Aggregator, SinkBatch, WriteMode
from penstock.processors.shard import StatePosition
from penstock.state import ShardIdentity
from penstock.state.remote import NO_VERSION, ShardVersion, StoredShard, StoreInterrupted, StoreRetry
from penstock.state.remote.folder import RemoteStates
from penstock.state.remote.protocols import Claim, Parts, Write
from penstock.state.remote.retry import RETRY_LIMIT_S
from penstock.state.sinks import MemoryRows, OwnedRows
from penstock.state.sinks.owned_rows import RowClaim

from .faults import Fault, FaultKind
from .scheduler import Process, Scheduler

T = TypeVar("T")
ATTEMPT_S = 5.0
"""The client's timeout."""


@dataclass
class Row:
    """A shard in the database."""

    version: ShardVersion = NO_VERSION
    position: StatePosition = field(default_factory=StatePosition)
    outbox: bytes = b""
    slots: dict[bytes, Parts] = field(default_factory=dict)

    def commit(self, version: ShardVersion, write: Write) -> ShardVersion:
        """Write if the version equals the writer's; return the version before the write."""
        before = self.version
        if before == version:
            self._change(write)
            self.version = before._replace(saves=before.saves + 1)
        return before

    def _change(self, write: Write) -> None:
        changes = write.changes
        assert not changes.totals, "no monoid of a run is summed by the store itself"
        assert not changes.extremes, "no monoid of a run is compared by the store itself"
        for slot in changes.removed:
            self.slots.pop(slot, None)
        for slot, value in changes.wholes:
            self.slots[slot] = Parts(value)
        for slot, partial in changes.partials:
            before = self.slots.get(slot, Parts())
            self.slots[slot] = before._replace(partials=(*before.partials, partial))
        self.position = write.position
        if write.outbox is not None:
            self.outbox = write.outbox


@dataclass
class Store:
    """The database, shared by all processes."""

    unreachable_until_ms: float = 0.0
    rows: dict[StoredShard, Row] = field(default_factory=dict)
    claims: int = 0

    def claim(self, identity: ShardIdentity) -> Claim:
        """Assign a shard to a new owner."""
        row = self.rows.setdefault(StoredShard(identity.processor, identity.bucket), Row())
        self.claims += 1
        row.version = row.version._replace(owner=f"owner {self.claims}", epoch=row.version.epoch + 1)
        return Claim(row.version, row.position)


class Session:
    """A process's connection to the store: an `OwnedStore`.

    Args:
        store: the database.
        scheduler: runs other tasks during a request.
        process: the process.
        strike: returns the fault that hits the current request of the process.
    """

    def __init__(
        self, store: Store, scheduler: Scheduler, process: Process, strike: Callable[[Process, str], Fault | None]
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._process = process
        self._strike = strike

    def claim(self, identity: ShardIdentity) -> Claim:
        """Become the owner of a shard."""
        return self.request("claim state", lambda: self._store.claim(identity))

    def commit(self, shard: StoredShard, version: ShardVersion, write: Write) -> ShardVersion:
        """Write as the owner; return the version before the write."""
        return self.request("write state", lambda: self._store.rows[shard].commit(version, write))

    def parts(self, shard: StoredShard, slots: Sequence[bytes]) -> list[Parts]:
        """Return the parts of each slot."""
        stored = self._store.rows[shard].slots
        return self.request("read state", lambda: [stored.get(slot, Parts()) for slot in slots])

    def version(self, shard: StoredShard) -> ShardVersion:
        """Return the shard's current owner and number of saves."""
        return self.request("read state", lambda: self._store.rows[shard].version)

    def outbox(self, shard: StoredShard) -> bytes:
        """Return the outbox."""
        return self.request("read state", lambda: self._store.rows[shard].outbox)

    def close(self) -> None:
        """Close the connection."""

    def request(self, name: str, effect: Callable[[], T]) -> T:
        """Perform a request, unless a fault prevents it or its answer."""
        self._scheduler.point(name)
        fault = self._strike(self._process, name)
        match fault and fault.kind:
            case FaultKind.SLOW if fault is not None:
                self._scheduler.sleep(min(fault.duration_s, ATTEMPT_S * 0.9))
            case FaultKind.DELAY if fault is not None:
                self._arrive_later(fault.duration_s, effect)
                raise self._interrupted(name)
            case FaultKind.FAIL:
                raise self._interrupted(name)
        if not self._scheduler.wait(self._is_up, ATTEMPT_S):
            raise StoreInterrupted(f"The store did not answer ({name}).")
        answer = effect()
        if fault is not None and fault.kind is FaultKind.LOST:
            raise self._interrupted(name)
        self._scheduler.point(f"after {name}")
        return answer

    def _interrupted(self, name: str) -> StoreInterrupted:
        """Wait for the client's timeout, and return the error of a missing answer."""
        self._scheduler.sleep(ATTEMPT_S)
        return StoreInterrupted(f"The store did not answer ({name}).")

    def _arrive_later(self, seconds: float, effect: Callable[[], object]) -> None:
        """Perform a request after its client's timeout; the client may be dead."""

        def arrive() -> None:
            self._scheduler.sleep(seconds)
            effect()

        self._scheduler.spawn(Process("network"), "network", arrive)

    def _is_up(self) -> bool:
        return self._scheduler.now_ms >= self._store.unreachable_until_ms


class SessionRows:
    """Rows of a sink that are reached over a connection: a `RowStore`."""

    def __init__(self, session: Session, rows: MemoryRows) -> None:
        self._session = session
        self._rows = rows

    def claim(self, shard: StoredShard) -> RowClaim:
        """Become the owner of a shard."""
        return self._session.request("claim sink", lambda: self._rows.claim(shard))

    def commit(self, shard: StoredShard, version: ShardVersion, batch: SinkBatch) -> ShardVersion:
        """Write rows and position as the owner; return the version before the write."""
        return self._session.request("write sink", lambda: self._rows.commit(shard, version, batch))

    def close(self) -> None:
        """Close the connection."""


def sink_in(session: Session, rows: MemoryRows, scheduler: Scheduler, name: str) -> OwnedRows:
    """Return the library's writer of a sink."""
    return OwnedRows(SessionRows(session, rows), name, _retrying(scheduler))


def _retrying(scheduler: Scheduler) -> StoreRetry:
    return StoreRetry(RETRY_LIMIT_S, clock=lambda: scheduler.now_ms / 1000, pause=scheduler.sleep)


def states_in(session: Session, scheduler: Scheduler, processor: type[Aggregator], writing: WriteMode) -> RemoteStates:
    """Return the library's states of a processor in the store."""
    return RemoteStates(session, processor, writing, _retrying(scheduler))
