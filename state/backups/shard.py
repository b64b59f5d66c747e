"""The stored backups of one shard."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from ...processors import counted
from ...processors.shard import StatePosition
from ..errors import FileMissing
from ..files import FileStore
from ..protocols import ShardIdentity
from .errors import BackupDamaged, BackupError
from .manifest import BackupFile, BackupId, Manifest

_LOG = logging.getLogger("penstock.state")


class ShardBackups:
    """Reads the backups of one shard. Nothing is cached: each call lists the store, and raises FileStoreUnreachable if it cannot.

    Args:
        store: the backup store.
        processor: the processor's name.
        bucket: the bucket number.
    """

    def __init__(self, store: FileStore, processor: str, bucket: int) -> None:
        self.store = store
        self._folder = f"{processor}/{bucket:05d}"
        self._name = f"{processor}, bucket {bucket}"

    def __str__(self) -> str:
        return self._name

    def ids(self) -> list[BackupId]:
        """Return the ids of the stored manifests, newest first; they may be unreadable."""
        found = map(BackupId.of_file, self.store.list_folder(self._folder))
        return sorted((id_ for id_ in found if id_ is not None), reverse=True)

    def read(self, backup: BackupId) -> Manifest:
        """Return a backup's manifest.

        Raises:
            BackupDamaged: it is missing or changed.
        """
        try:
            return Manifest.decode(b"".join(self.store.read(self.manifest_path(backup))))
        except (BackupDamaged, FileMissing) as error:
            raise BackupDamaged(
                f"Backup {backup} of {self} at {self.store.location} is damaged: its manifest cannot be read: "
                f"{str(error).rstrip('.')}. It is skipped."
            ) from error

    def manifests(self, known: Mapping[BackupId, Manifest] | None = None) -> Iterator[Manifest]:
        """Yield the manifests, newest first; log and skip unreadable ones. Known ones are not read again."""
        for backup in self.ids():
            try:
                yield (known or {}).get(backup) or self.read(backup)
            except BackupDamaged as error:
                _LOG.warning("%s", error)

    def newest(self) -> Manifest | None:
        """Return the newest readable manifest; its files are not checked."""
        return next(self.manifests(), None)

    def files(self) -> dict[str, int]:
        """Return the sizes in bytes of the shared files by stored name."""
        found = self.store.list_folder(f"{self._folder}/files")
        return {name: size for name, size in found.items() if size is not None}

    def claims(self) -> list[int]:
        """Return the epochs of all owners so far."""
        found = self.store.list_folder(f"{self._folder}/owners")
        return [int(name.removesuffix(".json")) for name in found if name[0].isdigit()]

    def claim_of(self, epoch: int) -> bytes | None:
        """Return the content of an owner's claim; None if it was deleted."""
        try:
            return b"".join(self.store.read(self.claim_path(epoch)))
        except FileMissing:
            return None

    def pins(self) -> dict[str, BackupId]:
        """Return the backups that are kept until they are unpinned, by the name of the snapshot that needs them.

        Raises:
            BackupDamaged: a pin cannot be read.
        """
        found = {name: self._pinned(name) for name in self.pin_names()}
        return {name: backup for name, backup in found.items() if backup is not None}

    def pin_names(self) -> list[str]:
        """Return the names of the snapshots that need backups of the shard."""
        found = self.store.list_folder(f"{self._folder}/pins").items()
        return [name for name, size in found if size is not None and not name.startswith(".")]

    def _pinned(self, name: str) -> BackupId | None:
        """Return a pinned backup; None if it was unpinned meanwhile."""
        try:
            return BackupId.parse(b"".join(self.store.read(self._pin_path(name))).decode(errors="replace"))
        except FileMissing:
            return None
        except BackupError as error:
            raise BackupDamaged(
                f"Pin {name} of {self} at {self.store.location} cannot be read: {error} No backup is deleted until it is repaired or deleted."
            ) from error

    def pin(self, name: str, backup: BackupId) -> None:
        """Keep a backup until `unpin`."""
        self.store.write(self._pin_path(name), [str(backup).encode()])

    def unpin(self, name: str) -> None:
        """Let the next pruning delete a backup, unless it is one of the newest. May be repeated."""
        self.store.delete(self._pin_path(name))

    def _pin_path(self, name: str) -> str:
        return f"{self._folder}/pins/{name}"

    def others(self) -> list[str]:
        """Return the names of other files beside the manifests, such as unfinished ones."""
        return [name for name in self.store.list_folder(self._folder) if BackupId.of_file(name) is None]

    def manifest_path(self, backup: BackupId) -> str:
        """Return the path of a manifest."""
        return f"{self._folder}/{backup}.json"

    def file_path(self, stored: str) -> str:
        """Return the path of a file."""
        return f"{self._folder}/files/{stored}"

    def other_path(self, name: str) -> str:
        """Return the path of another file beside the manifests."""
        return f"{self._folder}/{name}"

    def claim_path(self, epoch: int) -> str:
        """Return the path of a claim."""
        return f"{self._folder}/owners/{epoch:08d}.json"


def damages_of(manifest: Manifest, stored: dict[str, int]) -> list[str]:
    """Return the missing and truncated files of a backup; none if it is intact."""
    return [damage for file in manifest.files if (damage := _damage_of(file, stored.get(file.stored)))]


def _damage_of(file: BackupFile, size_bytes: int | None) -> str | None:
    if size_bytes is None:
        return f"files/{file.stored} ({file.name}) is missing"
    if size_bytes != file.size_bytes:
        return f"files/{file.stored} ({file.name}) has {size_bytes:,} of {counted(file.size_bytes, 'byte')}"
    return None


def newest_position(store: FileStore, identity: ShardIdentity) -> StatePosition | None:
    """Return the position of a shard's newest readable backup; None without one. Downloads no state."""
    newest = ShardBackups(store, identity.processor, identity.bucket).newest()
    return None if newest is None else newest.position
