"""The scratch state that a shard's replay begins with, and from where its events are read.

empty        nothing, at the beginning of the span
at-start     the newest backup that is not behind the beginning of the span, brought up to there by the events between
backup:ID    that one
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ...processors.declare.processor import Processor
from ...processors.operators import merge_of
from ...processors.shard.checkpoints import is_remote
from ...processors.shard.position import Offsets
from ...state.backups.errors import BackupDamaged
from ...state.backups.manifest import BackupId, Manifest
from ...state.backups.restore import install
from ...state.backups.shard import ShardBackups
from ...state.files.file_store import FileStore
from ...state.local.folder import RocksStateFolder, shard_folder
from ...state.protocols import MemoryShardState, ShardIdentity, ShardState
from ...transport.messages import Bucket
from ...transport.offset_range import OffsetRange
from .errors import ReplayRefused
from .event_source import EventSource

_LOG = logging.getLogger("penstock.replay")


@dataclass(frozen=True)
class Empty:
    """A state that knows nothing of what was before the span."""


@dataclass(frozen=True)
class AtStart:
    """The state as it was when the span began.

    Args:
        place: where backups are; None where none are known.
    """

    place: FileStore | None


@dataclass(frozen=True)
class FromBackup:
    """The state that a backup holds.

    Args:
        place: where it is.
        backup: which.
    """

    place: FileStore
    backup: BackupId


Start = Empty | AtStart | FromBackup


@dataclass(frozen=True)
class Started:
    """A shard that is about to be replayed.

    Args:
        state: its scratch state; None where it keeps none.
        begins: by category, from where on events are read.
        tells: where its state comes from, in words; nothing to tell where it keeps none.
    """

    state: ShardState | None
    begins: Offsets
    tells: str = ""


@contextmanager
def started(
    processor: Processor, number: int, start: Start, past: EventSource, stretches: Sequence[OffsetRange]
) -> Iterator[Started]:
    """Give a shard's scratch state, which is gone after the block.

    Args:
        processor: whose.
        number: the shard's bucket number.
        start: with which state it begins.
        past: where events are read.
        stretches: what of each input lies in the span.

    Raises:
        ReplayRefused: there is no such state, or what is needed to bring it up to the span is gone.
    """
    borders = {stretch.bucket.category: stretch.start for stretch in stretches}
    shape = processor.state_shape()
    if shape is None:
        yield Started(None, borders)
        return
    identity = ShardIdentity(processor.name, number, shape)
    if is_remote(type(processor)):
        if not isinstance(start, Empty):
            raise ReplayRefused(
                f"{type(processor).__name__} keeps its state in a remote store, of which there is no backup. Nothing was read. Replay with "
                "`--state empty`: it then counts only what comes in the span, beside the store."
            )
        yield Started(MemoryShardState(merge_of(processor)), borders, "begins with nothing")
        return
    with TemporaryDirectory(prefix="penstock-replay-") as folder:
        manifest = None if isinstance(start, Empty) else _restored(start, identity, borders, Path(folder))
        with closing(RocksStateFolder(Path(folder)).open(identity)) as state:
            state.discard()  # whether what was prepared counted is decided by the events that are read again
            if manifest is None:
                begins = borders if isinstance(start, Empty) else _from_the_first(processor, past, borders, number)
                tells = "begins with nothing" if begins == borders else "is built from the first event on"
            else:
                begins = _begins_of(processor, past, manifest, borders, number)
                tells = f"begins with backup {manifest.id}"
            yield Started(state, begins, tells)


def _restored(start: AtStart | FromBackup, identity: ShardIdentity, borders: Offsets, folder: Path) -> Manifest | None:
    """Put a backup in the place of the scratch state; return its manifest, or None where there is none that fits."""
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
            _LOG.warning("%s The backup before it is tried.", error)
        else:
            return manifest
    return None


def _is_behind(position: Mapping[str, int], borders: Offsets) -> bool:
    """Tell whether a state has read more than what lies before the span."""
    return any(offset > borders.get(name, offset) for name, offset in position.items())


def _expect_shape(manifest: Manifest, identity: ShardIdentity) -> None:
    if manifest.identity != identity:
        raise ReplayRefused(
            f"Backup {manifest.id} holds {manifest.identity.shape}, and {identity.processor} as it is declared keeps {identity.shape}: it "
            "would be misread. Nothing was read. Replay the code that saved it, or with `--state empty`."
        )


def _begins_of(processor: Processor, past: EventSource, manifest: Manifest, borders: Offsets, number: int) -> Offsets:
    """Return from where on events are read for a state that was restored."""
    begins = {name: min(manifest.position.offsets.get(name, 0), border) for name, border in borders.items()}
    if _is_behind(manifest.position.offsets, borders):
        _LOG.warning(
            "%s, bucket %d: backup %s has read on into the span: what it has read there counts twice in its state.",
            processor.name,
            number,
            manifest.id,
        )
    for name, begin in begins.items():
        first = past.first(Bucket(name, number))
        if begin < min(first, borders[name]):
            raise ReplayRefused(
                f"{Bucket(name, number)}: backup {manifest.id} is at offset {begin:,}, and events are kept only from offset {first:,} on: it "
                f"cannot be brought up to the beginning of the span. Nothing was read. Choose: a span that begins later; `--source "
                "warehouse`, where the category is archived; or `--state empty`."
            )
    return begins


def _from_the_first(processor: Processor, past: EventSource, borders: Offsets, number: int) -> Offsets:
    """Return from where on events are read where no backup fits: from the very first, if that is kept."""
    for name, border in borders.items():
        first = past.first(Bucket(name, number))
        if min(first, border) > 0:
            raise ReplayRefused(
                f"{type(processor).__name__}, bucket {number}: the state as it was when the span began is not to be had. No backup is as old as "
                f"that, and {Bucket(name, number)} is kept only from offset {first:,} on, so that it cannot be built from the first event. "
                "Nothing was read. Choose: the place of its backups (`--backup LOCATION`; `penstock state verify` lists them), `--state "
                "backup:ID`; a later span; `--source warehouse`, where the category is archived; or `--state empty`."
            )
    return dict.fromkeys(borders, 0)
