"""Message keys in the format of a schema registry: a schema id, then the key.

The bytes of a key contain the id of its schema, and so its bucket depends on it. All keys of a category therefore have one schema: the
latest of its subject, or, if the subject has none, a schema of the key alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from io import BytesIO
from typing import Any, Protocol

import msgspec
from fastavro import schemaless_reader, schemaless_writer

from ...processors.declare import KeyPart, canonical_int
from .avro import UNREADABLE, mismatch_in_words
from .decoded import UndecodableValue
from .registry import RegistryClient, RegistrySchema, SchemaIncompatible, json_schema_of, prefix_of, unframed_bytes
from .registry_avro import parsed_schema

AVRO_TYPES: dict[str, range | None] = {"string": None, "int": range(-(2**31), 2**31), "long": range(-(2**63), 2**63)}
"""The types of keys in Avro, with the range of ints."""


_JSON_TYPES = ("string", "integer")


class KeyType(Protocol):
    """The content of message keys under one schema. Both methods raise ValueError."""

    def encode(self, key: str) -> bytes:
        """Return the content of the key."""
        ...

    def decode(self, content: bytes) -> str:
        """Return the key."""
        ...


class RegistryKeys(ABC):
    """Keys of one category. Converts with I/O at the first key, and at the first key of each schema.

    Args:
        client: the registry.
        subject: the subject of the keys.
        register: whether to register a schema if the subject has none.
    """

    def __init__(self, client: RegistryClient, subject: str, *, register: bool) -> None:
        self._client = client
        self._subject = subject
        self._register = register
        self._types: dict[int | str, KeyType] = {}

    @property
    @abstractmethod
    def own_schema(self) -> RegistrySchema:
        """The schema to register if the subject has none."""

    @abstractmethod
    def key_type(self, schema: RegistrySchema) -> KeyType:
        """Return the content of keys under a schema.

        Raises:
            UnsupportedKey: the schema has other fields or types than the keys.
        """

    @cached_property
    def _written(self) -> tuple[bytes, KeyType]:
        latest = self._client.latest_or_none(self._subject)
        if latest is None:
            schema_id = self._client.id_of(self._subject, self.own_schema, register=self._register)
            return prefix_of(schema_id), self.key_type(self.own_schema)
        schema_id, schema = latest
        try:
            return prefix_of(schema_id), self.key_type(schema)
        except UnsupportedKey as error:
            raise SchemaIncompatible(
                f"The keys of {self._subject} cannot be the keys of a category: {error}. No key was written. {error.remedy}"
            ) from error

    def encode(self, key: str) -> bytes:
        """Return the message key of a key."""
        prefix, key_type = self._written
        return prefix + key_type.encode(key)

    def decode(self, message_key: bytes) -> str:
        """Return the key of a message key."""
        framed = unframed_bytes(message_key)
        if framed.schema_id not in self._types:
            self._types[framed.schema_id] = self.key_type(self._client.find(framed.schema_id))
        return self._types[framed.schema_id].decode(framed.value)


class UnsupportedKey(UndecodableValue):
    """The schema of a message key has other fields or types than the keys.

    Args:
        reason: which.
        remedy: what to declare instead.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


def unsupported(schema: RegistrySchema, fields: Sequence[KeyPart] = ()) -> UnsupportedKey:
    """Return the error for a schema that is not one text or one int.

    Args:
        schema: the schema.
        fields: its fields, if it consists of several texts and ints.
    """
    reason = f"their schema is neither one text nor one int, alone or as the only field: {schema.text}"
    if len(fields) > 1:
        names = ", ".join(f'"{field.name}"' for field in fields)
        return UnsupportedKey(reason, f"Declare all its fields, `key=({names})`.")
    return UnsupportedKey(
        reason,
        "Declare `partitioner=None` and a field of the value as `key`, and copy the events to another category with a penstock.Repartition.",
    )


def plain_key(content: Any) -> str:
    """Return the key of a decoded text or int.

    Raises:
        UndecodableValue: it is neither.
    """
    if not isinstance(content, (str, int)) or isinstance(content, bool):
        raise UndecodableValue(f"the key is {content!r}, neither a text nor an int")
    return str(content)


def avro_type(content: Any) -> str | None:
    """Return the type of keys in Avro, which a schema may permit to be null; None for a type that keys cannot have."""
    kinds = [kind for kind in _listed(content) if kind != "null"]
    names = [kind.get("type") if isinstance(kind, dict) else kind for kind in kinds]
    return names[0] if len(names) == 1 and isinstance(names[0], str) and names[0] in AVRO_TYPES else None


def _listed(content: Any) -> Sequence[Any]:
    return content if isinstance(content, list) else [content]


def avro_fields(parsed: Any) -> Sequence[KeyPart]:
    """Return the fields of a record in Avro if all of them are texts or ints; empty for other schemas."""
    fields = parsed["fields"] if isinstance(parsed, dict) and parsed.get("type") == "record" else ()
    return _key_parts([(field["name"], avro_type(field["type"])) for field in fields])


def _key_parts(types: Sequence[tuple[str, str | None]]) -> Sequence[KeyPart]:
    """Return fields with these types; empty if keys cannot have one of them."""
    return [] if None in dict(types).values() else [KeyPart(name, kind != "string") for name, kind in types]


