"""A place of backups, and the keeping of backups there: the decisions are the library's (`WorkerBackups`), the files are not.

place          by shard, what was backed up, by which owner; the newest counts
BackupsOf      of one process: its way to the place, the task that backs up, and what `WorkerBackups` looks at on its disk
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.processors.shard.position import StatePosition
from penstock.state.errors import FileStoreUnreachable
from penstock.state.protocols import ShardIdentity

from .disks import Content, Database, Disk, SimulatedState
from .scheduler import Process, Scheduler

EVERY = timedelta(seconds=5)


class Backup(NamedTuple):
    """What was stored once."""

    epoch: int
    content: Content


@dataclass
class Place:
    """Where backups are."""

    away_until_ms: float = 0.0
    backups: dict[ShardIdentity, list[Backup]] = field(default_factory=dict)
    epochs: dict[ShardIdentity, int] = field(default_factory=dict)

    def newest(self, identity: ShardIdentity) -> Backup | None:
        """Return the newest backup of a shard: of the latest owner that made one."""
        return max(self.backups.get(identity, []), key=lambda backup: backup.epoch, default=None)

    def store(self, identity: ShardIdentity, backup: Backup) -> None:
        """Keep a backup, in front of the owner's earlier ones."""
        self.backups.setdefault(identity, []).insert(0, backup)


@dataclass
class BackupsOf:
    """The backups of one process.

    Args:
        place: where they are.
        disk: the machine's.
        scheduler: lets others go on.
        process: whose.
    """

    place: Place
    disk: Disk
    scheduler: Scheduler
    process: Process
    location: str = "the place of backups"

    def asked(self, what: str) -> Place:
        """Return the place, if it answers."""
        self.scheduler.point(what)
        if self.scheduler.now_ms < self.place.away_until_ms:
            self.scheduler.sleep(1.0)
            raise FileStoreUnreachable("The place of backups does not answer.")
        return self.place


class _Restored(NamedTuple):
    """What is said of a restored backup."""

    id: int
    position: StatePosition
    files: tuple[()] = ()


def database_of(shard: tuple[BackupsOf, ShardIdentity]) -> Database | None:
    """Return a shard's database on the disk of a process."""
    backups, identity = shard
    return backups.disk.databases.get(identity)


def shard_of(backups: BackupsOf, identity: ShardIdentity) -> tuple[BackupsOf, ShardIdentity]:
    """Return by what a shard is found on the disk of a process."""
    return backups, identity


@contextmanager
def seen(database: Database) -> Iterator[Content]:
    """Open a state read-only that a worker may have open."""
    yield database.content


def newest_position(backups: BackupsOf, identity: ShardIdentity) -> StatePosition | None:
    """Return the position of the newest backup."""
    newest = backups.asked("look for backups").newest(identity)
    return None if newest is None else newest.content.position()


def restore(
    backups: BackupsOf,
    identity: ShardIdentity,
    shard: Any,
    confirm: Any,
) -> _Restored | None:
    """Put the newest backup in the place of what is on the disk."""
    newest = backups.asked("restore").newest(identity)
    if newest is None:
        return None
    confirm()
    backups.disk.expect_room()
    backups.disk.databases[identity] = Database(newest.content.twin())
    return _Restored(newest.epoch, newest.content.position())


class Keeper:
    """Backs up the open states of a process now and then.

    Args:
        backups: those of the process.
        every: how often.
    """

    def __init__(self, backups: BackupsOf, every: timedelta) -> None:
        self._backups = backups
        self._every_s = every.total_seconds()
        self._open: dict[ShardIdentity, tuple[SimulatedState, int]] = {}
        backups.scheduler.spawn(backups.process, f"{backups.process.name} backups", self._work)
        self._is_closed = False

    def adopt(self, identity: ShardIdentity, state: SimulatedState) -> None:
        """Back a state up from now on, as its new owner."""
        epochs = self._backups.place.epochs
        epochs[identity] = epochs.get(identity, 0) + 1
        self._open[identity] = state, epochs[identity]

    def release(self, identity: ShardIdentity) -> None:
        """Back it up no more."""
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
                backup = Backup(epoch, state.database.content.twin())
                try:
                    self._backups.asked("back up").store(identity, backup)
                except FileStoreUnreachable:
                    break
