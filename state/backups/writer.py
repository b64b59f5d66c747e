"""The writer of a shard's backups. The latest owner writes, and stores only new files.

claim -> save: missing and damaged files, then the manifest -> prune: old manifests, then their files
claim -> store: the files -> publish: the manifest, once another process decides that the backup counts

A kill between two writes leaves earlier backups intact, and at most unreferenced files.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import msgspec

from ...processors.shard import StatePosition
from ..files import CHUNK_BYTES
from ..local import translated_errors
from ..protocols import ShardIdentity
from .errors import BackupDamaged, BackupError, BackupFenced
from .fetching import ProgressCounter, checked_chunks, no_progress
from .manifest import FORMAT, BackupFile, BackupId, Manifest
from .pruning import StoredFiles, prunable
from .retention import Retention
from .shard import ShardBackups, damages_of

IMMUTABLE = ".sst"
"""The suffix of table files, which RocksDB never changes."""
_LOG = logging.getLogger("penstock.state")
CHECKED_BYTES = 256 * 2**20
"""The bytes of shared files that each backup reads and verifies. Larger states are verified in parts, one part with each backup.
A new owner verifies every file of former owners once before its first backup shares it."""


class BackupWriter:
    """Writes a shard's backups until another owner claims them. Then it raises BackupFenced and writes nothing. Made by `claim`.

    It backs up one open database. RocksDB never changes a table file, so each one is hashed and stored once.
    """

    def __init__(
        self,
        backups: ShardBackups,
        identity: ShardIdentity,
        epoch: int,
        signature: bytes,
        newest: Manifest | None,
        *,
        check_canceled: Callable[[], None],
        interval_s: float | None,
    ) -> None:
        self._backups = backups
        self._store = backups.store
        self._identity = identity
        self._epoch = epoch
        self._signature = signature
        self._check_canceled = check_canceled
        self._interval_s = interval_s
        self._sequence = 0
        self._digests: dict[tuple[str, int], str] = {}
        self._checked: dict[str, int] = {}
        self._to_check_bytes = 0
        self._older: dict[BackupId, Manifest] = {}
        """The manifests of retained backups that are not among the newest. They never change, so they are read once."""
        self._writing = threading.Lock()
        self.newest = newest
        """The newest readable backup at the claim, or made since. Files are shared with this backup only: an owner that was paused during its
        pruning may still delete files that only older backups need."""

    def expect_ownership(self) -> None:
        """Raise BackupFenced if another owner has claimed these backups, also by the same number after the store has lost this owner's claim."""
        newest = max(self._backups.claims(), default=0)
        if newest < self._epoch:
            # The store was emptied, or put back to an older copy. Without this claim, the next owner's backups would seem older.
            if not self._store.create(self._backups.claim_path(self._epoch), self._signature):
                raise _fenced(self._backups, self._epoch, self._epoch)
            _LOG.warning(
                "%s: the newest claim at %s was %d, before the claim %d of this worker: the store was emptied, or put back to an older copy. This worker "
                "has claimed the backups again; its next backup contains what the store lacks.",
                self._backups,
                self._store.location,
                newest,
                self._epoch,
            )
        elif newest > self._epoch or self._backups.claim_of(newest) != self._signature:
            raise _fenced(self._backups, newest, self._epoch)

    def save(self, snapshot: Path, position: StatePosition) -> Manifest:
        """Store the new files of a snapshot, then its manifest, and return it.

        Args:
            snapshot: a read-only folder, of the one database that this owner backs up.
            position: the position that it reflects.

        Raises:
            BackupFenced: another owner has claimed these backups.
            FileStoreUnreachable: there is no new backup, unless only the answer to the last write was lost.
        """
        with self._writing:
            manifest = self._stored_whole(snapshot, position)
            self._check_ownership()
            self._store.write(self._backups.manifest_path(manifest.id), [manifest.encode()])
            self._digests = {(file.name, file.size_bytes): file.sha256 for file in manifest.files}
            self._checked = {
                file.stored: self._checked[file.stored] for file in manifest.files if file.stored in self._checked
            }
            self.newest = manifest
            return manifest

    def store(self, snapshot: Path, position: StatePosition) -> Manifest:
        """Store the new files of a snapshot. Return its manifest, which becomes a backup by `publish`.

        Arguments and errors are those of `save`.
        """
        with self._writing:
            return self._stored_whole(snapshot, position)

    def _stored_whole(self, snapshot: Path, position: StatePosition) -> Manifest:
        time_ms = time.time_ns() // 1_000_000
        files = self._store_files(snapshot)
        # Counted before the write: a failed write may still take effect, and no id may be used twice.
        self._sequence += 1
        number = self._epoch, self._sequence
        return Manifest(FORMAT, self._identity, position, *number, time_ms, files, self._interval_s)

    def prune(self, retention: Retention) -> None:
        """Delete what the retained intact backups do not need; see `prunable`."""
        with self._writing:
            self._check_ownership()
            manifests, names = list(self._backups.manifests(self._older)), self._backups.others()
            claims, pinned = self._backups.claims(), set(self._backups.pins().values())
            found = StoredFiles(self._backups.ids(), manifests, self._backups.files(), names, claims, pinned)
            prunable_files = prunable(found, self._epoch, retention)
            removed = set(prunable_files.manifests)
            older = [manifest for manifest in manifests if manifest.id not in removed][retention.newest :]
            self._older = {manifest.id: manifest for manifest in older}
            self._remove(map(self._backups.manifest_path, prunable_files.manifests))
            self._remove(map(self._backups.file_path, prunable_files.files))
            self._remove(map(self._backups.other_path, prunable_files.others))
            self._remove(map(self._backups.claim_path, prunable_files.claims))

    def _store_files(self, snapshot: Path) -> tuple[BackupFile, ...]:
        with translated_errors(snapshot):
            paths = sorted(snapshot.iterdir())
        stored = self._backups.files()
        storers = {file.sha256: file.epoch for file in self.newest.files} if self.newest else {}
        wanted = [(path, self._named(path, storers)) for path in paths]
        # Least recently verified files first, since each backup verifies a limited part.
        wanted.sort(key=lambda pair: self._checked.get(pair[1].stored, 0))
        self._to_check_bytes = CHECKED_BYTES
        return tuple(sorted((self._stored(path, file, stored) for path, file in wanted), key=lambda file: file.name))

    def _named(self, path: Path, storers: Mapping[str, int]) -> BackupFile:
        """Return a file as shared with the previous backup."""
        with translated_errors(path):
            size_bytes = path.stat().st_size
        digest = self._digest_of(path, size_bytes)
        return BackupFile(path.name, size_bytes, digest, storers.get(digest, self._epoch))

    def _stored(self, path: Path, file: BackupFile, stored: dict[str, int]) -> BackupFile:
        """Store a file unless it is stored intact. Return its entry in the manifest."""
        if self._is_sound(file, stored):
            return file
        own = msgspec.structs.replace(file, epoch=self._epoch)
        if own == file or not self._is_sound(own, stored):
            self._check_ownership()
            self._store.write(self._backups.file_path(own.stored), self._chunks(path))
            stored[own.stored] = own.size_bytes
            self._checked[own.stored] = self._sequence + 1
        return own

    def _is_sound(self, file: BackupFile, stored: Mapping[str, int]) -> bool:
        """Return whether a file is stored intact: by its size, and by its checksum when its turn comes."""
        if stored.get(file.stored) != file.size_bytes:
            return False
        was_checked = file.stored in self._checked
        if was_checked and self._to_check_bytes < file.size_bytes:
            return True
        self._to_check_bytes -= file.size_bytes if was_checked else 0
        try:
            for _ in checked_chunks(self._backups, file, ProgressCounter(no_progress, file.size_bytes)):
                self._check_canceled()
        except BackupDamaged as error:
            _LOG.warning(
                "%s: %s at %s. Backups that share it are damaged. It is stored again, and the next backup is intact. See `penstock state verify`.",
                self._backups,
                error,
                self._store.location,
            )
            return False
        self._checked[file.stored] = self._sequence + 1
        return True

    def _digest_of(self, path: Path, size_bytes: int) -> str:
        key = path.name, size_bytes
        if path.suffix != IMMUTABLE or key not in self._digests:
            digest = sha256()
            for chunk in self._chunks(path):
                digest.update(chunk)
            self._digests[key] = digest.hexdigest()
        return self._digests[key]

    def _chunks(self, path: Path) -> Iterator[bytes]:
        with translated_errors(path), path.open("rb") as source:
            while chunk := source.read(CHUNK_BYTES):
                self._check_canceled()
                yield chunk

    def _check_ownership(self) -> None:
        self._check_canceled()
        self.expect_ownership()

    def _remove(self, paths: Iterator[str]) -> None:
        for path in paths:
            self._check_canceled()
            self._store.delete(path)