class AvroKeys(RegistryKeys):
    """Keys in Avro: a string, an int or a long, alone or as the only field of a record.

    Args:
        client: the registry.
        subject: the subject of the keys.
        register: whether to register a schema if the subject has none.
        is_number: whether the key field is an int.
    """

    def __init__(self, client: RegistryClient, subject: str, *, register: bool, is_number: bool) -> None:
        super().__init__(client, subject, register=register)
        self._is_number = is_number

    @property
    def own_schema(self) -> RegistrySchema:
        """A long or a string."""
        return json_schema_of({"type": "long" if self._is_number else "string"})

    def key_type(self, schema: RegistrySchema) -> KeyType:
        """Return the content of keys under a schema."""
        parsed: Any = parsed_schema(schema, plain_types=True)
        field, content = None, parsed
        if isinstance(parsed, dict) and parsed.get("type") == "record" and len(parsed["fields"]) == 1:
            field, content = parsed["fields"][0]["name"], parsed["fields"][0]["type"]
        name = avro_type(content)
        if name is None:
            raise unsupported(schema, avro_fields(parsed))
        return _AvroKey(parsed, field, AVRO_TYPES[name])


def expect_in_range(value: str | int, ints: range | None) -> None:
    """Raise ValueError if an int is beyond the range of its schema.

    Args:
        value: the value of a key.
        ints: the range; None for a text.
    """
    if ints is not None and value not in ints:
        raise ValueError(f"{value} is not in the range of its schema, {ints[0]} to {ints[-1]}")


def written_avro(schema: Any, content: Any) -> bytes:
    """Return a value in Avro."""
    out = BytesIO()
    schemaless_writer(out, schema, content)
    return out.getvalue()


def read_avro(schema: Any, content: bytes) -> Any:
    """Return a value in Avro.

    Raises:
        UndecodableValue: the bytes do not match the schema.
    """
    try:
        return schemaless_reader(BytesIO(content), schema, None)
    except UNREADABLE as error:
        raise UndecodableValue(f"it does not match its schema: {mismatch_in_words(error)}") from error


class _AvroKey:
    def __init__(self, schema: Any, field: str | None, ints: range | None) -> None:
        self._schema = schema
        self._field = field
        self._ints = ints

    def encode(self, key: str) -> bytes:
        content: Any = key if self._ints is None else canonical_int(key)
        expect_in_range(content, self._ints)
        return written_avro(self._schema, {self._field: content} if self._field else content)

    def decode(self, content: bytes) -> str:
        found = read_avro(self._schema, content)
        return plain_key(found[self._field] if self._field else found)


def properties_of(parsed: Any) -> Mapping[str, Any]:
    """Return the properties of an object in JSON Schema; empty for other schemas."""
    properties = parsed.get("properties") if isinstance(parsed, dict) else None
    return properties if isinstance(properties, dict) else {}


def json_type(content: Any) -> str | None:
    """Return the type of keys in JSON Schema, which a schema may permit to be null; None for a type that keys cannot have."""
    branches = content.get("oneOf", [content]) if isinstance(content, dict) else ()
    kinds = [kind for one in branches if isinstance(one, dict) for kind in _listed(one.get("type")) if kind != "null"]
    return kinds[0] if len(kinds) == 1 and kinds[0] in _JSON_TYPES else None


def json_fields(properties: Mapping[str, Any]) -> Sequence[KeyPart]:
    """Return the properties of an object if all of them are texts or ints; otherwise empty."""
    return _key_parts([(name, json_type(one)) for name, one in properties.items()])


class JsonKeys(RegistryKeys):
    """Keys in JSON: a string or an integer, alone or as the only property of an object; without spaces.

    Args:
        client: the registry.
        subject: the subject of the keys.
        register: whether to register a schema if the subject has none.
        is_number: whether the key field is an int.
    """

    def __init__(self, client: RegistryClient, subject: str, *, register: bool, is_number: bool) -> None:
        super().__init__(client, subject, register=register)
        self._is_number = is_number

    @property
    def own_schema(self) -> RegistrySchema:
        """An integer or a string."""
        return json_schema_of({"type": "integer" if self._is_number else "string"})

    def key_type(self, schema: RegistrySchema) -> KeyType:
        """Return the content of keys under a schema."""
        parsed = msgspec.json.decode(schema.text)
        field, content = None, parsed
        properties = properties_of(parsed)
        if len(properties) == 1:
            [(field, content)] = properties.items()
        name = json_type(content)
        if name is None:
            raise unsupported(schema, json_fields(properties))
        return _JsonKey(field, is_int=name == "integer")


class _JsonKey:
    def __init__(self, field: str | None, *, is_int: bool) -> None:
        self._field = field
        self._is_int = is_int

    def encode(self, key: str) -> bytes:
        content = canonical_int(key) if self._is_int else key
        return msgspec.json.encode({self._field: content} if self._field else content)

    def decode(self, content: bytes) -> str:
        found = msgspec.json.decode(content)
        if self._field and not isinstance(found, dict):
            raise UndecodableValue(f"the key is not an object with {self._field}")
        return plain_key(found.get(self._field) if self._field else found)
