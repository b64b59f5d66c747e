"""Message keys: their bytes on the bus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from ..errors import DeclarationError

_SIZES = {"INT32": 4, "INT64": 8}


class KeyCodec(Enum):
    """How the bytes of a message key represent a key, which is a str in Penstock."""

    TEXT = "text"
    """UTF-8. An int key is written in decimal digits."""
    INT32 = "int32"
    """Four bytes, big-endian and signed, as Kafka's `IntegerSerializer` writes them. The key is an int."""
    INT64 = "int64"
    """Eight bytes, big-endian and signed, as Kafka's `LongSerializer` writes them. The key is an int."""
    JSON = "json"
    """A JSON string in UTF-8, or a JSON number if the key field is an int; without spaces and unnecessary escapes."""
    BYTES = "bytes"
    """Any bytes. The key is their hexadecimal form, in lower case."""


class InvalidKey(DeclarationError):
    """A key or a message key does not fit the `key_codec` of its category."""


@dataclass(frozen=True)
class MessageKeys:
    """Converts the keys of one category to message keys and back: `decode(encode(key))` is the key.

    Args:
        category: the name of the category, for errors.
        codec: the declared codec.
        is_number: whether the key field is an int.
    """

    category: str
    codec: KeyCodec
    is_number: bool

    def encode(self, keys: Sequence[str]) -> list[bytes]:
        """Return the message key of each key.

        Raises:
            InvalidKey: a key has no message key.
        """
        if self.codec is not KeyCodec.TEXT:
            return [self._encoded(key) for key in keys]
        try:
            return [key.encode() for key in keys]
        except UnicodeEncodeError as error:
            raise self._invalid(f"the key {error.object!r}", error) from error

    def decode(self, message_key: bytes) -> str:
        """Return the key of a message key.

        Raises:
            InvalidKey: the bytes are no message key of this codec.
        """
        try:
            match self.codec:
                case KeyCodec.TEXT:
                    return message_key.decode()
                case KeyCodec.JSON:
                    return str(msgspec.json.decode(message_key, type=int if self.is_number else str))
                case KeyCodec.BYTES:
                    return message_key.hex()
                case KeyCodec.INT32 | KeyCodec.INT64:
                    return str(_decoded_int(message_key, _SIZES[self.codec.name]))
        except ValueError as error:
            raise self._invalid(f"the message key {message_key!r}", error) from error

    def _encoded(self, key: str) -> bytes:
        try:
            match self.codec:
                case KeyCodec.JSON:
                    return msgspec.json.encode(_canonical_int(key) if self.is_number else key)
                case KeyCodec.BYTES:
                    return _canonical_bytes(key)
                case _:
                    return _canonical_int(key).to_bytes(_SIZES[self.codec.name], "big", signed=True)
        except (ValueError, OverflowError) as error:
            raise self._invalid(f"the key {key!r}", error) from error

    def _invalid(self, key: str, error: Exception) -> InvalidKey:
        return InvalidKey(
            f"Category {self.category}: {key} does not fit its `key_codec`, KeyCodec.{self.codec.name}: {error}. The bucket of the key is unknown. "
            "Correct the `key` or the `key_codec` of the category, or its producer."
        )


def _canonical_int(key: str) -> int:
    number = int(key)
    if str(number) != key:
        raise ValueError(f"the canonical form of this int is {number}")
    return number


def _canonical_bytes(key: str) -> bytes:
    raw = bytes.fromhex(key)
    if raw.hex() != key:
        raise ValueError(f"the canonical form of these bytes is {raw.hex()}")
    return raw


def _decoded_int(message_key: bytes, size: int) -> int:
    if len(message_key) != size:
        raise ValueError(f"it has {len(message_key)} bytes instead of {size}")
    return int.from_bytes(message_key, "big", signed=True)