def claim(
    backups: ShardBackups,
    identity: ShardIdentity,
    check_canceled: Callable[[], None] = lambda: None,
    interval_s: float | None = None,
) -> BackupWriter:
    """Become the owner of a shard's backups. Former owners write nothing more.

    Args:
        backups: the shard's.
        identity: the shard.
        check_canceled: called between all steps; raises to cancel the backup in progress.
        interval_s: the backup interval, which manifests record to detect late backups.
    """
    while True:
        # Manifests count, too, in case claims were deleted.
        epochs = [*backups.claims(), *(backup.epoch for backup in backups.ids())]
        epoch, signature = max(epochs, default=0) + 1, _signature()
        if backups.store.create(backups.claim_path(epoch), signature):
            newest = backups.newest()
            return BackupWriter(
                backups, identity, epoch, signature, newest, check_canceled=check_canceled, interval_s=interval_s
            )


def _fenced(backups: ShardBackups, newest: int, epoch: int) -> BackupFenced:
    former = f"owner {epoch}" if newest != epoch else f"the owner {epoch} whose claim the store has lost"
    return BackupFenced(
        f"{backups}: owner {newest} now makes the backups at {backups.store.location}, not {former}. This worker writes no more "
        "backups of the shard unless it claims them again. No backup is lost."
    )


