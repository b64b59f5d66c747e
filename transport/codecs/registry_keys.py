"""Message keys in the format of a schema registry: a schema id, then the key.

The bytes of a key contain the id of its schema, and so its bucket depends on it. All keys of a category therefore have one schema: the
latest of its subject, or, if the subject has none, a schema of the key alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from io import BytesIO
from typing import Any, Protocol

import msgspec
from fastavro import schemaless_reader, schemaless_writer

from ...processors.declare.keys import canonical_int
from .avro import UNREADABLE
from .decoded import UndecodableValue
from .registry import (
    RegistryClient,
    RegistrySchema,
    SchemaIncompatible,
    json_schema_of,
    prefix_of,
    unframed_bytes,
)
from .registry_avro import parsed_schema

_AVRO_INTS = {"int": range(-(2**31), 2**31), "long": range(-(2**63), 2**63)}


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
            UnsupportedKey: the schema is not one text or one int.
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
                f"The keys of {self._subject} cannot be the keys of a category: {error}. No key was written. Declare `partitioner=None` and a field of "
                "the value as `key`, and copy the events to another category with a penstock.Repartition."
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
    """The schema of a message key is not one text or one int."""


def unsupported(schema: RegistrySchema) -> UnsupportedKey:
    """Return the error for a schema."""
    return UnsupportedKey(f"their schema is neither one text nor one int, alone or as the only field: {schema.text}")


def plain_key(content: Any) -> str:
    """Return the key of a decoded text or int.

    Raises:
        UndecodableValue: it is neither.
    """
    if not isinstance(content, (str, int)) or isinstance(content, bool):
        raise UndecodableValue(f"the key is {content!r}, neither a text nor an int")
    return str(content)


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
        name = content.get("type") if isinstance(content, dict) else content
        if name not in ("string", "int", "long"):
            raise unsupported(schema)
        return _AvroKey(parsed, field, None if name == "string" else _AVRO_INTS[name])


class _AvroKey:
    def __init__(self, schema: Any, field: str | None, ints: range | None) -> None:
        self._schema = schema
        self._field = field
        self._ints = ints

    def encode(self, key: str) -> bytes:
        content: Any = key if self._ints is None else canonical_int(key)
        if self._ints is not None and content not in self._ints:
            raise ValueError(f"it is not in the range of its schema, {self._ints[0]} to {self._ints[-1]}")
        out = BytesIO()
        schemaless_writer(out, self._schema, {self._field: content} if self._field else content)
        return out.getvalue()

    def decode(self, content: bytes) -> str:
        body = BytesIO(content)
        try:
            found: Any = schemaless_reader(body, self._schema, None)
        except UNREADABLE as error:
            raise UndecodableValue(f"it does not match its schema: {type(error).__name__}: {error}") from error
        return plain_key(found[self._field] if self._field else found)


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
        properties = parsed.get("properties") if isinstance(parsed, dict) else None
        if isinstance(properties, dict) and len(properties) == 1:
            [(field, content)] = properties.items()
        name = content.get("type") if isinstance(content, dict) else None
        if name not in ("string", "integer"):
            raise unsupported(schema)
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
