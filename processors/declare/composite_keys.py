"""Keys of several fields: the JSON array of their values.

record --values of the key fields--> ("a", 3) --> key '["a",3]' --key codec--> message key
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

KeyValue = str | int
"""The value of a key field."""

_encode = msgspec.json.Encoder().encode


class KeyPart(NamedTuple):
    """A field of a key of several fields.

    Args:
        name: its name on the bus, also within message keys.
        is_number: whether it is an int; otherwise a str.
    """

    name: str
    is_number: bool


def composite_key(*values: KeyValue) -> str:
    """Return the key of a category whose `key` names several fields: the JSON array of their values in the declared order.

    Raises:
        TypeError: a value is neither str nor int.

    Examples:
        >>> composite_key("a", 3)
        '["a",3]'
    """
    given: tuple[object, ...] = values
    for value in given:
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise TypeError(f"The value {value!r} of a key is neither a str nor an int. Convert it, as in str(value).")
    return joined(values)


def joined(values: Sequence[KeyValue]) -> str:
    """Return the key of the values of its fields, without a check of their types."""
    return _encode(values).decode()


def content_of_key(key: str, parts: tuple[KeyPart, ...]) -> dict[str, KeyValue]:
    """Return the fields of a key by name.

    Raises:
        ValueError: the text is not the canonical form of a key with these fields.
    """
    try:
        values: Sequence[KeyValue] = _decoder(parts).decode(key)
    except ValueError as error:
        raise _not_canonical(parts) from error
    if joined(values) != key:
        raise _not_canonical(parts)
    return {part.name: value for part, value in zip(parts, values, strict=True)}


def key_of_content(content: object, parts: tuple[KeyPart, ...]) -> str:
    """Return the key of decoded fields.

    Raises:
        ValueError: it has other fields, or fields of other types.
    """
    if not isinstance(content, Mapping) or content.keys() != {part.name for part in parts}:
        raise ValueError(f"the key does not consist of the fields {names_of(parts)}")
    for part in parts:
        if type(content[part.name]) is not (int if part.is_number else str):
            raise ValueError(f"the field {part.name!r} of the key is not {_type_name(part)}")
    return joined([content[part.name] for part in parts])


def names_of(parts: Sequence[KeyPart]) -> str:
    """Return the names of fields for errors: `tenant, id`."""
    return ", ".join(part.name for part in parts)


@dataclass(frozen=True)
class CompositeTextKeys:
    """Message keys that are the key in UTF-8: `["a",3]`."""

    parts: tuple[KeyPart, ...]

    def encode(self, key: str) -> bytes:
        """Return the message key of a key."""
        content_of_key(key, self.parts)
        return key.encode()

    def decode(self, message_key: bytes) -> str:
        """Return the key of a message key."""
        key = message_key.decode()
        content_of_key(key, self.parts)
        return key


@dataclass(frozen=True)
class CompositeJsonKeys:
    """Message keys that are JSON objects with the fields in the declared order: `{"tenant":"a","id":3}`."""

    parts: tuple[KeyPart, ...]
    spaces: bool = False
    """Whether they are written as by Python's `json.dumps`: with spaces after commas and colons, and in ASCII."""

    def encode(self, key: str) -> bytes:
        """Return the message key of a key."""
        content = content_of_key(key, self.parts)
        return json.dumps(content).encode() if self.spaces else _encode(content)

    def decode(self, message_key: bytes) -> str:
        """Return the key of a message key; its fields may be in any order."""
        return key_of_content(msgspec.json.decode(message_key, type=dict[str, KeyValue]), self.parts)


def _not_canonical(parts: tuple[KeyPart, ...]) -> ValueError:
    types = ", ".join(f"{part.name} ({_type_name(part)})" for part in parts)
    example = joined([1 if part.is_number else "a" for part in parts])
    return ValueError(
        f"it is not the JSON array of the fields {types}, such as {example}, as penstock.composite_key returns it"
    )


def _type_name(part: KeyPart) -> str:
    return "an int" if part.is_number else "a str"


@lru_cache(maxsize=1_000)
def _decoder(parts: tuple[KeyPart, ...]) -> msgspec.json.Decoder[Any]:
    kinds: Any = tuple[tuple(int if part.is_number else str for part in parts)]  # type: ignore[misc]  # a dynamic type
    return msgspec.json.Decoder(kinds)
