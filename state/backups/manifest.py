"""What a backup says of itself: whose state it is, up to where, in which files; and a checksum over all that.

Names below a shard's folder:

    owners/00000003.json            the claim of the third owner (epoch 3)
    files/<sha256>-00000003         a file's content, stored by that owner
    00000003-00000017.json          the manifest of its seventeenth backup
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Annotated, NamedTuple

import msgspec

from ..protocols import Offsets, ShardIdentity
from .errors import BackupDamaged, BackupError

FORMAT = 1
"""The version of the layout above and the manifest below; another one is refused."""

_ID = re.compile(r"(\d{8})-(\d{8})")

# A manifest names the files that a restore writes: no name may lead out of its folder.
_FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$")]
_Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


class BackupId(NamedTuple):
    """Which backup of a shard; later ones are greater.

    Args:
        epoch: the owner that made it.
        sequence: which of its backups.
    """

    epoch: int
    sequence: int

    @staticmethod
    def parse(text: str) -> BackupId:
        """Read what `str` gave.

        Raises:
            BackupError: it is something else.
        """
        match = _ID.fullmatch(text)
        if match is None:
            raise BackupError(
                f"{text!r} is no backup: give one as `penstock state verify` lists them, such as {BackupId(3, 17)}."
            )
        return BackupId(int(match[1]), int(match[2]))

    @staticmethod
    def of_file(name: str) -> BackupId | None:
        """Return whose manifest a file is; None for a file that is none."""
        match = _ID.fullmatch(name.removesuffix(".json")) if name.endswith(".json") else None
        return BackupId(int(match[1]), int(match[2])) if match else None

    def __str__(self) -> str:
        return f"{self.epoch:08d}-{self.sequence:08d}"


class StoredFile(msgspec.Struct, frozen=True):
    """A file of the database.

    Args:
        name: what RocksDB calls it.
        size_bytes: its size.
        sha256: of its content, in hexadecimal digits.
        epoch: the owner that stored it. Owners remove no files of later ones, so one that was paused cannot take away
            what a later backup needs.
    """

    name: _FileName
    size_bytes: int
    sha256: _Digest
    epoch: int

    @property
    def stored(self) -> str:
        """What it is called where it is kept."""
        return f"{self.sha256}-{self.epoch:08d}"


class Manifest(msgspec.Struct, frozen=True):
    """One backup of a shard.

    Args:
        format: the version of all this.
        identity: whose state it is.
        position: what the state reflects.
        epoch: the owner that made it.
        sequence: which of its backups.
        time_ms: when the state was as it is here, in milliseconds since 1970, UTC.
        files: what the database is made of.
        interval_s: how often its owner makes one, in seconds; None where that is not known.
    """

    format: int
    identity: ShardIdentity
    position: Offsets
    epoch: int
    sequence: int
    time_ms: int
    files: tuple[StoredFile, ...]
    # Manifests of the same format may lack it, and whoever does not know it leaves it out.
    interval_s: float | None = None

    @property
    def id(self) -> BackupId:
        """Which backup it is."""
        return BackupId(self.epoch, self.sequence)

    @property
    def size_bytes(self) -> int:
        """How large the restored database is."""
        return sum(file.size_bytes for file in self.files)

    def encode(self) -> bytes:
        """Return what is stored: the manifest, under its checksum."""
        body = msgspec.json.encode(self)
        return msgspec.json.encode(_Sealed(sha256(body).hexdigest(), msgspec.Raw(body)))

    @staticmethod
    def decode(content: bytes) -> Manifest:
        """Return what was encoded.

        Raises:
            BackupDamaged: it is not whole, or was changed, or is of another format; in a few words.
        """
        try:
            sealed = _sealed(content)
            body = bytes(sealed.manifest)
            if sha256(body).hexdigest() != sealed.checksum:
                raise BackupDamaged("its checksum does not fit")
            written = _versioned(body).format
            if written != FORMAT:
                raise BackupDamaged(f"it is in format {written}, and this Penstock reads format {FORMAT}")
            return _manifest(body)
        except msgspec.MsgspecError as error:
            raise BackupDamaged(f"it is not whole ({error})") from error


class _Sealed(msgspec.Struct, frozen=True):
    checksum: str
    manifest: msgspec.Raw


class _Versioned(msgspec.Struct, frozen=True):
    format: int


# Made here, by the thread that imports: what msgspec learns of a type at its first use (0.22), it cannot learn in two
# threads at once, and shards are opened by several.
_sealed = msgspec.json.Decoder(_Sealed).decode
_versioned = msgspec.json.Decoder(_Versioned).decode
_manifest = msgspec.json.Decoder(Manifest).decode
