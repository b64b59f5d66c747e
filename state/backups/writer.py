"""Writing a shard's backups: who claimed them last may, and stores what the place lacks.

claim -> save: the files that are not there yet, or not as they were saved, then the manifest -> prune: manifests that are too old, then files
claim -> store: the files -> publish: the manifest, by whoever decides that the backup counts

A kill between any two writes leaves the earlier backups whole, and at most files that no manifest names.
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

import msgspec

from ..files.local_files import CHUNK_BYTES
from ..local.rocksdb import explained
from ..protocols import Offsets, ShardIdentity
from .errors import BackupDamaged, BackupFenced
from .fetch import Count, no_progress, read_checked
from .manifest import FORMAT, Manifest, StoredFile
from .pruning import StoredFiles, prunable
from .shard import ShardBackups

_IMMUTABLE = ".sst"
_LOG = logging.getLogger("penstock.state")
CHECKED_BYTES = 256 * 2**20
"""How much of what a backup shares with earlier ones is read and compared with its checksum; of larger states, a part with each backup.
An owner reads each file that others have stored once before its first backup shares it, however large."""


class BackupWriter:
    """Writes a shard's backups, until somebody claims them anew: from then on it raises BackupFenced and writes nothing.

    It backs up one open database, in which a file of RocksDB's tables never changes: hashed once, stored once.
    Made by `claim`.
    """

    def __init__(
        self,
        backups: ShardBackups,
        identity: ShardIdentity,
        epoch: int,
        newest: Manifest | None,
        go_on: Callable[[], None],
        *,
        interval_s: float | None,
    ) -> None:
        self._backups = backups
        self._place = backups.place
        self._identity = identity
        self._epoch = epoch
        self._go_on = go_on
        self._interval_s = interval_s
        self._sequence = 0
        self._digests: dict[tuple[str, int], str] = {}
        self._checked: dict[str, int] = {}
        self._to_check_bytes = 0
        self._writing = threading.Lock()
        self.newest = newest
        """The newest readable backup, as it was at the claim or has been made since. Files are shared with no other: an owner
        who was paused while it pruned may still take away what only older ones need."""

    def expect_newest(self) -> None:
        """Raise BackupFenced where somebody else has claimed these backups since."""
        if self._backups.claims():
            expect_owner(self._backups, self._epoch)
        else:
            # Somebody emptied the place. Without the claim, the next owner would count from 1 and its backups seem older.
            self._place.create(self._backups.claim_path(self._epoch), _signature())

    def save(self, snapshot: Path, position: Offsets) -> Manifest:
        """Store a snapshot's files where the place lacks them, then its manifest. Return that.

        Args:
            snapshot: a folder that nobody writes to, of the one database that this owner backs up.
            position: what it reflects.

        Raises:
            BackupFenced: somebody else owns these backups.
            FileStoreUnreachable: there is no new backup, unless it was the answer to the last write that got lost.
        """
        with self._writing:
            manifest = self._stored_whole(snapshot, position)
            self._expect_wanted()
            self._place.write(self._backups.manifest_path(manifest.id), [manifest.encode()])
            self._digests = {(file.name, file.size_bytes): file.sha256 for file in manifest.files}
            self._checked = {
                file.stored: self._checked[file.stored] for file in manifest.files if file.stored in self._checked
            }
            self.newest = manifest
            return manifest

    def store(self, snapshot: Path, position: Offsets) -> Manifest:
        """Store a snapshot's files where the place lacks them. Return a manifest of what is no backup until somebody publishes it.

        Args and errors as for `save`.
        """
        with self._writing:
            return self._stored_whole(snapshot, position)

    def _stored_whole(self, snapshot: Path, position: Offsets) -> Manifest:
        time_ms = time.time_ns() // 1_000_000
        files = self._store(snapshot)
        # Counted before it is written: where that fails it may still come about, and no number is given twice.
        self._sequence += 1
        number = self._epoch, self._sequence
        return Manifest(FORMAT, self._identity, position, *number, time_ms, files, self._interval_s)

    def prune(self, keep: int) -> None:
        """Remove what the last `keep` good backups do not need; see `prunable`."""
        with self._writing:
            self._expect_wanted()
            manifests, names = list(self._backups.manifests()), self._backups.others()
            found = StoredFiles(self._backups.ids(), manifests, self._backups.files(), names, self._backups.claims())
            gone = prunable(found, self._epoch, keep)
            self._remove(map(self._backups.manifest_path, gone.manifests))
            self._remove(map(self._backups.file_path, gone.files))
            self._remove(map(self._backups.other_path, gone.others))
            self._remove(map(self._backups.claim_path, gone.claims))

    def _store(self, snapshot: Path) -> tuple[StoredFile, ...]:
        with explained(snapshot):
            paths = sorted(snapshot.iterdir())
        there = self._backups.files()
        storers = {file.sha256: file.epoch for file in self.newest.files} if self.newest else {}
        wanted = [(path, self._named(path, storers)) for path in paths]
        # Those that were checked longest ago come first, since no more than a limit is read again.
        wanted.sort(key=lambda it: self._checked.get(it[1].stored, 0))
        self._to_check_bytes = CHECKED_BYTES
        return tuple(sorted((self._stored(path, file, there) for path, file in wanted), key=lambda file: file.name))

    def _named(self, path: Path, storers: Mapping[str, int]) -> StoredFile:
        """Return a file as it would be shared with the backup before."""
        with explained(path):
            size_bytes = path.stat().st_size
        digest = self._digest_of(path, size_bytes)
        return StoredFile(path.name, size_bytes, digest, storers.get(digest, self._epoch))

    def _stored(self, path: Path, file: StoredFile, there: dict[str, int]) -> StoredFile:
        """Return a file as the manifest names it, stored for the backup before or now."""
        if self._is_sound(file, there):
            return file
        own = msgspec.structs.replace(file, epoch=self._epoch)
        if own == file or not self._is_sound(own, there):
            self._expect_wanted()
            self._place.write(self._backups.file_path(own.stored), self._chunks(path))
            there[own.stored] = own.size_bytes
            self._checked[own.stored] = self._sequence + 1
        return own

    def _is_sound(self, file: StoredFile, there: Mapping[str, int]) -> bool:
        """Tell whether a file is at the place as it was saved: by its size, and by its checksum where it is its turn to be read."""
        if there.get(file.stored) != file.size_bytes:
            return False
        known = file.stored in self._checked
        if known and self._to_check_bytes < file.size_bytes:
            return True
        self._to_check_bytes -= file.size_bytes if known else 0
        try:
            read_checked(self._backups, file, lambda _: self._go_on(), Count(no_progress, file.size_bytes))
        except BackupDamaged as error:
            _LOG.warning(
                "%s: %s at %s. Backups that share it are damaged; it is stored again, and the next backup is whole. See `penstock state verify`.",
                self._backups,
                error,
                self._place.location,
            )
            return False
        self._checked[file.stored] = self._sequence + 1
        return True

    def _digest_of(self, path: Path, size_bytes: int) -> str:
        known_by = path.name, size_bytes
        if path.suffix != _IMMUTABLE or known_by not in self._digests:
            digest = sha256()
            for chunk in self._chunks(path):
                digest.update(chunk)
            self._digests[known_by] = digest.hexdigest()
        return self._digests[known_by]

    def _chunks(self, path: Path) -> Iterator[bytes]:
        with explained(path), path.open("rb") as source:
            while chunk := source.read(CHUNK_BYTES):
                self._go_on()
                yield chunk

    def _expect_wanted(self) -> None:
        self._go_on()
        self.expect_newest()

    def _remove(self, paths: Iterator[str]) -> None:
        for path in paths:
            self._go_on()
            self._place.delete(path)


def claim(
    backups: ShardBackups,
    identity: ShardIdentity,
    go_on: Callable[[], None] = lambda: None,
    interval_s: float | None = None,
) -> BackupWriter:
    """Own a shard's backups from now on; whoever owned them writes nothing more.

    Args:
        backups: the shard's.
        identity: whose state is going to be saved.
        go_on: called between all steps; what it raises stops what is being done, and there is no backup of it.
        interval_s: how often it is going to be saved, for those who wonder whether a backup is late.
    """
    while True:
        # Manifests count too, should their owners' claims have been removed.
        epochs = [*backups.claims(), *(backup.epoch for backup in backups.ids())]
        epoch = max(epochs, default=0) + 1
        if backups.place.create(backups.claim_path(epoch), _signature()):
            return BackupWriter(backups, identity, epoch, backups.newest(), go_on, interval_s=interval_s)


def expect_owner(backups: ShardBackups, epoch: int) -> None:
    """Raise BackupFenced where somebody else has claimed a shard's backups since."""
    newest = max(backups.claims(), default=0)
    if newest != epoch:
        raise BackupFenced(
            f"{backups}: owner {epoch} no longer makes its backups at {backups.place.location}, owner {newest} does. This one writes "
            "nothing more there; no backup is lost."
        )


def publish(backups: ShardBackups, manifest: Manifest) -> None:
    """Let what was stored count, as the newest backup of a shard. May be repeated.

    Raises:
        BackupFenced: somebody else has claimed the shard's backups since, and may have removed its files; it does not count.
        FileStoreUnreachable: it does not count, unless it was the answer that got lost.
    """
    expect_owner(backups, manifest.epoch)
    backups.place.write(backups.manifest_path(manifest.id), [manifest.encode()])


def _signature() -> bytes:
    """Return who claims: nothing reads it but people who look for a worker that nobody knows of."""
    return msgspec.json.encode(
        {"host": socket.gethostname(), "pid": os.getpid(), "time_ms": time.time_ns() // 1_000_000}
    )
