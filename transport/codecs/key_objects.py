"""Message keys that are JSON objects: with names of their own, or with their schema, as Kafka Connect writes them.

KeyFields      {"tenant_id":"a","no":3}
ConnectKeys    {"schema":{…},"payload":{"id":7}}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from ...processors import DeclarationError, counted
from ...processors.declare import (
    CompositeJsonKeys,
    KeyCodec,
    KeyConverter,
    KeyFormat,
    KeyPart,
    canonical_int,
    content_of_key,
    joined,
)

_CONNECT_TYPES = {"string": False, "int8": True, "int16": True, "int32": True, "int64": True}
"""The types of Kafka Connect that a key may have, and whether they are numbers."""


@dataclass(frozen=True)
class KeyFields:
    """Keys whose fields have other names in the message key than in the record, or that are JSON objects with one field, such as `{"id":7}`.

    Args:
        names: the names in the message key, in the order of the category's `key`.
        codec: the format of the keys: `KeyCodec.JSON`, or a codec of a schema registry for keys of several fields.
        spaces: whether JSON is written as by Python's `json.dumps`: with spaces after commas and colons, and in ASCII.
    """

    names: tuple[str, ...]
    codec: KeyCodec | KeyFormat = KeyCodec.JSON
    spaces: bool = False

    def __post_init__(self) -> None:
        names: object = self.names
        if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
            raise DeclarationError(
                f'KeyFields({names!r}): the names are no tuple of str. Declare such as KeyFields(("tenant_id", "no")); for one field KeyFields(("id",)).'
            )
        is_format = isinstance(self.codec, KeyFormat) and not isinstance(self.codec, type)
        if self.codec is not KeyCodec.JSON and not is_format:
            raise DeclarationError(
                f"KeyFields: codec={self.codec!r} has no names of fields. Declare penstock.KeyCodec.JSON, or a codec of a schema registry."
            )
        if self.spaces and self.codec is not KeyCodec.JSON:
            raise DeclarationError(
                "KeyFields: `spaces=True` is for JSON without a schema registry. Declare only one of `codec` and `spaces`."
            )

    def open_keys(self, category: str, *, is_number: bool) -> KeyConverter:
        """Return the converter of the keys of a category, which have one field."""
        self._expect(category, 1)
        if self.codec is not KeyCodec.JSON:
            raise DeclarationError(
                f"Category {category}: the codecs of a schema registry read keys of one field under any name. Declare `key_codec={type(self.codec).__name__}(…)` "
                "without KeyFields."
            )
        return _OneField(CompositeJsonKeys((KeyPart(self.names[0], is_number),), self.spaces), is_number)

    def open_composite_keys(self, category: str, parts: tuple[KeyPart, ...]) -> KeyConverter:
        """Return the converter of the keys of a category, which have several fields."""
        self._expect(category, len(parts))
        named = tuple(part._replace(name=name) for name, part in zip(self.names, parts, strict=True))
        return (
            CompositeJsonKeys(named, self.spaces)
            if isinstance(self.codec, KeyCodec)
            else self.codec.open_composite_keys(category, named)
        )

    def _expect(self, category: str, fields: int) -> None:
        if len(self.names) != fields:
            raise DeclarationError(
                f"Category {category}: KeyFields names {counted(len(self.names), 'field')} ({', '.join(self.names)}), and `key` {fields}. Declare as many names "
                "as fields, in the same order."
            )


@dataclass(frozen=True)
class ConnectKeys:
    """Keys that contain their schema, as Kafka Connect writes them with `key.converter.schemas.enable=true`: `{"schema":…,"payload":…}`.

    The schema is a part of the message key, so it determines the bucket. `penstock category infer` prints it.

    Args:
        schema: the JSON text of `schema`, exactly as in the message keys: a struct of texts and ints, in the order of `payload`; or one of them.
    """

    schema: str

    def __post_init__(self) -> None:
        try:
            self.parts  # noqa: B018 - raises for another text
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise DeclarationError(
                f"ConnectKeys: the schema {self.schema[:80]!r} is no schema of Kafka Connect: {type(error).__name__}: {error}. Copy the text of `schema` from a "
                "message key, or run `penstock category infer`."
            ) from error

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields; one empty name if the key is no struct."""
        return tuple(part.name for part in self.parts)

    @cached_property
    def parts(self) -> tuple[KeyPart, ...]:
        """The fields."""
        schema: Any = msgspec.json.decode(self.schema)
        fields = schema["fields"] if schema["type"] == "struct" else [{"field": "", "type": schema["type"]}]
        wrong = next((field["type"] for field in fields if field["type"] not in _CONNECT_TYPES), None)
        if wrong is not None or not fields:
            raise DeclarationError(
                f"ConnectKeys: the schema has a field of type {wrong!r}, which cannot be a part of a key. Declare `partitioner=None` and a field of the "
                "value as `key`, and copy the events to another category with a penstock.Repartition."
            )
        return tuple(KeyPart(field["field"], _CONNECT_TYPES[field["type"]]) for field in fields)

    def open_keys(self, category: str, *, is_number: bool) -> KeyConverter:
        """Return the converter of the keys of a category, which have one field."""
        self._expect(category, [KeyPart("", is_number)])
        [part] = self.parts
        return _WithSchema(
            self.schema, _OneField(CompositeJsonKeys(self.parts), is_number) if part.name else _One(is_number)
        )

    def open_composite_keys(self, category: str, parts: tuple[KeyPart, ...]) -> KeyConverter:
        """Return the converter of the keys of a category, which have several fields. Their names may differ from those in the schema."""
        self._expect(category, parts)
        return _WithSchema(self.schema, CompositeJsonKeys(self.parts))

    def _expect(self, category: str, parts: Sequence[KeyPart]) -> None:
        if [part.is_number for part in parts] != [part.is_number for part in self.parts]:
            found = ", ".join(
                f"{part.name or 'payload'} ({'an int' if part.is_number else 'a str'})" for part in self.parts
            )
            raise DeclarationError(
                f"Category {category}: the schema of its message keys has the fields {found}. Declare as many fields of these types as `key`, in this order. A "
                "column that the record lacks is a field of it by `Annotated[int, penstock.metadata.Key]` (or str), with the name of the column."
            )


@dataclass(frozen=True)
class _OneField:
    """Keys of one value as objects with one field."""

    objects: CompositeJsonKeys
    is_number: bool

    def encode(self, key: str) -> bytes:
        return self.objects.encode(joined([canonical_int(key) if self.is_number else key]))

    def decode(self, message_key: bytes) -> str:
        [value] = content_of_key(self.objects.decode(message_key), self.objects.parts).values()
        return str(value)


@dataclass(frozen=True)
class _One:
    """Keys of one value as JSON."""

    is_number: bool

    def encode(self, key: str) -> bytes:
        return msgspec.json.encode(canonical_int(key) if self.is_number else key)

    def decode(self, message_key: bytes) -> str:
        return str(msgspec.json.decode(message_key, type=int if self.is_number else str))


@dataclass(frozen=True)
class _WithSchema:
    """Keys beside their schema."""

    schema: str
    payloads: KeyConverter

    def encode(self, key: str) -> bytes:
        return b'{"schema":' + self.schema.encode() + b',"payload":' + self.payloads.encode(key) + b"}"

    def decode(self, message_key: bytes) -> str:
        content = msgspec.json.decode(message_key, type=dict[str, msgspec.Raw])
        if content.keys() != {"schema", "payload"}:
            raise ValueError("it is no object with `schema` and `payload`")
        return self.payloads.decode(bytes(content["payload"]))