def expect_owner(backups: ShardBackups, epoch: int) -> None:
    """Raise BackupFenced if another owner has claimed a shard's backups, or BackupError if the store is older than the claim."""
    newest = max(backups.claims(), default=0)
    if newest > epoch:
        raise _fenced(backups, newest, epoch)
    if newest < epoch:
        raise BackupError(
            f"{backups}: the newest claim at {backups.store.location} is {newest}, before this one, {epoch}: the store was emptied, or put back to an older "
            "copy. The backup does not count. Make it again."
        )


def publish(backups: ShardBackups, manifest: Manifest) -> None:
    """Make stored files the newest backup of a shard. May be repeated.

    Raises:
        BackupFenced: another owner has claimed the backups, and may have deleted the files; the backup does not count.
        BackupError: the store is older than the claim, or lacks files; the backup does not count.
        FileStoreUnreachable: the backup does not count, unless only the answer was lost.
    """
    expect_owner(backups, manifest.epoch)
    if damages := damages_of(manifest, backups.files()):
        raise BackupError(
            f"{backups}: the store at {backups.store.location} was emptied, or put back to an older copy, before the backup was complete: "
            f"{'; '.join(damages)}. The backup does not count. Make it again."
        )
    backups.store.write(backups.manifest_path(manifest.id), [manifest.encode()])


def _signature() -> bytes:
    """Return the content of a new claim, which no other claim equals. It also helps people to find an unknown worker."""
    return msgspec.json.encode(
        {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "time_ms": time.time_ns() // 1_000_000,
            "nonce": uuid4().hex,
        }
    )
