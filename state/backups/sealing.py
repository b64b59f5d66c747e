"""JSON documents with their checksum, so that a damaged one is noticed."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from .errors import BackupDamaged


class _Sealed(msgspec.Struct, frozen=True):
    checksum: str
    manifest: msgspec.Raw


# Created at import: msgspec (0.22) cannot analyse a type in two threads at once, and several threads open shards.
_sealed = msgspec.json.Decoder(_Sealed).decode


def sealed(body: bytes) -> bytes:
    """Return a JSON document with its checksum."""
    return msgspec.json.encode(_Sealed(sha256(body).hexdigest(), msgspec.Raw(body)))


def unsealed(content: bytes) -> bytes:
    """Return the document from the result of `sealed`.

    Raises:
        BackupDamaged: it is incomplete or changed; a short message.
    """
    try:
        found = _sealed(content)
    except msgspec.MsgspecError as error:
        raise BackupDamaged(f"it is incomplete ({error})") from error
    body = bytes(found.manifest)
    if sha256(body).hexdigest() != found.checksum:
        raise BackupDamaged("its checksum does not match")
    return body
