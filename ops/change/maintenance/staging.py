"""New states of an operation, built aside until all of them are complete.

empty --build one by one--> all complete, marked --install--> each the current state of its shard --discard--> empty
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ....state.files import make_private_folder, sync_folder
from ....state.local import (
    DatabaseMemory,
    RocksShardState,
    add_database,
    current,
    open_database,
    opened_read_only,
    translated_errors,
)
from ....transport.tables import MaintenanceOperation
from .processor_positions import LocalStates

BATCH_ENTRIES = 50_000
"""Entries per write."""
BATCH_BYTES = 16 * 2**20
"""Bytes per write."""
_MEMORY_BYTES = 32 * 2**20
_COMPLETE = "complete"


class Staging:
    """The new states of one operation. Nothing exists before `building`.

    Args:
        states: the shards that get them.
        operation: the operation. New states of an earlier attempt at the same generation are not used.
    """

    def __init__(self, states: LocalStates, operation: MaintenanceOperation) -> None:
        self._states = states
        self._generation = operation.lineage.newest_generation
        self._mark_text = str(operation.started_ms)
        self._folder = states.root / states.processor.name / f".staging-{self._generation}"

    @property
    def is_complete(self) -> bool:
        """Whether all new states are built."""
        mark = self._folder / _COMPLETE
        with translated_errors(self._folder):
            return mark.exists() and mark.read_text() == self._mark_text

    @contextmanager
    def building(self) -> Iterator[None]:
        """Build all new states within this context, which marks them as complete at its end."""
        self.discard()
        with translated_errors(self._folder):
            make_private_folder(self._folder)
        yield
        with translated_errors(self._folder):
            (self._folder / _COMPLETE).write_text(self._mark_text)
            sync_folder(self._folder)

    def staged(self, bucket: int) -> Path:
        """Return the folder of a shard's new state."""
        return self._folder / f"{bucket:05d}"

    def source(self, bucket: int) -> Path:
        """Return a folder for a copy of a shard's old state."""
        return self._folder / f"source-{bucket}"

    def install(self, bucket: int) -> None:
        """Make a new state a shard's current state; nothing if it is already."""
        shard = self._states.folder(bucket)
        self._states.require_closed(bucket)
        current_state = current(shard)
        if current_state is not None:
            with opened_read_only(current_state) as state:
                if state.position().generation == self._generation:
                    return
        add_database(shard, lambda target: link_state(self.staged(bucket), target))

    def discard(self) -> None:
        """Remove the new states. May be repeated."""
        with translated_errors(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)


def open_state(folder: Path) -> RocksShardState:
    """Open the state in a folder; create it if there is none."""
    return RocksShardState(open_database(folder, DatabaseMemory(_MEMORY_BYTES)), folder)


def link_state(source: Path, target: Path) -> None:
    """Copy a closed state to another folder with hard links."""
    state = open_state(source)
    try:
        state.snapshot(target)
    finally:
        state.close()


def write_entries(
    state: RocksShardState, entries: Iterable[tuple[bytes, bytes]], report: Callable[[int], None] = lambda _: None
) -> None:
    """Write any number of entries to a state, in batches.

    Args:
        state: the new state.
        entries: what to write.
        report: called with the number of entries of each batch.
    """
    batch: dict[bytes, bytes | None] = {}
    size_bytes = 0
    for key, value in entries:
        batch[key] = value
        size_bytes += len(key) + len(value)
        if len(batch) >= BATCH_ENTRIES or size_bytes >= BATCH_BYTES:
            state.save(batch)
            report(len(batch))
            batch, size_bytes = {}, 0
    state.save(batch)
    report(len(batch))
