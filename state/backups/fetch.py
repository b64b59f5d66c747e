"""Stored files read back: several side by side, each hashed while it is read.

What is read is not used before its checksum is known to fit.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from ..errors import FileMissing, FileStoreUnreachable
from ..files.durable import sync_folder
from ..local.rocksdb import explained
from .errors import BackupDamaged
from .manifest import Manifest, StoredFile
from .shard import ShardBackups, damages_of

SIDE_BY_SIDE = 8
"""How many files of a shard are read at once."""

TRIES = 3
"""How often a file is asked for: one broken connection is no reason to go back to an older state."""

Progress = Callable[[int, int], None]
"""Gets the bytes read and those to be read in all; called by several threads, one at a time."""


def no_progress(done_bytes: int, total_bytes: int) -> None:
    """Show nothing."""


class Count:
    """How much was read, for any number of threads.

    Args:
        progress: is told at each step.
        total: bytes to be read in all.
    """

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._counting = threading.Lock()

    def add(self, size_bytes: int) -> None:
        """Count bytes; below zero where they have to be read again."""
        with self._counting:
            self._done += size_bytes
            self._progress(self._done, self._total)


def read_checked(backups: ShardBackups, file: StoredFile, take: Callable[[bytes], object], count: Count) -> None:
    """Hand over a stored file's bytes, and raise at the end where they are not what was saved.

    Raises:
        BackupDamaged: the file is missing or was changed; in a few words that name it.
        FileStoreUnreachable: it cannot be read.
    """
    digest, read_bytes = sha256(), 0
    try:
        for chunk in backups.place.read(backups.file_path(file.stored)):
            take(chunk)
            digest.update(chunk)
            read_bytes += len(chunk)
            count.add(len(chunk))
    except FileMissing as error:
        raise BackupDamaged(f"files/{file.stored} ({file.name}) is missing") from error
    except FileStoreUnreachable:
        count.add(-read_bytes)
        raise
    if digest.hexdigest() != file.sha256:
        raise BackupDamaged(f"files/{file.stored} ({file.name}) is not what was saved: its checksum does not fit")


def persistently(read: Callable[[], None]) -> None:
    """Do it again where the place did not answer."""
    for _ in range(TRIES - 1):
        with suppress(FileStoreUnreachable):
            return read()
    return read()


def fetch(backups: ShardBackups, manifest: Manifest, target: Path, progress: Progress = no_progress) -> None:
    """Write a backup's files to a folder, which is made anew, durably.

    Raises:
        BackupDamaged: a file is missing or was changed; the folder is not to be used.
        FileStoreUnreachable: a file cannot be read; the same.
    """
    with explained(target):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
    try:
        _expect_sizes(backups, manifest)
        _fetch_files(backups, manifest, target, Count(progress, manifest.size_bytes))
    except BackupDamaged as error:
        raise BackupDamaged(
            f"Backup {manifest.id} of {backups} at {backups.place.location} is damaged: {error}. It is not used."
        ) from error
    with explained(target):
        sync_folder(target)


def _expect_sizes(backups: ShardBackups, manifest: Manifest) -> None:
    """Find out by one listing what would otherwise be found after much was fetched."""
    damages = damages_of(manifest, backups.files())
    if damages:
        raise BackupDamaged("; ".join(damages))


def _fetch_files(backups: ShardBackups, manifest: Manifest, target: Path, count: Count) -> None:
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        files = [threads.submit(_fetch_file, backups, file, target, count) for file in manifest.files]
        try:
            for file in wait(files, return_when=FIRST_EXCEPTION).done:
                file.result()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _fetch_file(backups: ShardBackups, file: StoredFile, target: Path, count: Count) -> None:
    def write() -> None:
        with explained(target), (target / file.name).open("wb") as out:
            read_checked(backups, file, out.write, count)
            out.flush()
            os.fsync(out.fileno())

    persistently(write)
