"""Installation of a shard's new state: whole or not at all, always with the generation of its operation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ....processors.apps import renamed_categories
from ....processors.shard import StatePosition
from ....processors.time import with_renamed_inputs
from ....state.backups import BackupId, Progress, ShardBackups, claim, fetch, no_progress, snapshot_folder
from ....state.local import RocksShardState, RocksStateFolder, add_database, current, opened_read_only
from ....transport import Bus, rewrite_changelog_bucket
from ...kernel import changelog_of, resolve_prepared
from .processor_positions import LocalStates
from .staging import link_state, open_state


def install_backup(
    states: LocalStates, bucket: int, backup: BackupId, position: StatePosition, progress: Progress = no_progress
) -> None:
    """Replace a shard's state by a backup.

    Args:
        states: the states of the processor.
        bucket: the shard.
        backup: the backup.
        position: what replaces parts of the backup's position: at least the generation.
        progress: receives the progress of the download.
    """
    backups = states.backups(bucket)
    if backups is None:
        raise TypeError("the plan names a backup, and there is no backup store")
    manifest = backups.read(backup)

    def build(target: Path) -> None:
        fetch(backups, manifest, target, progress)
        _change(target, lambda state: state.save_position(position))

    _replace(states, bucket, build)


def install_clone(
    states: LocalStates, bucket: int, original: ShardBackups, backup: BackupId, position: StatePosition
) -> None:
    """Replace the state of a clone's shard by a backup of the original shard.

    Args:
        states: the states of the clone's processor.
        bucket: the shard.
        original: the backups of the original shard.
        backup: one of them.
        position: the whole new position.
    """
    manifest, names = original.read(backup), renamed_categories(states.processor)

    def build(target: Path) -> None:
        fetch(original, manifest, target, no_progress)
        _change(
            target,
            lambda state: state.reassign(states.identity(bucket), with_renamed_inputs(state, names), position),
        )

    _replace(states, bucket, build)


def install_promoted(
    states: LocalStates, bucket: int, of_clone: LocalStates, committed: StatePosition, position: StatePosition
) -> None:
    """Replace the state of a shard by the local state of the clone's shard.

    Args:
        states: the states of the processor.
        bucket: the shard.
        of_clone: the states of the clone's processor.
        committed: the positions of the clone's group, which decide about its last checkpoint.
        position: the whole new position.
    """
    names = {new: old for old, new in renamed_categories(of_clone.processor).items()}
    source = current(of_clone.folder(bucket))
    if source is None:
        raise FileNotFoundError(of_clone.folder(bucket))

    def give(state: RocksShardState) -> None:
        resolve_prepared(state, committed, f"{of_clone.processor.name}, bucket {bucket}: a checkpoint")
        state.reassign(states.identity(bucket), with_renamed_inputs(state, names), position)

    def build(target: Path) -> None:
        link_state(source, target)
        _change(target, give)

    _replace(states, bucket, build)


def install_empty(states: LocalStates, bucket: int, position: StatePosition) -> None:
    """Replace a shard's state by an empty one at a position."""

    def initialize(state: RocksShardState) -> None:
        state.claim(states.identity(bucket))
        state.save_position(position)

    _replace(states, bucket, lambda target: _change(target, initialize))


def move_position(states: LocalStates, bucket: int, position: StatePosition, committed: StatePosition) -> None:
    """Change the position of a shard's state, after completing its last checkpoint by the group's committed positions."""
    identity = states.identity(bucket)
    state = RocksStateFolder(states.root).open(identity)
    try:
        resolve_prepared(state, committed, f"{identity.processor}, bucket {bucket}: a checkpoint")
        state.save_position(position)
    finally:
        state.close()


def store_backup(states: LocalStates, bucket: int) -> None:
    """Store a shard's local state as its newest backup; nothing without a backup store or a local state."""
    backups = states.backups(bucket)
    if backups is None or current(states.folder(bucket)) is None:
        return
    state = RocksStateFolder(states.root).open(states.identity(bucket))
    try:
        owner = claim(backups, states.identity(bucket))
        with snapshot_folder(state.folder) as snapshot:
            state.snapshot(snapshot)
            owner.save(snapshot, state.position())
    finally:
        state.close()


def rewrite_changelog(bus: Bus, states: LocalStates, bucket: int) -> None:
    """Rewrite a shard's changelog so that replaying it produces the local state; nothing without a local state or a changelog."""
    changelog, folder = changelog_of(states.processor), current(states.folder(bucket))
    if changelog is None or folder is None or changelog.name not in bus.catalog.names():
        return
    with opened_read_only(folder) as state:
        rewrite_changelog_bucket(bus, changelog.name, bucket, state.items(), state.position())


def _replace(states: LocalStates, bucket: int, build: Callable[[Path], None]) -> None:
    states.require_closed(bucket)  # a worker may have started since the last check
    add_database(states.folder(bucket), build)


def _change(folder: Path, change: Callable[[RocksShardState], None]) -> None:
    state = open_state(folder)
    try:
        change(state)
    finally:
        state.close()
