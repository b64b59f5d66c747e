"""Restoring of shards from their newest intact backup. A database appears whole or not at all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import FileStoreUnreachable, ForeignState, StateError
from ..files import FileStore
from ..local import RocksShardState, add_database, opened_read_only
from ..protocols import ShardIdentity
from .errors import BackupCanceled, BackupDamaged, BackupError
from .fetching import Fetch, Progress, fetch, no_progress
from .inventory import ShardName, expect_closed
from .manifest import BackupId, Manifest
from .shard import ShardBackups

_LOG = logging.getLogger("penstock.state")


def restore(backups: ShardBackups, target: Path, progress: Progress = no_progress) -> Manifest | None:
    """Download the newest intact backup into a folder, which is replaced. Return its manifest; None without an intact backup.

    A damaged backup causes a warning, and the one before it is tried.

    Args:
        backups: the shard's.
        target: the folder. Use it only if a manifest is returned.
        progress: receives the progress of each download, which starts over with each backup.

    Raises:
        FileStoreUnreachable: an intact backup may exist, but cannot be read now.
    """
    return _newest_usable(backups, lambda manifest: fetch(backups, manifest, target, progress))


def restore_shard(
    store: FileStore,
    identity: ShardIdentity,
    shard: Path,
    progress: Progress = no_progress,
    confirm: Callable[[], None] = lambda: None,
    *,
    get: Fetch = fetch,
) -> Manifest | None:
    """Make the newest intact backup a shard's current database; see `restore`.

    Args:
        store: the backup store.
        identity: the expected identity of the state.
        shard: the shard's folder.
        progress: receives the progress of each download.
        confirm: called when the database is complete, before it becomes current; may raise.
        get: makes the database.

    Raises:
        ForeignState: the backup has another type; nothing was changed.
        FileStoreUnreachable: an intact backup may exist, but cannot be read now; nothing was changed.
    """
    backups = ShardBackups(store, identity.processor, identity.bucket)

    def use(manifest: Manifest) -> None:
        _expect(identity, manifest, store)
        install(backups, manifest, shard, progress, confirm, get=get)

    return _newest_usable(backups, use)


def install(
    backups: ShardBackups,
    manifest: Manifest,
    shard: Path,
    progress: Progress = no_progress,
    confirm: Callable[[], None] = lambda: None,
    *,
    get: Fetch = fetch,
) -> Path:
    """Make one backup a shard's current database. Return its folder.

    Args:
        backups: the shard's.
        manifest: the backup.
        shard: the shard's folder.
        progress: receives the progress of the download.
        confirm: called when the database is complete, before it becomes current; may raise.
        get: makes the database.

    Raises:
        BackupDamaged: the backup is damaged; nothing was changed.
        FileStoreUnreachable: it cannot be read now; nothing was changed.
    """

    def make(target: Path) -> None:
        get(backups, manifest, target, progress)
        confirm()

    return add_database(shard, make)


@contextmanager
def opened_backup(backups: ShardBackups, manifest: Manifest, progress: Progress) -> Iterator[RocksShardState]:
    """Open the state of a backup read-only, in a temporary folder."""
    with TemporaryDirectory(prefix="penstock-backup-") as folder:
        fetch(backups, manifest, Path(folder) / "state", progress)
        with opened_read_only(Path(folder) / "state") as state:
            yield state


def _newest_usable(backups: ShardBackups, use: Callable[[Manifest], None]) -> Manifest | None:
    """Return the manifest of the newest usable backup."""
    unreachable: FileStoreUnreachable | None = None
    tried: set[BackupId] = set()
    while (backup := _newest_untried(backups, tried)) is not None:
        tried.add(backup)
        try:
            manifest = backups.read(backup)
            use(manifest)
        except (BackupDamaged, FileStoreUnreachable) as error:
            _LOG.warning("%s The previous backup is tried.", error)
            unreachable = error if isinstance(error, FileStoreUnreachable) else unreachable
        else:
            return manifest
    if unreachable is not None:
        raise unreachable
    return None


def _newest_untried(backups: ShardBackups, tried: set[BackupId]) -> BackupId | None:
    """Return the newest backup that was not tried yet.

    The store is listed again each time: meanwhile, the owner may have made newer backups and deleted older ones. This also separates two
    cases. If the whole store is unreachable, this raises. If only some files are, an older backup may do.
    """
    return next((backup for backup in backups.ids() if backup not in tried), None)


def _expect(identity: ShardIdentity, manifest: Manifest, store: FileStore) -> None:
    if manifest.identity != identity:
        raise ForeignState(
            f"Backup {manifest.id} at {store.location} belongs to another shard: it is {manifest.identity}, expected {identity}. Nothing "
            "was changed. Run its own processor, or give the new one another name or backup store."
        )


SHARDS_AT_ONCE = 4
"""The number of shards that are restored at a time; each downloads several files at a time."""


def restore_in_parallel(
    store: FileStore,
    root: Path,
    shards: Sequence[ShardName],
    progress_of: Callable[[ShardName], Progress],
    only: BackupId | None = None,
) -> dict[ShardName, Manifest | StateError]:
    """Replace the states of shards by backups. Return the manifest or error of each; a shard that cannot be restored is unchanged.

    Args:
        store: the backup store.
        root: the state folder.
        shards: the shards, none of which may be open.
        progress_of: returns the progress callback of a shard.
        only: the backup to restore; None for the newest intact one of each.

    Raises:
        StateInUse: one of the shards is open; nothing was changed.
    """
    for name in shards:
        expect_closed(name.folder(root))
    stopped = threading.Event()

    def begin(name: ShardName) -> Manifest | StateError:
        try:
            return _restore(store, root, name, _interruptible(stopped, progress_of(name)), only)
        except StateError as error:
            return error

    with ThreadPoolExecutor(SHARDS_AT_ONCE) as threads:
        try:
            return dict(zip(shards, threads.map(begin, shards), strict=True))
        except BaseException:
            stopped.set()  # Ctrl-C does not wait for downloads
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _restore(store: FileStore, root: Path, name: ShardName, progress: Progress, only: BackupId | None) -> Manifest:
    backups, shard = ShardBackups(store, *name), name.folder(root)
    confirm = partial(expect_closed, shard)  # a worker may have started meanwhile
    if only is not None:
        manifest = backups.read(only)
        install(backups, manifest, shard, progress, confirm)
        return manifest
    newest = backups.newest()
    if newest is not None:
        identity = ShardIdentity(name.processor, name.bucket, newest.identity.shape)
        newest = restore_shard(store, identity, shard, progress, confirm)
    if newest is None:
        raise BackupError(
            f"{name} has no intact backup at {store.location}. Its state on this machine was not changed. "
            "Check the location, or run `penstock state verify`."
        )
    return newest


def _interruptible(stopped: threading.Event, progress: Progress) -> Progress:
    def show(done_bytes: int, total_bytes: int) -> None:
        if stopped.is_set():
            raise BackupCanceled("The restore was interrupted. Nothing was changed.")
        progress(done_bytes, total_bytes)

    return show
