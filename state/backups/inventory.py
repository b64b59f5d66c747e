"""What there is of shards: their databases on this machine, and their backups at a place."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from ..errors import StateError, StateInUse
from ..files.file_store import FileStore
from ..local.folder import current, shard_folder
from ..local.rocksdb import RocksShardState, explained, viewed
from ..protocols import Offsets, ShardIdentity
from ..topic_ids import without_topic_marks
from .backup_age import is_late
from .manifest import Manifest
from .shard import ShardBackups, damages_of

_LOOKS = 3
_T = TypeVar("_T")


class ShardName(NamedTuple):
    """A shard, whatever is kept of it."""

    processor: str
    bucket: int

    def __str__(self) -> str:
        return f"{self.processor}, bucket {self.bucket}"

    def folder(self, root: Path) -> Path:
        """Return where its states are below the folder of states."""
        return shard_folder(root, ShardIdentity(self.processor, self.bucket, shape=""))


@dataclass(frozen=True)
class LocalDatabase:
    """A shard's database on this machine.

    Args:
        position: what it reflects.
        size_bytes: its size on disk.
        keys: about how many keys have a value.
        in_use: whether a worker has it open.
    """

    position: Offsets
    size_bytes: int
    keys: int
    in_use: bool


@dataclass(frozen=True)
class StoredBackups:
    """A shard's backups at a place, and what the manifest of the newest good one says.

    Good is here one whose files are all there in their sizes: whether they are what was saved takes reading them.

    Args:
        count: how many there are.
        size_bytes: what all of them take.
        newest: the newest one.
        time_ms: when the state was as it is there, in milliseconds since 1970, UTC.
        position: what it reflects.
        age_s: how long ago that was.
        interval_s: how often the worker that made it makes one; None where that is not known.
    """

    count: int
    size_bytes: int
    newest: str | None = None
    time_ms: int | None = None
    position: Offsets | None = None
    age_s: float | None = None
    interval_s: float | None = None


@dataclass(frozen=True)
class InventoryEntry:
    """What there is of a shard.

    Args:
        processor: whose.
        bucket: which of its shards.
        local: its database here; None where there is none, or none that can be read.
        problem: why the database cannot be read.
        kept: its backups; None where no place was asked.
        late: whether the state here has gone on since the newest backup, which is too old for how often they are made.
    """

    processor: str
    bucket: int
    local: LocalDatabase | None
    problem: str | None
    kept: StoredBackups | None
    late: bool


def inventory(root: Path, place: FileStore | None, processor: str | None) -> list[InventoryEntry]:
    """Return what there is of each shard: on this machine, and at a place.

    Args:
        root: the folder of states.
        place: where backups are kept; None to leave them out.
        processor: only this one's shards.
    """
    names = {*local_shards(root), *(kept_shards(place) if place else ())}
    return [_surveyed(root, place, name) for name in sorted(names) if processor in (None, name.processor)]


def local_shards(root: Path) -> list[ShardName]:
    """Return the shards that have a database below the folder of states."""
    with explained(root):
        folders = [path for path in root.glob("*/[0-9]*") if current(path) is not None]
    return sorted(ShardName(path.parent.name, int(path.name)) for path in folders)


def kept_shards(place: FileStore) -> list[ShardName]:
    """Return the shards that have something at a place."""
    return sorted(
        ShardName(processor, int(bucket))
        for processor in _folders(place, "")
        for bucket in _folders(place, processor)
        if bucket.isdigit()
    )


def _surveyed(root: Path, place: FileStore | None, name: ShardName) -> InventoryEntry:
    local, problem = None, None
    try:
        # Before its backups: one that is made meanwhile is not taken for a late one.
        local = look(name.folder(root), _measured)
    except StateError as error:
        problem = str(error)
    kept = _kept_backups(ShardBackups(place, *name)) if place else None
    return InventoryEntry(
        *name, local, problem, kept, local is not None and kept is not None and _is_behind(kept, local)
    )


def _is_behind(kept: StoredBackups, local: LocalDatabase) -> bool:
    """Tell whether a backup is late. A state that does not go on needs no newer one, however old that is."""
    if kept.position is None or kept.age_s is None or kept.interval_s is None:
        return False
    gone_on = any(offset > kept.position.get(name, 0) for name, offset in without_topic_marks(local.position).items())
    return gone_on and is_late(kept.age_s, kept.interval_s)


def _folders(place: FileStore, folder: str) -> list[str]:
    return [name for name, size_bytes in place.list_folder(folder).items() if size_bytes is None]


def look(shard: Path, see: Callable[[RocksShardState], _T]) -> _T | None:
    """Return what is seen in a shard's database as it is now, without disturbing who has it open; None where there is none.

    Its owner may be merging files just then, or moving to another database: so it is looked at again.
    """
    for _ in range(_LOOKS - 1):
        with suppress(StateError):
            return _look_once(shard, see)
    return _look_once(shard, see)


def refuse_open(shard: Path) -> None:
    """Raise StateInUse where another process has a shard's database open.

    Not for a process that itself has it open: RocksDB's lock would end with the question.
    """
    database = current(shard)
    if database is not None and _is_open(database):
        raise StateInUse(
            f"The state in {database} is open in a worker, which would go on with it and not see what is restored. Nothing was "
            "changed. Stop the worker, then restore."
        )


def _kept_backups(backups: ShardBackups) -> StoredBackups:
    # Manifests before files: those of a backup that is made meanwhile need not be listed.
    manifests, files = list(backups.manifests()), backups.files()
    count, size_bytes = len(backups.ids()), sum(files.values())
    newest = next((manifest for manifest in manifests if not damages_of(manifest, files)), None)
    return StoredBackups(count, size_bytes) if newest is None else _described(newest, count, size_bytes)


def _described(newest: Manifest, count: int, size_bytes: int) -> StoredBackups:
    age_s = max(0.0, round(time.time() - newest.time_ms / 1000, 3))
    return StoredBackups(count, size_bytes, str(newest.id), newest.time_ms, newest.position, age_s, newest.interval_s)


def _look_once(shard: Path, see: Callable[[RocksShardState], _T]) -> _T | None:
    database = current(shard)
    if database is None:
        return None
    with viewed(database) as state:
        return see(state)


def _measured(state: RocksShardState) -> LocalDatabase:
    with explained(state.folder):
        size_bytes = sum(path.stat().st_size for path in state.folder.iterdir())
    return LocalDatabase(state.position(), size_bytes, state.estimated_keys(), _is_open(state.folder))


def _is_open(database: Path) -> bool:
    with explained(database):
        try:
            with (database / "LOCK").open("rb+") as lock:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False  # nobody ever opened it since it was restored
        except BlockingIOError:
            return True
        return False
