"""A remote store: shared by all machines, fenced by epochs, and sometimes away, slow, or silent about what it has done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.processors.keyed_state.changes import Changes, MergeChanges
from penstock.state.protocols import Offsets, Outbox, ShardIdentity
from penstock.state.remote.errors import StoreFenced, StoreUnreachable

from .disks import Content, Database
from .faults import Fault, What
from .scheduler import Process, Scheduler

T = TypeVar("T")
PATIENCE_S = 15.0
"""How long a call is tried again."""


@dataclass
class Store:
    """What all processes share."""

    away_until_ms: float = 0.0
    shards: dict[ShardIdentity, Database] = field(default_factory=dict)
    epochs: dict[ShardIdentity, int] = field(default_factory=dict)


class StoreLine:
    """A process's way to the store.

    Args:
        store: where to.
        scheduler: lets others go on.
        process: whose.
        strike: gives the fault that befalls a request of the process now.
    """

    def __init__(
        self, store: Store, scheduler: Scheduler, process: Process, strike: Callable[[Process, str], Fault | None]
    ) -> None:
        self.store = store
        self._scheduler = scheduler
        self._process = process
        self._strike = strike

    def request(self, what: str, effect: Callable[[], T]) -> T:
        """Have the store do something; what a lost connection makes be tried again takes effect once."""
        self._scheduler.point(what)
        fault = self._strike(self._process, what)
        if fault is not None and fault.what is What.SLOW:
            self._scheduler.sleep(min(fault.lasts_s, PATIENCE_S * 0.9))
        if (fault is not None and fault.what is What.FAIL) or not self._scheduler.wait(self._is_up, PATIENCE_S):
            raise StoreUnreachable(f"The store did not answer ({what}).")
        answer = effect()
        if fault is not None and fault.what is What.LOST:
            self._scheduler.sleep(PATIENCE_S)
            raise StoreUnreachable(f"The store did not answer ({what}).")
        self._scheduler.point(f"after {what}")
        return answer

    def _is_up(self) -> bool:
        return self._scheduler.now_ms >= self.store.away_until_ms


class SimulatedRemoteStates:
    """The states of a processor in the store.

    Args:
        line: the way there.
        join: what a saved value and a change amount to.
    """

    def __init__(self, line: StoreLine, join: MergeChanges) -> None:
        self._line = line
        self._join = join

    def open(self, identity: ShardIdentity) -> SimulatedRemoteState:
        """Claim a shard: older owners write nothing any more."""

        def claim() -> int:
            store = self._line.store
            store.shards.setdefault(identity, Database(Content(self._join)))
            store.epochs[identity] = store.epochs.get(identity, 0) + 1
            return store.epochs[identity]

        return SimulatedRemoteState(self._line, identity, self._line.request("claim state", claim))


class SimulatedRemoteState:
    """A shard that was claimed."""

    def __init__(self, line: StoreLine, identity: ShardIdentity, epoch: int) -> None:
        self._line = line
        self._identity = identity
        self._epoch = epoch
        self.database = line.store.shards[identity]

    @property
    def _content(self) -> Content:
        return self.database.content

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key."""
        return self._line.request("read state", lambda: self._content.fetch(keys))

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return nothing: a store that others read has no order."""
        return []

    def position(self) -> Offsets:
        """Return the saved position."""
        return self._content.position()

    def outbox(self) -> Outbox | None:
        """Return the outbox that was saved and not cleared."""
        return self._content.outbox()

    def save(self, changes: Changes) -> None:
        """Save changes."""
        self._write("save state", lambda: self._content.save(changes))

    def save_position(self, position: Offsets) -> None:
        """Save the position."""
        self._write("save position", lambda: self._content.save_position(position))

    def save_together(self, changes: Changes, position: Offsets) -> None:
        """Save both."""
        self._write("save state and position", lambda: self._content.save_together(changes, position))

    def save_with_outbox(self, changes: Changes, outbox: Outbox) -> None:
        """Save all three."""
        self._write("save with outbox", lambda: self._content.save_with_outbox(changes, outbox))

    def clear_outbox(self) -> None:
        """Drop the outbox."""
        self._write("clear outbox", self._content.clear_outbox)

    def close(self) -> None:
        """Do nothing: whoever claims it next owns it."""

    def _write(self, what: str, write: Callable[[], None]) -> None:
        def fenced() -> None:
            if self._line.store.epochs[self._identity] != self._epoch:
                raise StoreFenced(f"{self._identity.processor}/{self._identity.bucket}: somebody else owns it now.")
            write()

        self._line.request(what, fenced)
