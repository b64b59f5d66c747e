"""The initial state of a shard's replay, and the first events to read.

empty        an empty state at the start of the span
at-start     the newest backup from before the start of the span, updated by the events between
backup:ID    a named backup
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ....processors.declare import Processor, plan_of
from ....processors.operators import merge_of
from ....processors.shard import Offsets, is_remote
from ....state import MemoryShardState, ShardIdentity, ShardState
from ....state.backups import BackupDamaged, BackupId, Manifest, ShardBackups, install
from ....state.files import FileStore
from ....state.local import RocksStateFolder, shard_folder
from ....transport import Bucket, OffsetRange
from .errors import ReplayRefused
from .event_source import EventSource

_LOG = logging.getLogger("penstock.replay")


@dataclass(frozen=True)
class Empty:
    """An empty state."""


@dataclass(frozen=True)
class AtStart:
    """The state at the start of the span.

    Args:
        place: the backup store; None without one.
    """

    place: FileStore | None


@dataclass(frozen=True)
class FromBackup:
    """The state of a backup.

    Args:
        place: the backup store.
        backup: the backup.
    """

    place: FileStore
    backup: BackupId


Start = Empty | AtStart | FromBackup


@dataclass(frozen=True)
class StartedShard:
    """A shard before its replay.

    Args:
        state: its temporary state; None without state.
        start_offsets: by category, the first offset to read.
        origin: a description of its state's origin; empty without state.
    """

    state: ShardState | None
    start_offsets: Offsets
    origin: str = ""


@contextmanager
def started_shard(
    processor: Processor, number: int, start: Start, past: EventSource, stretches: Sequence[OffsetRange]
) -> Iterator[StartedShard]:
    """Provide a shard's temporary state, which is deleted at the end.

    Args:
        processor: the processor.
        number: the shard's bucket number.
        start: the initial state.
        past: the source of events.
        stretches: the offset range of each input.

    Raises:
        ReplayRefused: there is no such state, or events before the span have expired.
    """
    borders = {stretch.bucket.category: stretch.start for stretch in stretches}
    shape = plan_of(processor).state_shape
    if shape is None:
        yield StartedShard(None, borders)
        return
    identity = ShardIdentity(processor.name, number, shape)
    if is_remote(type(processor)):
        if not isinstance(start, Empty):
            raise ReplayRefused(
                f"{type(processor).__name__} has remote state, which has no backups. Nothing was read. Use `--state empty`, which "
                "counts only the events of the span."
            )
        yield StartedShard(MemoryShardState(merge_of(processor)), borders, "starts with an empty state")
        return
    with TemporaryDirectory(prefix="penstock-replay-") as folder:
        manifest = None if isinstance(start, Empty) else _restored(start, identity, borders, Path(folder))
        with closing(RocksStateFolder(Path(folder)).open(identity)) as state:
            state.discard()  # the prepared changes come from events that are read again
            if manifest is None:
                starts = borders if isinstance(start, Empty) else _first_offsets(processor, past, borders, number)
                origin = "starts with an empty state" if starts == borders else "is rebuilt from the first event"
            else:
                starts = _offsets_after_backup(processor, past, manifest, borders, number)
                origin = f"starts with backup {manifest.id}"
            yield StartedShard(state, starts, origin)


def _restored(start: AtStart | FromBackup, identity: ShardIdentity, borders: Offsets, folder: Path) -> Manifest | None:
    """Install a backup as the temporary state; return its manifest, or None without a matching backup."""
    if start.place is None:
        return None
    backups = ShardBackups(start.place, identity.processor, identity.bucket)
    target = shard_folder(folder, identity)
    if isinstance(start, FromBackup):
        manifest = backups.read(start.backup)
        _expect_shape(manifest, identity)
        install(backups, manifest, target)
        return manifest
    for manifest in backups.manifests():
        if _is_behind(manifest.position.offsets, borders):
            continue
        _expect_shape(manifest, identity)
        try:
            install(backups, manifest, target)
        except BackupDamaged as error:
            _LOG.warning("%s Trying the backup before it.", error)
        else:
            return manifest
    return None


def _is_behind(position: Mapping[str, int], borders: Offsets) -> bool:
    """Return whether a state contains events of the span."""
    return any(offset > borders.get(name, offset) for name, offset in position.items())


def _expect_shape(manifest: Manifest, identity: ShardIdentity) -> None:
    if manifest.identity != identity:
        raise ReplayRefused(
            f"Backup {manifest.id} contains {manifest.identity.shape}, and {identity.processor} declares {identity.shape}. Nothing was read. "
            "Replay the version that saved it, or use `--state empty`."
        )


def _offsets_after_backup(
    processor: Processor, past: EventSource, manifest: Manifest, borders: Offsets, number: int
) -> Offsets:
    """Return the first offsets to read after restoring a backup."""
    starts = {name: min(manifest.position.offsets.get(name, 0), border) for name, border in borders.items()}
    if _is_behind(manifest.position.offsets, borders):
        _LOG.warning(
            "%s, bucket %d: backup %s contains events of the span, which count twice in its state.",
            processor.name,
            number,
            manifest.id,
        )
    for name, offset in starts.items():
        first = past.first(Bucket(name, number))
        if offset < min(first, borders[name]):
            raise ReplayRefused(
                f"{Bucket(name, number)}: backup {manifest.id} is at offset {offset:,}, and events are retained only from offset {first:,}, "
                f"so the state cannot reach the start of the span. Nothing was read. Choose a later span, `--source warehouse` for an archived "
                "category, or `--state empty`."
            )
    return starts


def _first_offsets(processor: Processor, past: EventSource, borders: Offsets, number: int) -> Offsets:
    """Return the first offsets to read without a backup, which are zero; the first events must be retained."""
    for name, border in borders.items():
        first = past.first(Bucket(name, number))
        if min(first, border) > 0:
            raise ReplayRefused(
                f"{type(processor).__name__}, bucket {number}: no backup is older than the start of the span, and "
                f"{Bucket(name, number)} is retained only from offset {first:,}, so the state cannot be rebuilt from the first event. Nothing was "
                "read. Name the backup store (`--backup LOCATION`; `penstock state verify` lists its backups) or a backup (`--state "
                "backup:ID`), or choose a later span, `--source warehouse` for an archived category, or `--state empty`."
            )
    return dict.fromkeys(borders, 0)
