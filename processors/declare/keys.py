"""Message keys: their bytes on the bus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Protocol, runtime_checkable

import msgspec

from ..errors import DeclarationError
from ..wording import counted
from .composite_keys import CompositeJsonKeys, CompositeTextKeys, KeyPart

_SIZES = {"INT32": 4, "INT64": 8}


class KeyCodec(Enum):
    """How the bytes of a message key represent a key, which is a str in Penstock."""

    TEXT = "text"
    """UTF-8. An int key is written in decimal digits, and a key of several fields as a JSON array of their values."""
    INT32 = "int32"
    """Four bytes, big-endian and signed, as Kafka's `IntegerSerializer` writes them. The key is an int."""
    INT64 = "int64"
    """Eight bytes, big-endian and signed, as Kafka's `LongSerializer` writes them. The key is an int."""
    JSON = "json"
    """A JSON string in UTF-8, a JSON number if the key field is an int, or a JSON object with the fields of a key of several; without spaces and
    unnecessary escapes."""
    BYTES = "bytes"
    """Any bytes. The key is their hexadecimal form, in lower case."""


class KeyConverter(Protocol):
    """Converts the keys of one category to message keys and back."""

    def encode(self, key: str) -> bytes:
        """Return the message key of a key.

        Raises:
            ValueError: the key has no message key.
        """
        ...

    def decode(self, message_key: bytes) -> str:
        """Return the key of a message key.

        Raises:
            ValueError: the bytes are no message key.
        """
        ...


@runtime_checkable
class KeyFormat(Protocol):
    """A format of message keys that needs another service, such as a schema registry: a frozen value, which equal declarations share."""

    def open_keys(self, category: str, *, is_number: bool) -> KeyConverter:
        """Return the converter of one category's keys. Does no I/O.

        Args:
            category: the name of the category.
            is_number: whether the key field is an int.

        Raises:
            DeclarationError: the format cannot represent the keys.
        """
        ...

    def open_composite_keys(self, category: str, parts: tuple[KeyPart, ...]) -> KeyConverter:
        """Return the converter of one category's keys of several fields. Does no I/O.

        Args:
            category: the name of the category.
            parts: the fields.

        Raises:
            DeclarationError: the format cannot represent the keys.
        """
        ...


@runtime_checkable
class NamedKeyFormat(KeyFormat, Protocol):
    """A format that names the fields of message keys itself. Categories with equal formats have equal message keys under any names of fields."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields in message keys."""
        ...


AnyKeyCodec = KeyCodec | KeyFormat


COMPOSITE_CODECS = (KeyCodec.TEXT, KeyCodec.JSON)
"""The key codecs without a registry that represent keys of several fields."""


def is_key_codec(codec: object) -> bool:
    """Return whether an object can be the key codec of a category; a class without arguments cannot."""
    return isinstance(codec, KeyCodec) or (isinstance(codec, KeyFormat) and not isinstance(codec, type))


class InvalidKey(DeclarationError):
    """A key or a message key does not fit the `key_codec` of its category."""


@dataclass(frozen=True)
class MessageKeys:
    """Converts the keys of one category to message keys and back: `decode(encode(key))` is the key.

    Args:
        category: the name of the category, for errors.
        codec: the declared codec.
        is_number: whether the key field is an int.
        parts: the fields of a key of several; empty for other keys.
    """

    category: str
    codec: AnyKeyCodec
    is_number: bool
    parts: tuple[KeyPart, ...] = ()

    @cached_property
    def converter(self) -> KeyConverter:
        """Converts single keys."""
        if self.parts:
            return self._composite_converter
        if isinstance(self.codec, KeyCodec):
            return _SimpleKeys(self.codec, self.is_number)
        return self.codec.open_keys(self.category, is_number=self.is_number)

    @property
    def _composite_converter(self) -> KeyConverter:
        if not isinstance(self.codec, KeyCodec):
            return self.codec.open_composite_keys(self.category, self.parts)
        return CompositeJsonKeys(self.parts) if self.codec is KeyCodec.JSON else CompositeTextKeys(self.parts)

    def encode(self, keys: Sequence[str]) -> list[bytes]:
        """Return the message key of each key.

        Raises:
            InvalidKey: a key has no message key.
        """
        if self.codec is not KeyCodec.TEXT or self.parts:
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
            return self.converter.decode(message_key)
        except ValueError as error:
            raise self._invalid(f"the message key {message_key!r}", error) from error

    def _encoded(self, key: str) -> bytes:
        try:
            return self.converter.encode(key)
        except (ValueError, OverflowError) as error:
            raise self._invalid(f"the key {key!r}", error) from error

    def _invalid(self, key: str, error: Exception) -> InvalidKey:
        return InvalidKey(
            f"Category {self.category}: {key} does not fit its `key_codec`, {_name(self.codec)}: {error}. The bucket of the key is unknown. "
            "Correct the `key` or the `key_codec` of the category, or its producer."
        )


@dataclass(frozen=True)
class _SimpleKeys:
    codec: KeyCodec
    is_number: bool

    def encode(self, key: str) -> bytes:
        match self.codec:
            case KeyCodec.TEXT:
                return key.encode()
            case KeyCodec.JSON:
                return msgspec.json.encode(canonical_int(key) if self.is_number else key)
            case KeyCodec.BYTES:
                return _canonical_bytes(key)
            case KeyCodec.INT32 | KeyCodec.INT64:
                return canonical_int(key).to_bytes(_SIZES[self.codec.name], "big", signed=True)

    def decode(self, message_key: bytes) -> str:
        match self.codec:
            case KeyCodec.TEXT:
                return message_key.decode()
            case KeyCodec.JSON:
                return str(msgspec.json.decode(message_key, type=int if self.is_number else str))
            case KeyCodec.BYTES:
                return message_key.hex()
            case KeyCodec.INT32 | KeyCodec.INT64:
                return str(_decoded_int(message_key, _SIZES[self.codec.name]))


def _name(codec: AnyKeyCodec) -> str:
    return f"KeyCodec.{codec.name}" if isinstance(codec, KeyCodec) else type(codec).__name__


def canonical_int(key: str) -> int:
    """Return the int of a key.

    Raises:
        ValueError: the key is not the canonical form of an int.
    """
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
        raise ValueError(f"it has {counted(len(message_key), 'byte')} instead of {size}")
    return int.from_bytes(message_key, "big", signed=True)
