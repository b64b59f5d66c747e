"""The backups of one shard at one place, as anybody may read them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ..errors import FileMissing
from ..files.file_store import FileStore
from ..protocols import Offsets, ShardIdentity
from .errors import BackupDamaged
from .manifest import BackupId, Manifest, StoredFile

_LOG = logging.getLogger("penstock.state")


class ShardBackups:
    """What is kept of one shard. Holds nothing: every call looks at the place, and raises FileStoreUnreachable where it cannot.

    Args:
        place: where it is kept.
        processor: the processor's name.
        bucket: the bucket number.
    """

    def __init__(self, place: FileStore, processor: str, bucket: int) -> None:
        self.place = place
        self._folder = f"{processor}/{bucket:05d}"
        self._name = f"{processor}, bucket {bucket}"

    def __str__(self) -> str:
        return self._name

    def ids(self) -> list[BackupId]:
        """Return the backups whose manifests are there, newest first; they may be unreadable."""
        found = map(BackupId.of_file, self.place.list_folder(self._folder))
        return sorted((id_ for id_ in found if id_ is not None), reverse=True)

    def read(self, backup: BackupId) -> Manifest:
        """Return a backup's manifest.

        Raises:
            BackupDamaged: it is not there, or not what was written.
        """
        try:
            return Manifest.decode(b"".join(self.place.read(self.manifest_path(backup))))
        except (BackupDamaged, FileMissing) as error:
            raise BackupDamaged(
                f"Backup {backup} of {self} at {self.place.location} is damaged: its manifest cannot be read: "
                f"{str(error).rstrip('.')}. It is not used."
            ) from error

    def manifests(self) -> Iterator[Manifest]:
        """Give the manifests, newest first; those that cannot be read are left out, with a warning."""
        for backup in self.ids():
            try:
                yield self.read(backup)
            except BackupDamaged as error:
                _LOG.warning("%s", error)

    def newest(self) -> Manifest | None:
        """Return the newest readable manifest; its files are not looked at."""
        return next(self.manifests(), None)

    def files(self) -> dict[str, int]:
        """Return the sizes in bytes of the files that backups share, by the name they are stored under."""
        found = self.place.list_folder(f"{self._folder}/files")
        return {name: size for name, size in found.items() if size is not None}

    def claims(self) -> list[int]:
        """Return the epochs of all who ever claimed to own the shard's backups."""
        found = self.place.list_folder(f"{self._folder}/owners")
        return [int(name.removesuffix(".json")) for name in found if name[0].isdigit()]

    def others(self) -> list[str]:
        """Return the names of files beside the manifests, such as one in the making, or left so by a kill."""
        return [name for name in self.place.list_folder(self._folder) if BackupId.of_file(name) is None]

    def manifest_path(self, backup: BackupId) -> str:
        """Return where a manifest is."""
        return f"{self._folder}/{backup}.json"

    def file_path(self, stored: str) -> str:
        """Return where a file is."""
        return f"{self._folder}/files/{stored}"

    def other_path(self, name: str) -> str:
        """Return where a file beside the manifests is."""
        return f"{self._folder}/{name}"

    def claim_path(self, epoch: int) -> str:
        """Return where a claim is."""
        return f"{self._folder}/owners/{epoch:08d}.json"


def damages_of(manifest: Manifest, stored: dict[str, int]) -> list[str]:
    """Return what is wrong with a backup's files as far as their sizes tell; nothing where it is good."""
    return [damage for file in manifest.files if (damage := _damage_of(file, stored.get(file.stored)))]


def _damage_of(file: StoredFile, size_bytes: int | None) -> str | None:
    if size_bytes is None:
        return f"files/{file.stored} ({file.name}) is missing"
    if size_bytes != file.size_bytes:
        return f"files/{file.stored} ({file.name}) has {size_bytes:,} of {file.size_bytes:,} bytes"
    return None


def newest_position(place: FileStore, identity: ShardIdentity) -> Offsets | None:
    """Return the position of a shard's newest readable backup; None where there is none. Downloads no state."""
    newest = ShardBackups(place, identity.processor, identity.bucket).newest()
    return None if newest is None else newest.position
