"""A simulated backup store. `WorkerBackups` of the library makes the decisions; the files are simulated.

SimulatedBackupStore  the backups of each shard with their owners' epochs; the newest epoch wins
ProcessBackups        a process's access to the store, and the functions of its disk that `WorkerBackups` uses
SimulatedCopies       the copies of a standby on the disk of a process
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.processors.shard import StatePosition
from penstock.state import FileStoreUnreachable, ShardIdentity
from penstock.state.backups import BackupId, Retention

from .disks import Content, Database, Disk, SimulatedState
from .scheduler import Process, Scheduler

EVERY = timedelta(seconds=5)


class Backup(NamedTuple):
    """A stored backup."""

    epoch: int
    content: Content


@dataclass
class SimulatedBackupStore:
    """The backups of all shards."""

    unreachable_until_ms: float = 0.0
    backups: dict[ShardIdentity, list[Backup]] = field(default_factory=dict)
    epochs: dict[ShardIdentity, int] = field(default_factory=dict)
    pinned: dict[tuple[str, str, int], Content] = field(default_factory=dict)
    """The copies for snapshots, by snapshot, processor and bucket."""

    def newest(self, identity: ShardIdentity) -> Backup | None:
        """Return the newest backup of a shard: the latest backup of its latest owner."""
        return max(self.backups.get(identity, []), key=lambda backup: backup.epoch, default=None)

    def store(self, identity: ShardIdentity, backup: Backup) -> None:
        """Store a backup before the owner's earlier backups."""
        self.backups.setdefault(identity, []).insert(0, backup)


@dataclass
class ProcessBackups:
    """The backups of one process.

    Args:
        store: the backup store.
        disk: the machine's disk.
        scheduler: runs other tasks during a request.
        process: the process.
    """

    store: SimulatedBackupStore
    disk: Disk
    scheduler: Scheduler
    process: Process
    location: str = "the backup store"

    def request(self, name: str) -> SimulatedBackupStore:
        """Return the store, unless it is unreachable."""
        self.scheduler.point(name)
        if self.scheduler.now_ms < self.store.unreachable_until_ms:
            self.scheduler.sleep(1.0)
            raise FileStoreUnreachable("The backup store does not answer.")
        return self.store


class _Restored(NamedTuple):
    """The description of a restored backup."""

    id: int
    position: StatePosition
    size_bytes: int = 0


def database_of(shard: tuple[ProcessBackups, ShardIdentity]) -> Database | None:
    """Return a shard's database on the disk of a process."""
    backups, identity = shard
    return backups.disk.databases.get(identity)


def shard_of(backups: ProcessBackups, identity: ShardIdentity) -> tuple[ProcessBackups, ShardIdentity]:
    """Return the key of a shard on the disk of a process."""
    return backups, identity


@contextmanager
def opened_read_only(database: Database) -> Iterator[Content]:
    """Open a state read-only, even if a worker has it open."""
    yield database.content


def newest_position(backups: ProcessBackups, identity: ShardIdentity) -> StatePosition | None:
    """Return the position of the newest backup."""
    newest = backups.request("look for backups").newest(identity)
    return None if newest is None else newest.content.position()


def backed_up_buckets(backups: ProcessBackups, processor: str) -> list[int]:
    """Return the numbers of a processor's buckets with backups."""
    store = backups.request("list backups")
    return sorted(identity.bucket for identity in store.backups if identity.processor == processor)


def restore(
    backups: ProcessBackups,
    identity: ShardIdentity,
    shard: Any,
    confirm: Any,
    get: Any,
) -> _Restored | None:
    """Replace the state on the disk by the newest backup, or by the copy of a standby."""
    newest = backups.request("restore").newest(identity)
    if newest is None:
        return None
    confirm()
    backups.disk.expect_room()
    backups.disk.databases[identity] = Database(newest.content.copy())
    return _Restored(newest.epoch, newest.content.position())


@dataclass
class CopiesOfProcess(ProcessBackups):
    """The copies on the disk of a process, as a backup store. They answer always."""

    def request(self, name: str) -> SimulatedBackupStore:
        """Return the copies as a store."""
        self.scheduler.point(name)
        return SimulatedBackupStore(backups={shard: [Backup(0, copy)] for shard, copy in self.disk.copies.items()})


class SimulatedCopies:
    """The copies of a standby, for `StandbyCopies`.

    Args:
        backups: the backups of a process.
        *_: the same, and the processor.
    """

    def __init__(self, backups: ProcessBackups, *_: object) -> None:
        self._backups = backups
        self.files = CopiesOfProcess(backups.store, backups.disk, backups.scheduler, backups.process)
        self.link = None

    def update(self, identity: ShardIdentity, local: Callable[[], StatePosition]) -> bool:
        """Copy the newest backup unless the disk has it, or a newer state."""
        newest = self._backups.request("look for backups").newest(identity)
        if newest is None:
            return False
        copies = self._backups.disk.copies
        if copies.get(identity) is newest.content:
            return True
        if not local().is_behind(newest.content.position()):
            copies.pop(identity, None)
            return False
        self._backups.request("copy a backup")
        self._backups.disk.expect_room()
        copies[identity] = newest.content
        return True

    def drop(self, identity: ShardIdentity) -> None:
        """Delete a copy."""
        self._backups.disk.copies.pop(identity, None)


class SimulatedBackupScheduler:
    """Backs up the open states of a process at an interval.

    Args:
        backups: the backups of the process.
        every: the interval.
        retention: which backups are kept; the simulated store keeps the newest.
    """

    def __init__(self, backups: ProcessBackups, every: timedelta, retention: Retention) -> None:
        self._backups = backups
        self._every_s = every.total_seconds()
        self._open: dict[ShardIdentity, tuple[SimulatedState, int]] = {}
        backups.scheduler.spawn(backups.process, f"{backups.process.name} backups", self._work)
        self._is_closed = False

    def adopt(self, identity: ShardIdentity, state: SimulatedState) -> None:
        """Back up a state from now on, as its new owner."""
        epochs = self._backups.store.epochs
        epochs[identity] = epochs.get(identity, 0) + 1
        self._open[identity] = state, epochs[identity]

    def copy(self, identity: ShardIdentity, pin: str) -> Future[BackupId]:
        """Store a state as it is now, for a snapshot."""
        state, epoch = self._open[identity]
        assert state.database is not None
        self._backups.store.pinned[pin, identity.processor, identity.bucket] = state.database.content.copy()
        stored: Future[BackupId] = Future()
        stored.set_result(BackupId(epoch, 1))
        return stored

    def give_up(self, identity: ShardIdentity, pin: str) -> None:
        """Remove what was stored for a snapshot that has failed."""
        self._backups.store.pinned.pop((pin, identity.processor, identity.bucket), None)

    def release(self, identity: ShardIdentity) -> None:
        """Stop backing up a state."""
        self._open.pop(identity, None)

    def close(self) -> None:
        """Stop."""
        self._is_closed = True

    def _work(self) -> None:
        while not self._is_closed:
            self._backups.scheduler.wait(lambda: self._is_closed, self._every_s)
            for identity, (state, epoch) in list(self._open.items()):
                if state.database is None or not state.position():
                    continue
                backup = Backup(epoch, state.database.content.copy())
                try:
                    self._backups.request("back up").store(identity, backup)
                except FileStoreUnreachable:
                    break
