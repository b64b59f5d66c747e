"""Message keys of several fields in Avro and JSON with a schema registry: a schema id, then a record or an object with the fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...processors.declare import CompositeJsonKeys, KeyPart, content_of_key, key_of_content, names_of
from .registry import RegistryClient, RegistrySchema, json_schema_of
from .registry_avro import parsed_schema
from .registry_keys import (
    AVRO_TYPES,
    KeyType,
    RegistryKeys,
    UnsupportedKey,
    avro_fields,
    avro_type,
    expect_in_range,
    json_fields,
    properties_of,
    read_avro,
    written_avro,
)

KEY_RECORD = "Key"
"""The name of a schema of keys that a subject without a schema gets, as Debezium names it within its namespace."""


class CompositeKeys(RegistryKeys):
    """Keys of several fields of one category.

    Args:
        client: the registry.
        subject: the subject of the keys.
        register: whether to register a schema if the subject has none.
        name: the name of the schema to register.
        parts: the fields.
    """

    def __init__(
        self, client: RegistryClient, subject: str, *, register: bool, name: str, parts: tuple[KeyPart, ...]
    ) -> None:
        super().__init__(client, subject, register=register)
        self._name = name
        self._parts = parts

    def _expect_parts(self, found: Sequence[KeyPart], schema: RegistrySchema) -> None:
        """Raise UnsupportedKey if a schema has other fields; their order may differ."""
        if set(found) != set(self._parts):
            raise UnsupportedKey(
                f"their schema does not consist of the fields {names_of(self._parts)} with the types of the record: {schema.text}",
                "Declare all fields of the schema as `key`, each as a str or an int like there.",
            )


class CompositeAvroKeys(CompositeKeys):
    """Keys in Avro: a record whose fields are strings, ints and longs. The schema determines their order."""

    @property
    def own_schema(self) -> RegistrySchema:
        """A record of longs and strings."""
        fields = [{"name": part.name, "type": "long" if part.is_number else "string"} for part in self._parts]
        return json_schema_of({"type": "record", "name": self._name, "fields": fields})

    def key_type(self, schema: RegistrySchema) -> KeyType:
        """Return the content of keys under a schema."""
        parsed: Any = parsed_schema(schema, plain_types=True)
        self._expect_parts(avro_fields(parsed), schema)
        return _AvroRecordKey(parsed, self._parts)


class _AvroRecordKey:
    def __init__(self, schema: Any, parts: tuple[KeyPart, ...]) -> None:
        self._schema = schema
        self._parts = parts
        types = {field["name"]: avro_type(field["type"]) for field in schema["fields"]}
        self._ints = {name: AVRO_TYPES[kind] for name, kind in types.items() if kind}

    def encode(self, key: str) -> bytes:
        content = content_of_key(key, self._parts)
        for name, value in content.items():
            expect_in_range(value, self._ints[name])
        return written_avro(self._schema, content)

    def decode(self, content: bytes) -> str:
        return key_of_content(read_avro(self._schema, content), self._parts)


class CompositeObjectKeys(CompositeKeys):
    """Keys in JSON: an object whose properties are strings and integers, in the declared order and without spaces."""

    @property
    def own_schema(self) -> RegistrySchema:
        """An object of integers and strings."""
        properties = {part.name: {"type": "integer" if part.is_number else "string"} for part in self._parts}
        return json_schema_of(
            {"type": "object", "title": self._name, "properties": properties, "required": list(properties)}
        )

    def key_type(self, schema: RegistrySchema) -> KeyType:
        """Return the content of keys under a schema."""
        self._expect_parts(json_fields(properties_of(msgspec.json.decode(schema.text))), schema)
        return CompositeJsonKeys(self._parts)
