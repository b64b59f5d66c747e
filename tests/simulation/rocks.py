"""Real states in RocksDB, in folders of simulated machines. A process that ends leaves its folder as it was at that moment.

root 1 --crash: copied as it is--> root 2, where the machine's next process finds the logs and unfinished folders of the last one
      --another disk--> an empty root 2
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from penstock.processors.keyed_state import Changes
from penstock.processors.shard import StatePosition
from penstock.state import Delta, ShardIdentity
from penstock.state.local import RocksShardState, RocksStateFolder, rocksdb

from .disks import Disk
from .scheduler import Scheduler

COMPACTION_PROBABILITY = 0.4
"""The probability of a compaction before a backup."""
_options = rocksdb._options


def options_without_threads(*args: object, **kwargs: bool) -> Options:
    """Return the library's options without compactions in threads, whose moments no seed determines; `snapshot` makes them instead."""
    options: Options = _options(*args, **kwargs)  # type: ignore[arg-type]  # those of the library
    options.set_disable_auto_compactions(True)
    return options


class RocksDisk(Disk):
    """The state folder of a machine.

    Args:
        scheduler: runs other tasks during a write.
        folder: contains the roots.
    """

    def __init__(self, scheduler: Scheduler, folder: Path) -> None:
        super().__init__(scheduler)
        self.scheduler = scheduler
        self._folder = folder
        self._number = 1
        self._unsynced: dict[Path, int] = {}
        self.open: list[SteeredState] = []

    @property
    def root(self) -> Path:
        """The current state folder."""
        return self._folder / str(self._number)

    def crash(self) -> None:
        """Leave the folder to the machine's next process. The tasks of the last one unwind in its former root."""
        former, states, self.open = self.root, self.open, []
        self._number += 1
        if former.exists():
            shutil.copytree(former, self.root, copy_function=_copy_existing)
        sizes = [(log.relative_to(former), size) for state in states for log, size in state.unsynced.items()]
        self._unsynced = {self.root / log: size for log, size in sizes}
        for state in states:
            RocksShardState.close(state)

    def replace(self) -> None:
        """Become an empty disk."""
        self._number += 1

    def cut_power(self) -> None:
        """Lose the unsynced ends of the logs."""
        for log, size in self._unsynced.items():
            with log.open("r+b") as file:
                file.truncate(size)


def _copy_existing(source: str, target: str) -> None:
    with suppress(FileNotFoundError):  # RocksDB removes files without readers in a thread
        shutil.copyfile(source, target)


class RocksStates(RocksStateFolder):
    """The states of a process on a disk.

    Args:
        disk: the disk.
    """

    def __init__(self, disk: RocksDisk) -> None:
        super().__init__(disk.root)
        self._disk = disk

    def open(self, identity: ShardIdentity) -> RocksShardState:
        """Open a shard's state."""
        self._disk.scheduler.point("open state")
        self._disk.expect_room()
        return super().open(identity)

    def _open_unlocked(self, folder: Path) -> RocksShardState:
        return SteeredState(super()._open_unlocked(folder)._opened, folder, self._disk)


class SteeredState(RocksShardState):
    """A state with points before and after each write."""

    def __init__(self, database: Rdict, folder: Path, disk: RocksDisk) -> None:
        super().__init__(database, folder)
        self._disk = disk
        self.unsynced: Mapping[Path, int] = {}
        """The sizes of the logs of writes before unsynced ones."""
        disk.open.append(self)

    def values(self) -> dict[bytes, bytes]:
        """Return the saved values; none when closed."""
        return {} if self._database is None else dict(self.items())

    def save(self, changes: Changes) -> None:
        """Save changes."""
        with self._at("save state"):
            super().save(changes)

    def save_position(self, position: StatePosition) -> None:
        """Save the position."""
        with self._at("save position"):
            super().save_position(position)

    def save_together(self, changes: Changes, position: StatePosition) -> None:
        """Save changes and position."""
        with self._at("save state and position"):
            super().save_together(changes, position)

    def prepare(self, delta: Delta) -> None:
        """Store a delta beside the state."""
        with self._at("prepare state"):
            super().prepare(delta)

    def discard(self) -> None:
        """Drop the delta."""
        with self._at("discard state"):
            super().discard()

    def apply(self) -> None:
        """Make the delta part of the state."""
        with self._at("apply state"):
            super().apply()

    def snapshot(self, target: Path) -> None:
        """Write the current state to a new folder, sometimes after a compaction."""
        with self._at("snapshot state"):
            if self._disk.scheduler.random.random() < COMPACTION_PROBABILITY:
                for family in (self._opened, *self._families.values()):
                    family.compact_range(None, None)
            super().snapshot(target)
            self.unsynced = {}

    def close(self) -> None:
        """Close the state."""
        if self._database is not None:
            self._disk.scheduler.point("close state")
            super().close()
            self._disk.open.remove(self)
            self._disk.expect_room()

    @contextmanager
    def _at(self, name: str) -> Iterator[None]:
        self._disk.scheduler.point(name)
        self._disk.expect_room()
        yield
        self._disk.scheduler.point(f"after {name}")

    def _write(self, batch: WriteBatch, options: WriteOptions) -> None:
        if options is self._synced:
            self.unsynced = {}
        elif not self.unsynced:
            self.unsynced = {log: log.stat().st_size for log in self.folder.glob("*.log")}
        super()._write(batch, options)
