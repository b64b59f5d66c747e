"""A shard's state from its newest good backup; the database appears whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import FileStoreUnreachable, ForeignState
from ..files.file_store import FileStore
from ..local.folder import add_database
from ..local.rocksdb import RocksShardState, viewed
from ..protocols import ShardIdentity
from .errors import BackupDamaged
from .fetch import Progress, fetch, no_progress
from .manifest import BackupId, Manifest
from .shard import ShardBackups

_LOG = logging.getLogger("penstock.state")


def restore(backups: ShardBackups, target: Path, progress: Progress = no_progress) -> Manifest | None:
    """Fetch the newest good backup into a folder, which is made anew. Return its manifest; None where there is no good one.

    A backup that turns out to be damaged is left out with a warning that names the file, and the one before it is tried.

    Args:
        backups: the shard's.
        target: the folder; not to be used unless a manifest is returned.
        progress: is told how far a backup is fetched; begins again with each.

    Raises:
        FileStoreUnreachable: there may be a good backup, but it cannot be read now.
    """
    return _newest_good(backups, lambda manifest: fetch(backups, manifest, target, progress))


def restore_shard(
    place: FileStore,
    identity: ShardIdentity,
    shard: Path,
    progress: Progress = no_progress,
    confirm: Callable[[], None] = lambda: None,
) -> Manifest | None:
    """Make the newest good backup a shard's current database; otherwise as `restore`.

    Args:
        place: where backups are kept.
        identity: whose state it has to be.
        shard: the folder of the shard's states.
        progress: is told how far a backup is fetched.
        confirm: called when the database is whole, before it counts; may raise.

    Raises:
        ForeignState: the backup is of another shape; nothing was changed.
        FileStoreUnreachable: there may be a good backup, but it cannot be read now; nothing was changed.
    """
    backups = ShardBackups(place, identity.processor, identity.bucket)

    def use(manifest: Manifest) -> None:
        _expect(identity, manifest, place)
        install(backups, manifest, shard, progress, confirm)

    return _newest_good(backups, use)


def install(
    backups: ShardBackups,
    manifest: Manifest,
    shard: Path,
    progress: Progress = no_progress,
    confirm: Callable[[], None] = lambda: None,
) -> Path:
    """Make one backup a shard's current database, and return its folder.

    Args:
        backups: the shard's.
        manifest: which of them.
        shard: the folder of the shard's states.
        progress: is told how far it is fetched.
        confirm: called when the database is whole, before it counts; may raise.

    Raises:
        BackupDamaged: it is not what was saved; nothing was changed.
        FileStoreUnreachable: it cannot be read now; nothing was changed.
    """

    def make(target: Path) -> None:
        fetch(backups, manifest, target, progress)
        confirm()

    return add_database(shard, make)


@contextmanager
def viewed_backup(backups: ShardBackups, manifest: Manifest, progress: Progress) -> Iterator[RocksShardState]:
    """Give a look at the state in a backup, which is fetched to a folder that is gone afterwards."""
    with TemporaryDirectory(prefix="penstock-backup-") as folder:
        fetch(backups, manifest, Path(folder) / "state", progress)
        with viewed(Path(folder) / "state") as state:
            yield state


def _newest_good(backups: ShardBackups, use: Callable[[Manifest], None]) -> Manifest | None:
    """Return the manifest of the newest backup that could be used."""
    unread: FileStoreUnreachable | None = None
    tried: set[BackupId] = set()
    while (backup := _newest_but(backups, tried)) is not None:
        tried.add(backup)
        try:
            manifest = backups.read(backup)
            use(manifest)
        except (BackupDamaged, FileStoreUnreachable) as error:
            _LOG.warning("%s The backup before it is tried.", error)
            unread = error if isinstance(error, FileStoreUnreachable) else unread
        else:
            return manifest
    if unread is not None:
        raise unread
    return None


def _newest_but(backups: ShardBackups, tried: set[BackupId]) -> BackupId | None:
    """Look anew each time: while one was fetched, its owner may have made newer ones and removed it.

    It also tells two cases apart. Where the place as a whole is out of reach, this raises; where it answers, only some files
    cannot be read, and an older backup may do.
    """
    return next((backup for backup in backups.ids() if backup not in tried), None)


def _expect(identity: ShardIdentity, manifest: Manifest, place: FileStore) -> None:
    if manifest.identity != identity:
        raise ForeignState(
            f"Backup {manifest.id} at {place.location} is not this shard's: it is of {manifest.identity}, expected was {identity}. "
            "Nothing was changed. Run the processor that it belongs to, or give the new one another name or place for backups."
        )
