"""Verification of stored backups: every file is read and compared with its checksum."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..errors import FileStoreUnreachable
from .errors import BackupDamaged
from .fetching import FETCH_THREADS, Progress, ProgressCounter, checked_chunks, no_progress, with_retries
from .manifest import BackupFile, BackupId, Manifest
from .shard import ShardBackups, damages_of


@dataclass(frozen=True)
class BackupCheck:
    """The result of checking a backup.

    Args:
        backup: its id.
        manifest: its manifest; None if unreadable.
        damages: the defects with file names; empty if it is intact.
    """

    backup: BackupId
    manifest: Manifest | None
    damages: tuple[str, ...]


def verify(backups: ShardBackups, progress: Progress = no_progress) -> list[BackupCheck]:
    """Check every backup of a shard, newest first. A shared file is read once.

    Raises:
        FileStoreUnreachable: the whole store is unreachable.
    """
    manifests = {backup: _manifest(backups, backup) for backup in backups.ids()}
    stored = backups.files()
    faults = _faults(backups, [found for found in manifests.values() if isinstance(found, Manifest)], stored, progress)
    return [_check_of(backup, found, stored, faults) for backup, found in manifests.items()]


def _manifest(backups: ShardBackups, backup: BackupId) -> Manifest | BackupDamaged:
    try:
        return backups.read(backup)
    except BackupDamaged as error:
        return error


def _faults(
    backups: ShardBackups, manifests: list[Manifest], stored: dict[str, int], progress: Progress
) -> dict[str, str]:
    """Return the defects of files by stored name."""
    files = {file.stored: file for manifest in manifests for file in manifest.files if file.stored in stored}
    count = ProgressCounter(progress, sum(file.size_bytes for file in files.values()))
    with ThreadPoolExecutor(FETCH_THREADS) as threads:
        found = threads.map(lambda file: _fault(backups, file, count), files.values())
        return {name: fault for name, fault in zip(files, found, strict=True) if fault is not None}


def _fault(backups: ShardBackups, file: BackupFile, count: ProgressCounter) -> str | None:
    def read() -> None:
        for _ in checked_chunks(backups, file, count):
            pass

    try:
        with_retries(read)
    except BackupDamaged as error:
        return str(error)
    except FileStoreUnreachable as error:
        backups.ids()  # raises if the whole store is unreachable, not only this file
        return str(error)
    return None


def _check_of(
    backup: BackupId, found: Manifest | BackupDamaged, stored: dict[str, int], faults: dict[str, str]
) -> BackupCheck:
    if isinstance(found, BackupDamaged):
        return BackupCheck(backup, None, (str(found),))
    missing = damages_of(found, stored)
    changed = [faults[file.stored] for file in found.files if file.stored in faults and not missing]
    return BackupCheck(backup, found, (*missing, *changed))
