"""Manifests: the identity, position and files of a backup, with a checksum.

Names below a shard's folder:

    owners/00000003.json            the claim of the third owner (epoch 3)
    files/<sha256>-00000003         the content of a file, stored by that owner
    00000003-00000017.json          the manifest of its seventeenth backup
    pins/<snapshot>                 the id of a backup that a snapshot of the whole app needs
"""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import msgspec

from ...processors.shard import StatePosition
from ..protocols import ShardIdentity
from .errors import BackupDamaged, BackupError
from .sealing import sealed, unsealed

FORMAT = 1
"""The version of the layout above and the manifest below; others are refused."""

_ID = re.compile(r"(\d{8})-(\d{8})")

# A restore creates files by these names, so they must not lead out of its folder.
_FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$")]
_Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


class BackupId(NamedTuple):
    """The id of a shard's backup; later backups have greater ids.

    Args:
        epoch: the owner that made it.
        sequence: the number among this owner's backups.
    """

    epoch: int
    sequence: int

    @staticmethod
    def parse(text: str) -> BackupId:
        """Parse the result of `str`.

        Raises:
            BackupError: the text is not an id.
        """
        match = _ID.fullmatch(text)
        if match is None:
            raise BackupError(
                f"{text!r} is not a backup id. Nothing was changed. Use an id from `penstock state verify`, such as {BackupId(3, 17)}."
            )
        return BackupId(int(match[1]), int(match[2]))

    @staticmethod
    def of_file(name: str) -> BackupId | None:
        """Return the id of the backup whose manifest has this name; None for other files."""
        match = _ID.fullmatch(name.removesuffix(".json")) if name.endswith(".json") else None
        return BackupId(int(match[1]), int(match[2])) if match else None

    def __str__(self) -> str:
        return f"{self.epoch:08d}-{self.sequence:08d}"


class BackupFile(msgspec.Struct, frozen=True):
    """A file of the database.

    Args:
        name: its RocksDB name.
        size_bytes: its size.
        sha256: the hash of its content, hexadecimal.
        epoch: the owner that stored it. An owner never deletes files of later owners, so a paused owner cannot delete files of later
            backups.
    """

    name: _FileName
    size_bytes: int
    sha256: _Digest
    epoch: int

    @property
    def stored(self) -> str:
        """Its name in the store."""
        return f"{self.sha256}-{self.epoch:08d}"


class Manifest(msgspec.Struct, frozen=True):
    """A backup of a shard.

    Args:
        format: the version of the manifest.
        identity: the shard.
        position: the position that the state reflects.
        epoch: the owner that made it.
        sequence: the number among this owner's backups.
        time_ms: the time of the state, in milliseconds since 1970, UTC.
        files: the files of the database.
        interval_s: the owner's backup interval in seconds; None if unknown.
    """

    format: int
    identity: ShardIdentity
    position: StatePosition
    epoch: int
    sequence: int
    time_ms: int
    files: tuple[BackupFile, ...]
    interval_s: float | None = None

    @property
    def id(self) -> BackupId:
        """Its id."""
        return BackupId(self.epoch, self.sequence)

    @property
    def size_bytes(self) -> int:
        """The size of the restored database."""
        return sum(file.size_bytes for file in self.files)

    def encode(self) -> bytes:
        """Return the stored form: the manifest with its checksum."""
        return sealed(msgspec.json.encode(self))

    @staticmethod
    def decode(content: bytes) -> Manifest:
        """Return the manifest from its stored form.

        Raises:
            BackupDamaged: it is incomplete, changed, or of another format; a short message.
        """
        body = unsealed(content)
        try:
            written = _versioned(body).format
            if written != FORMAT:
                raise BackupDamaged(f"it has format {written}, but this Penstock reads format {FORMAT}")
            return _manifest(body)
        except msgspec.MsgspecError as error:
            raise BackupDamaged(f"it is incomplete ({error})") from error


class _Versioned(msgspec.Struct, frozen=True):
    format: int


# Created at import: msgspec (0.22) cannot analyse a type in two threads at once, and several threads open shards.
_versioned = msgspec.json.Decoder(_Versioned).decode
_manifest = msgspec.json.Decoder(Manifest).decode
