"""Disks: synced data survives a power loss, written data survives a crash, and one process at a time opens a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from penstock.processors.keyed_state import Changes
from penstock.processors.shard import StatePosition
from penstock.state import Delta, MemoryShardState, ShardIdentity, StateError, StateUnwritable

from .scheduler import Process, Scheduler

LOCK_LIMIT_S = 3.0
"""How long a shard's former owner may take to close its state."""


class Content(MemoryShardState):
    """The content of a database."""

    def copy(self) -> Content:
        """Return a copy; values are immutable."""
        copy = Content(self._join)
        copy._values, copy._position, copy._prepared = dict(self._values), self._position, self._prepared
        return copy

    def values(self) -> dict[bytes, bytes]:
        """Return the saved values."""
        return dict(self._values)


@dataclass(eq=False)
class Database:
    """The state of a shard on a disk.

    Args:
        content: the current content.
        synced: the content after a power loss; None if it equals `content`.
        holder: the process that has it open.
    """

    content: Content = field(default_factory=Content)
    synced: Content | None = None
    holder: Process | None = None

    @property
    def is_held(self) -> bool:
        """Whether a live or paused process has the database open."""
        return self.holder is not None and not self.holder.is_dead


class Disk:
    """The states of a machine.

    Args:
        scheduler: runs other tasks during a write.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.databases: dict[ShardIdentity, Database] = {}
        self.copies: dict[ShardIdentity, Content] = {}
        """The copies of a standby."""
        self.full_until_ms = 0.0

    def replace(self) -> None:
        """Become an empty disk."""
        self.databases, self.copies = {}, {}

    def cut_power(self) -> None:
        """Lose all unsynced data."""
        for database in self.databases.values():
            if database.synced is not None:
                database.content, database.synced = database.synced, None

    def expect_room(self) -> None:
        """Raise an error while the disk is full."""
        if self._scheduler.now_ms < self.full_until_ms:
            raise StateUnwritable(
                "The state cannot be written: no space left on device. The last checkpoint is intact."
            )


class SimulatedStates:
    """The state folder of a process's machine.

    Args:
        disk: the machine's disk.
        scheduler: runs other tasks during a write.
        process: the process that opens the states.
    """

    def __init__(self, disk: Disk, scheduler: Scheduler, process: Process) -> None:
        self._disk = disk
        self._scheduler = scheduler
        self._process = process

    def open(self, identity: ShardIdentity) -> SimulatedState:
        """Open a shard's state, or a copy if its former owner does not close it in time."""
        self._scheduler.point("open state")
        disk = self._disk
        disk.expect_room()
        database = disk.databases.get(identity) or Database()
        if database.is_held:
            self._scheduler.wait(lambda: not database.is_held, LOCK_LIMIT_S)
        if database.is_held:
            database = Database(database.content.copy())
        disk.databases[identity] = database
        database.holder = self._process
        return SimulatedState(database, disk, self._scheduler.point)


class SimulatedState:
    """An open state with the durability of `RocksShardState`: each write is synced except `apply`."""

    def __init__(self, database: Database, disk: Disk, point: Callable[[str], None]) -> None:
        self.database: Database | None = database
        self._disk = disk
        self._point = point

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key."""
        return self._opened.content.fetch(keys)

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first saved keys of a range, with their values."""
        return self._opened.content.scan(start, end, limit)

    def position(self) -> StatePosition:
        """Return the saved position."""
        return self._opened.content.position()

    def prepared(self) -> Delta | None:
        """Return the prepared delta, which is neither applied nor discarded."""
        return self._opened.content.prepared()

    def save(self, changes: Changes) -> None:
        """Save changes."""
        self._write("save state", lambda content: content.save(changes))

    def save_position(self, position: StatePosition) -> None:
        """Save the position."""
        self._write("save position", lambda content: content.save_position(position))

    def save_together(self, changes: Changes, position: StatePosition) -> None:
        """Save changes and position atomically."""
        self._write("save state and position", lambda content: content.save_together(changes, position))

    def prepare(self, delta: Delta) -> None:
        """Store a delta beside the state."""
        self._write("prepare state", lambda content: content.prepare(delta))

    def discard(self) -> None:
        """Drop the delta."""
        self._write("discard state", Content.discard)

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Return the saved entries, ordered by key."""
        return self._opened.content.items(start)

    def clear(self) -> None:
        """Drop the position, then all values."""
        cleared = StatePosition(generation=self.position().generation)
        values = [key for key, _ in self.items()]

        def clear_position(content: Content) -> None:
            content._position = cleared

        self._write("clear position", clear_position)
        self._write("clear values", lambda content: content.save(dict.fromkeys(values)))

    def apply(self) -> None:
        """Make the delta part of the state; durable with the next write."""
        self._point("apply state")
        self._disk.expect_room()
        database = self._opened
        if database.synced is None:
            database.synced = database.content.copy()
        database.content.apply()

    def close(self) -> None:
        """Close the state."""
        if self.database is not None:
            self._point("close state")
            database, self.database = self.database, None
            database.holder = None
            self._disk.expect_room()

    def _write(self, name: str, write: Callable[[Content], None]) -> None:
        self._point(name)
        self._disk.expect_room()
        write(self._opened.content)
        self._opened.synced = None
        self._point(f"after {name}")

    @property
    def _opened(self) -> Database:
        if self.database is None:
            raise StateError("The state was closed already.")
        return self.database
