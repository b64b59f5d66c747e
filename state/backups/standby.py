"""Copies of the newest backups on a machine that does not own their shards, so that it takes them over without a download.

    <state>/<processor>/.standby/<processor>/<bucket>/      as in a backup store: the newest backup, and its files
    <state>/<processor>/.standby/<processor>/<bucket>.lock  locked by the process that copies

An update copies only the files that changed since the last one. A takeover links the table files of the copy into a new database:
RocksDB never changes a table file, so that neither needs to be copied again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...processors.shard import StatePosition
from ..files import FileStore, LocalFileStore, make_private_folder, sync_folder
from ..local import shard_folder, translated_errors
from ..protocols import ShardIdentity
from .errors import BackupDamaged
from .fetching import Progress, ProgressCounter, checked_chunks, no_progress, read_in_parallel, with_retries
from .manifest import BackupFile, Manifest
from .shard import ShardBackups
from .writer import IMMUTABLE

LOCK_PAUSE_S = 0.05


class StandbyCopies:
    """The copies on one machine. Several processes and threads may use them.

    Args:
        store: contains the backups.
        states: the folder of all states.
        processor: the processor of the shards.
    """

    def __init__(self, store: FileStore, states: Path, processor: str) -> None:
        self._store = store
        self._root = states / processor / ".standby"
        self.files: FileStore = LocalFileStore(self._root)
        """The copies, as a backup store."""

    def update(self, identity: ShardIdentity, local: Callable[[], StatePosition]) -> bool:
        """Copy what is new in a shard's newest backup. Return whether this machine can now take the shard over without a download.

        Args:
            identity: the shard.
            local: returns the position of the shard's state on this machine. If it is as new as the backup, no copy is needed.

        Raises:
            BackupDamaged: the backup lacks a file, or one was changed; the copy before it is intact.
            FileStoreUnreachable: the backup cannot be read; the copy before it is intact.
            StateError: this machine has no room, or the local state cannot be read; the copy before it is intact.
        """
        backups, copies = self._backups_in(self._store, identity), self._backups_in(self.files, identity)
        newest = backups.newest()
        if newest is None:
            return False
        if newest.id in copies.ids():
            return True
        if not local().is_behind(newest.position):
            self.drop(identity)
            return True
        with self._locked(identity):
            self._copy_files(backups, copies, newest)
            self.files.write(copies.manifest_path(newest.id), [newest.encode()])
            _drop_others(copies, newest)
        return True

    def drop(self, identity: ShardIdentity) -> None:
        """Delete the copy of a shard, if there is one."""
        folder = shard_folder(self._root, identity)
        if folder.exists():
            with self._locked(identity), translated_errors(folder):
                shutil.rmtree(folder)

    def link(
        self,
        backups: ShardBackups,
        manifest: Manifest,
        target: Path,
        progress: Progress = no_progress,  # noqa: ARG002 - at once
    ) -> None:
        """Make a database of a copy, in a new folder; takes the place of `fetch`.

        Raises:
            BackupDamaged: the copy is incomplete. Do not use the folder.
        """
        with self._locked(manifest.identity), translated_errors(target):
            shutil.rmtree(target, ignore_errors=True)
            make_private_folder(target)
            for file in manifest.files:
                _link(self._root / backups.file_path(file.stored), target / file.name)
            sync_folder(target)

    def _copy_files(self, backups: ShardBackups, copies: ShardBackups, manifest: Manifest) -> None:
        present = copies.files()
        missing = {file.stored: file for file in manifest.files if present.get(file.stored) != file.size_bytes}
        count = ProgressCounter(no_progress, sum(file.size_bytes for file in missing.values()))

        def copy(file: BackupFile) -> None:
            with_retries(lambda: self.files.write(copies.file_path(file.stored), checked_chunks(backups, file, count)))

        read_in_parallel(missing.values(), copy)

    @staticmethod
    def _backups_in(store: FileStore, identity: ShardIdentity) -> ShardBackups:
        return ShardBackups(store, identity.processor, identity.bucket)

    @contextmanager
    def _locked(self, identity: ShardIdentity) -> Iterator[None]:
        """Hold the lock of a shard's copy in the block; wait for a process that copies meanwhile."""
        folder = shard_folder(self._root, identity)
        with translated_errors(folder):
            make_private_folder(folder.parent)
            lock = folder.with_suffix(".lock").open("w")
        with lock:
            while not _is_locked(lock.fileno()):
                time.sleep(LOCK_PAUSE_S)
            yield


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _link(copy: Path, target: Path) -> None:
    try:
        if target.suffix == IMMUTABLE:
            os.link(copy, target)
            return
        shutil.copyfile(copy, target)
        with target.open("rb") as copied:
            os.fsync(copied.fileno())
    except FileNotFoundError as error:
        raise BackupDamaged(f"{copy} is missing. The backup store is read instead.") from error


def _drop_others(copies: ShardBackups, kept: Manifest) -> None:
    """Delete the manifests of earlier backups, then the files that only they need."""
    needed = {file.stored for file in kept.files}
    for backup in copies.ids():
        if backup != kept.id:
            copies.store.delete(copies.manifest_path(backup))
    for stored in copies.files():
        if stored not in needed:
            copies.store.delete(copies.file_path(stored))
