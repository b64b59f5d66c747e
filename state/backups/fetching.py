"""Reading of stored files, several at a time. Each file is verified by its checksum before it is used."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from ..errors import FileMissing, FileStoreUnreachable
from ..files import make_private_folder, sync_folder
from ..local import translated_errors
from .errors import BackupDamaged
from .manifest import BackupFile, Manifest
from .shard import ShardBackups, damages_of

FETCH_THREADS = 8
"""The number of files of one shard that are read at a time."""

FETCH_ATTEMPTS = 3
"""The number of attempts to read a file. One broken connection is no reason to restore an older backup."""

Progress = Callable[[int, int], None]
"""Receives the bytes read so far and in total; called by several threads, one at a time."""

Fetch = Callable[[ShardBackups, Manifest, Path, Progress], None]
"""Makes the database of a backup in a folder, as `fetch` does."""


def no_progress(done_bytes: int, total_bytes: int) -> None:
    """Ignore progress."""


class ProgressCounter:
    """A thread-safe counter of bytes read.

    Args:
        progress: called after each change.
        total: the bytes to read in all.
    """

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._counting = threading.Lock()

    def add(self, size_bytes: int) -> None:
        """Add bytes; a negative number if they must be read again."""
        with self._counting:
            self._done += size_bytes
            self._progress(self._done, self._total)


def checked_chunks(backups: ShardBackups, file: BackupFile, count: ProgressCounter) -> Iterator[bytes]:
    """Yield the bytes of a stored file, and verify them at the end.

    Raises:
        BackupDamaged: the file is missing or was changed; a short message that names it. Do not use the bytes.
        FileStoreUnreachable: it cannot be read.
    """
    digest, read_bytes = sha256(), 0
    try:
        for chunk in backups.store.read(backups.file_path(file.stored)):
            yield chunk
            digest.update(chunk)
            read_bytes += len(chunk)
            count.add(len(chunk))
    except FileMissing as error:
        raise BackupDamaged(f"files/{file.stored} ({file.name}) is missing") from error
    except FileStoreUnreachable:
        count.add(-read_bytes)
        raise
    if digest.hexdigest() != file.sha256:
        raise BackupDamaged(f"files/{file.stored} ({file.name}) was changed: its checksum does not match")


def with_retries(read: Callable[[], None]) -> None:
    """Repeat a read while the store is unreachable, a few times."""
    for _ in range(FETCH_ATTEMPTS - 1):
        with suppress(FileStoreUnreachable):
            return read()
    return read()


def fetch(backups: ShardBackups, manifest: Manifest, target: Path, progress: Progress = no_progress) -> None:
    """Download a backup's files durably into a folder, which is replaced.

    Raises:
        BackupDamaged: a file is missing or was changed. Do not use the folder.
        FileStoreUnreachable: a file cannot be read. Do not use the folder.
    """
    with translated_errors(target):
        shutil.rmtree(target, ignore_errors=True)
        make_private_folder(target)
    try:
        _expect_sizes(backups, manifest)
        _fetch_files(backups, manifest, target, ProgressCounter(progress, manifest.size_bytes))
    except BackupDamaged as error:
        raise BackupDamaged(
            f"Backup {manifest.id} of {backups} at {backups.store.location} is damaged: {error}. It is skipped."
        ) from error
    with translated_errors(target):
        sync_folder(target)


def _expect_sizes(backups: ShardBackups, manifest: Manifest) -> None:
    """Detect missing and truncated files with one listing, before a long download."""
    damages = damages_of(manifest, backups.files())
    if damages:
        raise BackupDamaged("; ".join(damages))


def _fetch_files(backups: ShardBackups, manifest: Manifest, target: Path, count: ProgressCounter) -> None:
    read_in_parallel(manifest.files, lambda file: _fetch_file(backups, file, target, count))


def read_in_parallel(files: Iterable[BackupFile], read: Callable[[BackupFile], None]) -> None:
    """Call `read` with each file, for several files at a time. The first error ends the reading of the others."""
    with ThreadPoolExecutor(FETCH_THREADS) as threads:
        reads = [threads.submit(read, file) for file in files]
        try:
            for done in wait(reads, return_when=FIRST_EXCEPTION).done:
                done.result()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _fetch_file(backups: ShardBackups, file: BackupFile, target: Path, count: ProgressCounter) -> None:
    def write() -> None:
        with translated_errors(target), (target / file.name).open("wb") as out:
            out.writelines(checked_chunks(backups, file, count))
            out.flush()
            os.fsync(out.fileno())

    with_retries(write)
