"""Backups checked where they are: every file of every one is read and compared with its checksum."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..errors import FileStoreUnreachable
from .errors import BackupDamaged
from .fetch import SIDE_BY_SIDE, Count, Progress, no_progress, persistently, read_checked
from .manifest import BackupId, Manifest, StoredFile
from .shard import ShardBackups, damages_of


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Args:
        backup: which was checked.
        manifest: what it says; None where it cannot be read.
        damages: what is wrong with it, with the names of files; empty where it is good.
    """

    backup: BackupId
    manifest: Manifest | None
    damages: tuple[str, ...]


def verify(backups: ShardBackups, progress: Progress = no_progress) -> list[Verdict]:
    """Return what is wrong with each backup of a shard, newest first. A file that several share is read once.

    Raises:
        FileStoreUnreachable: the place as a whole cannot be read.
    """
    manifests = {backup: _manifest(backups, backup) for backup in backups.ids()}
    stored = backups.files()
    faults = _faults(backups, [found for found in manifests.values() if isinstance(found, Manifest)], stored, progress)
    return [_verdict(backup, found, stored, faults) for backup, found in manifests.items()]


def _manifest(backups: ShardBackups, backup: BackupId) -> Manifest | BackupDamaged:
    try:
        return backups.read(backup)
    except BackupDamaged as error:
        return error


def _faults(
    backups: ShardBackups, manifests: list[Manifest], stored: dict[str, int], progress: Progress
) -> dict[str, str]:
    """Return what is wrong with the content of files, by the names they are stored under."""
    files = {file.stored: file for manifest in manifests for file in manifest.files if file.stored in stored}
    count = Count(progress, sum(file.size_bytes for file in files.values()))
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        found = threads.map(lambda file: _fault(backups, file, count), files.values())
        return {name: fault for name, fault in zip(files, found, strict=True) if fault is not None}


def _fault(backups: ShardBackups, file: StoredFile, count: Count) -> str | None:
    try:
        persistently(lambda: read_checked(backups, file, lambda _: None, count))
    except BackupDamaged as error:
        return str(error)
    except FileStoreUnreachable as error:
        backups.ids()  # raises where it is not this file alone that cannot be read
        return str(error)
    return None


def _verdict(
    backup: BackupId, found: Manifest | BackupDamaged, stored: dict[str, int], faults: dict[str, str]
) -> Verdict:
    if isinstance(found, BackupDamaged):
        return Verdict(backup, None, (str(found),))
    missing = damages_of(found, stored)
    changed = [faults[file.stored] for file in found.files if file.stored in faults and not missing]
    return Verdict(backup, found, (*missing, *changed))
