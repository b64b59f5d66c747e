"""Putting states in the place of a shard's state: whole or not at all, each with the number of the move that it is of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...processors.shard.position import StatePosition
from ...state.backups.fetch import Progress, fetch, no_progress
from ...state.backups.manifest import BackupId
from ...state.backups.shard_backup import snapshot_folder
from ...state.backups.writer import claim
from ...state.local.folder import RocksStateFolder, add_database
from ...state.local.rocksdb import RocksShardState
from ..worker.resume_checks import settle_prepared
from .processor_positions import LocalStates
from .staging import opened


def install_backup(
    states: LocalStates, bucket: int, backup: BackupId, maintenance_number: int, progress: Progress = no_progress
) -> None:
    """Make a backup a shard's state."""
    backups = states.backups(bucket)
    if backups is None:
        raise TypeError("a backup was planned where none are kept")
    manifest = backups.read(backup)

    def make(target: Path) -> None:
        fetch(backups, manifest, target, progress)
        _with(target, lambda state: state.save_position(StatePosition(maintenance_number=maintenance_number)))

    _replace(states, bucket, make)


def install_empty(states: LocalStates, bucket: int, position: StatePosition) -> None:
    """Make a state of nothing, at a position, a shard's state."""

    def begin(state: RocksShardState) -> None:
        state.claim(states.identity(bucket))
        state.save_position(position)

    _replace(states, bucket, lambda target: _with(target, begin))


def move_position(states: LocalStates, bucket: int, position: StatePosition, committed: StatePosition) -> None:
    """Move the position beside a shard's state, when its last checkpoint is settled by the group's committed positions."""
    identity = states.identity(bucket)
    state = RocksStateFolder(states.root).open(identity)
    try:
        settle_prepared(state, committed, f"{identity.processor}, bucket {bucket}: a checkpoint")
        state.save_position(position)
    finally:
        state.close()


def store_backup(states: LocalStates, bucket: int) -> None:
    """Make a shard's state, as it is now, the newest of its backups; nothing where none are kept."""
    backups = states.backups(bucket)
    if backups is None:
        return
    state = RocksStateFolder(states.root).open(states.identity(bucket))
    try:
        owner = claim(backups, states.identity(bucket))
        with snapshot_folder(state.folder) as snapshot:
            state.snapshot(snapshot)
            owner.save(snapshot, state.position())
    finally:
        state.close()


def _replace(states: LocalStates, bucket: int, make: Callable[[Path], None]) -> None:
    states.expect_closed(bucket)  # a worker may have been started meanwhile
    add_database(states.folder(bucket), make)


def _with(folder: Path, change: Callable[[RocksShardState], None]) -> None:
    state = opened(folder)
    try:
        change(state)
    finally:
        state.close()
