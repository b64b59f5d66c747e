"""States made aside, until all of them are whole, and then put in the place of shards' states.

nothing --made one by one--> all whole, which is marked --place--> each the current one of its shard --drop--> nothing
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rocksdict import Cache

from ...state.files.durable import sync_folder
from ...state.local.folder import add_database, current
from ...state.local.rocksdb import (
    RocksShardState,
    database_options,
    open_database,
    opened_read_only,
    translated_errors,
)
from ...transport.tables.maintenance_log import MaintenanceOperation
from .processor_positions import LocalStates

AT_ONCE = 50_000
"""How many entries are written at a time."""
AT_ONCE_BYTES = 16 * 2**20
"""How much is written at a time."""
_CACHE_BYTES = 32 * 2**20
_WHOLE = "whole"


class Staging:
    """The new states of one move. Nothing is done before `making`.

    Args:
        states: where they will be.
        move: which; what another try of the same number has left is of another time, and not used.
    """

    def __init__(self, states: LocalStates, move: MaintenanceOperation) -> None:
        self._states = states
        self._number = max(move.numbers.values(), default=0)
        self._made_for = str(move.time_ms)
        self._folder = states.root / states.processor.name / f".move-{self._number}"

    @property
    def is_whole(self) -> bool:
        """Whether all new states are made."""
        mark = self._folder / _WHOLE
        with translated_errors(self._folder):
            return mark.exists() and mark.read_text() == self._made_for

    @contextmanager
    def making(self) -> Iterator[None]:
        """Give the time in which all new states are made, from nothing; they are whole at its end."""
        self.drop()
        with translated_errors(self._folder):
            self._folder.mkdir(parents=True)
        yield
        with translated_errors(self._folder):
            (self._folder / _WHOLE).write_text(self._made_for)
            sync_folder(self._folder)

    def staged(self, bucket: int) -> Path:
        """Return where the new state of a shard is made."""
        return self._folder / f"{bucket:05d}"

    def source(self, bucket: int) -> Path:
        """Return where an old state may lie meanwhile."""
        return self._folder / f"source-{bucket}"

    def place(self, bucket: int) -> None:
        """Make a new state a shard's current one; nothing where it is."""
        shard = self._states.folder(bucket)
        self._states.expect_closed(bucket)
        there = current(shard)
        if there is not None:
            with opened_read_only(there) as state:
                if state.position().maintenance_number == self._number:
                    return
        add_database(shard, lambda target: linked(self.staged(bucket), target))

    def drop(self) -> None:
        """Remove what was made aside. May be repeated."""
        with translated_errors(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)


def opened(folder: Path) -> RocksShardState:
    """Return the state in a folder, opened; a new one where there is none."""
    return RocksShardState(open_database(folder, database_options(Cache(_CACHE_BYTES))), folder)


def linked(source: Path, target: Path) -> None:
    """Make another folder of a state that nobody has open, by hard links."""
    state = opened(source)
    try:
        state.snapshot(target)
    finally:
        state.close()


def write_all(state: RocksShardState, entries: Iterable[tuple[bytes, bytes]], told: Callable[[int], None]) -> None:
    """Write entries to a state, batch by batch, however many there are.

    Args:
        state: that which is made.
        entries: what to write.
        told: is told how many have been written with each batch.
    """
    batch: dict[bytes, bytes | None] = {}
    size_bytes = 0
    for key, value in entries:
        batch[key] = value
        size_bytes += len(key) + len(value)
        if len(batch) >= AT_ONCE or size_bytes >= AT_ONCE_BYTES:
            state.save(batch)
            told(len(batch))
            batch, size_bytes = {}, 0
    state.save(batch)
    told(len(batch))
