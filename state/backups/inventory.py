"""Inventory of shards: their databases on this machine, and their backups in a file store."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...processors.shard import StatePosition
from ..errors import StateError, StateInUse
from ..files import FileStore
from ..local import RocksShardState, current, opened_read_only, shard_folder, translated_errors
from ..protocols import ShardIdentity
from .backup_age import is_late
from .manifest import Manifest
from .shard import ShardBackups, damages_of

_READ_ATTEMPTS = 3
_T = TypeVar("_T")


class ShardName(NamedTuple):
    """The processor and bucket of a shard."""

    processor: str
    bucket: int

    def __str__(self) -> str:
        return f"{self.processor}, bucket {self.bucket}"

    def folder(self, root: Path) -> Path:
        """Return the shard's folder below the state folder."""
        return shard_folder(root, ShardIdentity(self.processor, self.bucket, shape=""))


@dataclass(frozen=True)
class LocalDatabase:
    """A shard's database on this machine.

    Args:
        position: the position that it reflects.
        size_bytes: its size on disk.
        keys: the estimated number of keys.
        in_use: whether a worker has it open.
    """

    position: StatePosition
    size_bytes: int
    keys: int
    in_use: bool


@dataclass(frozen=True)
class StoredBackups:
    """The backups of a shard, and the newest intact one.

    A backup is intact here if all its files exist in their sizes. Only `verify` reads their content.

    Args:
        count: the number of backups.
        size_bytes: their total size.
        newest: the id of the newest intact one.
        time_ms: the time of its state, in milliseconds since 1970, UTC.
        position: the position of its state.
        age_s: its age.
        interval_s: the backup interval of the worker that made it; None if unknown.
    """

    count: int
    size_bytes: int
    newest: str | None = None
    time_ms: int | None = None
    position: StatePosition | None = None
    age_s: float | None = None
    interval_s: float | None = None


@dataclass(frozen=True)
class InventoryEntry:
    """The database and backups of a shard.

    Args:
        processor: the processor's name.
        bucket: the bucket number.
        local: its database here; None if it is missing or unreadable.
        problem: why the database is unreadable.
        backups: its backups; None without a store.
        late: whether the newest backup is late and the local state is ahead of it.
    """

    processor: str
    bucket: int
    local: LocalDatabase | None
    problem: str | None
    backups: StoredBackups | None
    late: bool


def inventory(root: Path, store: FileStore | None, processor: str | None) -> list[InventoryEntry]:
    """Return the shards on this machine and in a store.

    Args:
        root: the state folder.
        store: the backup store; None to omit backups.
        processor: only the shards of this processor.
    """
    names = {*local_shards(root), *(backed_up_shards(store) if store else ())}
    return [_inventory_entry(root, store, name) for name in sorted(names) if processor in (None, name.processor)]


def local_shards(root: Path) -> list[ShardName]:
    """Return the shards with a database below the state folder."""
    with translated_errors(root):
        folders = [path for path in root.glob("*/[0-9]*") if current(path) is not None]
    return sorted(ShardName(path.parent.name, int(path.name)) for path in folders)


def backed_up_shards(store: FileStore) -> list[ShardName]:
    """Return the shards with files in a store."""
    return sorted(
        ShardName(processor, bucket)
        for processor in _folders(store, "")
        for bucket in backed_up_buckets(store, processor)
    )


def backed_up_buckets(store: FileStore, processor: str) -> list[int]:
    """Return the numbers of a processor's buckets with files in a store, sorted."""
    return sorted(int(bucket) for bucket in _folders(store, processor) if bucket.isdigit())


def _inventory_entry(root: Path, store: FileStore | None, name: ShardName) -> InventoryEntry:
    local, problem = None, None
    try:
        # First the database, then its backups: a backup made in between must not count as late.
        local = read_database(name.folder(root), _local_database)
    except StateError as error:
        problem = str(error)
    backups = _kept_backups(ShardBackups(store, *name)) if store else None
    return InventoryEntry(
        *name, local, problem, backups, local is not None and backups is not None and _is_late_backup(backups, local)
    )


def _is_late_backup(backups: StoredBackups, local: LocalDatabase) -> bool:
    """Return whether a backup is late. A state that has not changed since needs no newer one."""
    if backups.position is None or backups.age_s is None or backups.interval_s is None:
        return False
    has_advanced = backups.position.is_behind(local.position)
    return has_advanced and is_late(backups.age_s, backups.interval_s)


def _folders(store: FileStore, folder: str) -> list[str]:
    return [name for name, size_bytes in store.list_folder(folder).items() if size_bytes is None]


def read_database(shard: Path, read: Callable[[RocksShardState], _T]) -> _T | None:
    """Read a shard's current database without disturbing its owner; return None if there is none.

    The owner may be compacting files or switching databases, so a failed read is repeated.
    """
    for _ in range(_READ_ATTEMPTS - 1):
        with suppress(StateError):
            return _read_once(shard, read)
    return _read_once(shard, read)


def expect_closed(shard: Path) -> None:
    """Raise StateInUse if another process has a shard's database open.

    A process that has opened the database itself must not call this: RocksDB would lose its lock.
    """
    database = current(shard)
    if database is not None and _is_open(database):
        raise StateInUse(
            f"A worker has the state in {database} open, and would not notice the restored one. Nothing was changed. Stop the worker, then "
            "restore."
        )


def _kept_backups(backups: ShardBackups) -> StoredBackups:
    # Manifests before files: the listing then includes every file of these manifests.
    manifests, files = list(backups.manifests()), backups.files()
    count, size_bytes = len(backups.ids()), sum(files.values())
    newest = next((manifest for manifest in manifests if not damages_of(manifest, files)), None)
    return StoredBackups(count, size_bytes) if newest is None else _described(newest, count, size_bytes)


def _described(newest: Manifest, count: int, size_bytes: int) -> StoredBackups:
    age_s = max(0.0, round(time.time() - newest.time_ms / 1000, 3))
    return StoredBackups(count, size_bytes, str(newest.id), newest.time_ms, newest.position, age_s, newest.interval_s)


def _read_once(shard: Path, read: Callable[[RocksShardState], _T]) -> _T | None:
    database = current(shard)
    if database is None:
        return None
    with opened_read_only(database) as state:
        return read(state)


def _local_database(state: RocksShardState) -> LocalDatabase:
    with translated_errors(state.folder):
        size_bytes = sum(path.stat().st_size for path in state.folder.iterdir())
    return LocalDatabase(state.position(), size_bytes, state.estimated_keys(), _is_open(state.folder))


def _is_open(database: Path) -> bool:
    with translated_errors(database):
        try:
            with (database / "LOCK").open("rb+") as lock:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False  # restored, and never opened since
        except BlockingIOError:
            return True
        return False
