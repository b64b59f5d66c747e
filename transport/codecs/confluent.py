"""Formats of Confluent's serializers: a schema id, then Avro or JSON. A schema registry stores the schemas."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any

import msgspec
from fastavro import parse_schema, schemaless_writer
from fastavro.types import Schema as AvroSchema

from ...processors import with_capital_article
from ...processors.declare import AnyRecord, Codec, Decoded, KeyConverter, KeyPart, Message, Payload, fields_of
from ...processors.models import described
from ..messages import MessageCopy
from .avro import NATIVE, UNREADABLE, mismatch_in_words, schema_of
from .composite_registry_keys import KEY_RECORD, CompositeAvroKeys, CompositeObjectKeys
from .decoded import UndecodableValue, decode_singly
from .json_codec import JsonCodec
from .registry import (
    AVRO,
    JSON,
    OtherTypes,
    RegistryClient,
    SchemaIncompatible,
    SchemaRegistry,
    SubjectStrategy,
    expect_other_types,
    expect_registry,
    expect_type,
    json_schema_of,
    prefix_of,
    unframed,
)
from .registry_avro import AvroTypes, has_plain_fields, parsed_schema, parsed_types
from .registry_keys import AvroKeys, JsonKeys
from .single import FieldsCodec


@dataclass(frozen=True)
class _ConfluentFormat:
    """What the formats declare in common. Their docstrings describe it."""

    registry: SchemaRegistry
    subjects: SubjectStrategy = SubjectStrategy.TOPIC
    name: str | None = None
    register: bool = True
    latest: bool = False
    other_types: OtherTypes = "read"

    def __post_init__(self) -> None:
        expect_registry(self, self.registry)
        expect_other_types(self, self.other_types)

    def _key_subject(self, category: str, default: str) -> str:
        """Return the subject of the keys of a category, whose schema has a default name."""
        return self.subjects.subject(category, self.name or default, "key")


class ConfluentAvro(_ConfluentFormat):
    """Avro with a schema registry, as Confluent's AvroSerializer and AvroDeserializer write and read it.

    Each message is read with the schema that its id names; then the record type applies, as with Avro's schema resolution: fields that the
    record type lacks are ignored, and fields that the message lacks have their defaults. Before the first record is written, the registry
    checks the schema against the compatibility setting of its subject.

    As the `key_codec` of a category, it applies to keys that are one string or one int, alone or as the only field; or to records of the fields
    that `key` names. The latest schema of their subject determines the bytes; a subject without a schema gets one (`register`).

    Args:
        registry: the schema registry.
        subjects: how the registry names the schema of a topic.
        name: the full name of the record type, such as `com.shop.Order`; by default the name of the class.
        register: whether to register a schema that the registry lacks. Otherwise an error precedes the first record.
        latest: whether to write with the latest schema of the subject instead of the record type's own schema.
        other_types: for a topic with several record types, what to do with a message whose schema has another name than `name`: `"read"` it if its
            fields fit, `"reject"` it as undecodable, or `"skip"` it.
    """

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        return _ConfluentAvroCodec(payload, self, RegistryClient(self.registry, AVRO))

    def open_keys(self, category: str, *, is_number: bool) -> KeyConverter:
        """Return the converter of the keys of a category."""
        client, subject = (
            RegistryClient(self.registry, AVRO),
            self._key_subject(category, "long" if is_number else "string"),
        )
        return AvroKeys(client, subject, register=self.register, is_number=is_number)

    def open_composite_keys(self, category: str, parts: tuple[KeyPart, ...]) -> KeyConverter:
        """Return the converter of the keys of a category, which have several fields."""
        client, subject = RegistryClient(self.registry, AVRO), self._key_subject(category, KEY_RECORD)
        return CompositeAvroKeys(client, subject, register=self.register, name=self.name or KEY_RECORD, parts=parts)


class ConfluentJson(_ConfluentFormat):
    """JSON with a schema registry, as Confluent's JSONSerializer and JSONDeserializer write and read it.

    The record type checks each message, not the JSON Schema of its id. Before the first record is written, the registry checks the schema
    against the compatibility setting of its subject.

    As the `key_codec` of a category, it applies to keys that are one string or one int, alone or as the only field; or to objects of the fields
    that `key` names. The latest schema of their subject determines which; a subject without a schema gets one (`register`).

    Args:
        registry: the schema registry.
        subjects: how the registry names the schema of a topic.
        name: the title of the schema; by default the name of the class.
        register: whether to register a schema that the registry lacks. Otherwise an error precedes the first record.
        latest: whether to write with the latest schema of the subject instead of the record type's own schema.
        other_types: for a topic with several record types, what to do with a message whose schema has another name than `name`: `"read"` it if its
            fields fit, `"reject"` it as undecodable, or `"skip"` it.
    """

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        return _ConfluentJsonCodec(payload, self, RegistryClient(self.registry, JSON))

    def open_keys(self, category: str, *, is_number: bool) -> KeyConverter:
        """Return the converter of the keys of a category."""
        client, subject = (
            RegistryClient(self.registry, JSON),
            self._key_subject(category, "integer" if is_number else "string"),
        )
        return JsonKeys(client, subject, register=self.register, is_number=is_number)

    def open_composite_keys(self, category: str, parts: tuple[KeyPart, ...]) -> KeyConverter:
        """Return the converter of the keys of a category, which have several fields."""
        client, subject = RegistryClient(self.registry, JSON), self._key_subject(category, KEY_RECORD)
        return CompositeObjectKeys(client, subject, register=self.register, name=self.name or KEY_RECORD, parts=parts)


class AvroValues:
    """Reads Avro values with the schemas of a registry, as fields for one record type.

    Args:
        record: the record type.
        client: the registry.
        below: the fields of the values that contain such records; empty if the values are the records.
    """

    def __init__(self, record: type[AnyRecord], client: RegistryClient, below: Collection[str] = ()) -> None:
        self._record = record
        self._below = below
        self._client = client
        self._is_plain = has_plain_fields(record)
        self._types: dict[int | str, AvroTypes] = {}

    def read(self, message: Message) -> Mapping[str, Any]:
        """Return the fields of a message.

        Raises:
            UndecodableValue: the value does not match its schema, or the schema is unknown or not a record's.
            RegistryUnreachable: the registry does not answer.
        """
        schema_id, value, _ = unframed(message)
        types = self._types_of(schema_id)
        try:
            _, fields = types.read(value)
        except UNREADABLE as error:
            raise UndecodableValue(f"it does not match its schema {schema_id}: {mismatch_in_words(error)}") from error
        if not isinstance(fields, dict):
            raise UndecodableValue(f"its schema {schema_id} is not a record's")
        return fields

    def type_of(self, message: Message) -> str:
        """Return the full name of the type of a message; empty if its schema has none.

        Raises:
            UndecodableValue: the schema is unknown, or the value does not match it.
            RegistryUnreachable: the registry does not answer.
        """
        schema_id, value, _ = unframed(message)
        try:
            return self._types_of(schema_id).type_of(value).name
        except IndexError as error:
            raise UndecodableValue(f"it does not match its schema {schema_id}: {error}") from error

    def _types_of(self, schema_id: int | str) -> AvroTypes:
        if schema_id not in self._types:
            self._types[schema_id] = self._parsed(schema_id)
        return self._types[schema_id]

    def _parsed(self, schema_id: int | str) -> AvroTypes:
        stored = self._client.find(schema_id)
        try:
            record = None if self._is_plain else self._record
            return parsed_types(stored, record, below=self._below, plain_types=self._is_plain)
        except (*UNREADABLE, msgspec.DecodeError) as error:
            raise UndecodableValue(f"its schema {schema_id} is not an Avro schema: {error}") from error


class _ConfluentAvroCodec(FieldsCodec):
    native = NATIVE

    def __init__(self, payload: Payload, spec: ConfluentAvro, client: RegistryClient) -> None:
        super().__init__(payload)
        self._spec = spec
        self._client = client
        self._own_schema = named_schema(payload.record, spec.name)
        self._name = spec.name or payload.record.__name__
        self._values = AvroValues(payload.record, client)

    @cached_property
    def _writer(self) -> tuple[bytes, AvroSchema]:
        """The bytes before each value and the schema of the values. Raises SchemaIncompatible before the first record is written."""
        schema = self._own_schema
        name = ".".join(filter(None, (schema.get("namespace"), schema["name"])))
        subject = self._spec.subjects.subject(self.payload.category, name)
        if not self._spec.latest:
            schema_id = self._client.id_of(subject, json_schema_of(schema), register=self._spec.register)
            return prefix_of(schema_id), parse_schema(schema)
        schema_id, stored = self._client.latest(subject)
        parsed = parsed_schema(stored)
        self._expect_all_fields(subject, parsed)
        return prefix_of(schema_id), parsed

    def _expect_all_fields(self, subject: str, schema: Any) -> None:
        written = {field["name"] for field in schema.get("fields", ())}
        lost = [name for name in fields_of(self.payload.record) if name not in written]
        if lost:
            raise SchemaIncompatible(
                f"The latest schema of {subject} has no field {', '.join(lost)}, so the values of {self.payload.record.__name__} would be lost. "
                "Nothing was written. Register a schema with this field, or remove the field from the record type."
            )

    def prepare(self) -> None:
        """Find or register the schema."""
        self._writer  # noqa: B018 - computed once

    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        prefix, schema = self._writer
        out = BytesIO()
        out.write(prefix)
        try:
            schemaless_writer(out, schema, fields)
        except (ValueError, KeyError, OverflowError, TypeError) as error:
            raise TypeError(
                f"{with_capital_article(self.payload.record.__name__)} does not fit the Avro schema of {self.payload.category}: {error}. Nothing was sent. Correct the "
                "values, or the type."
            ) from error
        return out.getvalue()

    def to_fields(self, message: Message) -> Mapping[str, Any]:
        if self._spec.other_types != "read":
            expect_type(self._values.type_of(message), self._name, self._spec.other_types)
        return self._values.read(message)


def named_schema(record: type[AnyRecord], name: str | None) -> dict[str, Any]:
    """Return the Avro schema of a record type under a full name."""
    schema = schema_of(record)
    if name is None:
        return schema
    namespace, _, last = name.rpartition(".")
    return {**schema, "name": last, **({"namespace": namespace} if namespace else {})}


class _ConfluentJsonCodec:
    def __init__(self, payload: Payload, spec: ConfluentJson, client: RegistryClient) -> None:
        self._payload = payload
        self._spec = spec
        self._client = client
        self._values = JsonCodec(payload)
        self._titles: dict[int | str, str] = {}

    @cached_property
    def _prefix(self) -> bytes:
        """The bytes before each value. Raises SchemaIncompatible before the first record is written."""
        schema = json_schema(self._payload.record, self._spec.name)
        subject = self._spec.subjects.subject(self._payload.category, schema["title"])
        if not self._spec.latest:
            return prefix_of(self._client.id_of(subject, json_schema_of(schema), register=self._spec.register))
        schema_id, stored = self._client.latest(subject)
        self._expect_same_fields(subject, json.loads(stored.text))
        return prefix_of(schema_id)

    def _expect_same_fields(self, subject: str, schema: Any) -> None:
        """Raise SchemaIncompatible if the schema lacks a field, or requires one that records lack."""
        fields = fields_of(self._payload.record)
        lost = [name for name in fields if name not in schema.get("properties", {})]
        missing = [name for name in schema.get("required", ()) if name not in fields]
        if lost or missing:
            record = self._payload.record.__name__
            reasons = [
                *([f"has no field {', '.join(lost)}"] if lost else []),
                *([f"requires {', '.join(missing)}, which {record} lacks"] if missing else []),
            ]
            raise SchemaIncompatible(
                f"The latest schema of {subject} {' and '.join(reasons)}. Nothing was written. Register a schema that fits, or change {record}."
            )

    def prepare(self) -> None:
        """Find or register the schema."""
        self._prefix  # noqa: B018 - computed once

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the value of a message for each record."""
        values = self._values.encode(records)
        prefix = self._prefix if values else b""
        return [prefix + value for value in values]

    def decode(self, messages: Sequence[Message]) -> Decoded:
        """Decode a batch."""
        unwrapped = decode_singly(messages, self._unwrapped)
        decoded = self._values.decode(unwrapped.events)
        at = unwrapped.at
        bad = [one._replace(at=at[one.at]) for one in decoded.bad]
        return Decoded(decoded.events, [at[index] for index in decoded.at], [*unwrapped.bad, *bad])

    def _unwrapped(self, message: Message) -> Message:
        found = unframed(message)
        if self._spec.other_types != "read":
            wanted = self._spec.name or self._payload.record.__name__
            expect_type(self._title_of(found.schema_id), wanted, self._spec.other_types)
        return MessageCopy(found.value)

    def _title_of(self, schema_id: int | str) -> str:
        if schema_id not in self._titles:
            schema = json.loads(self._client.find(schema_id).text)
            self._titles[schema_id] = str(schema.get("title", "")) if isinstance(schema, dict) else ""
        return self._titles[schema_id]


def json_schema(record: type[AnyRecord], name: str | None) -> dict[str, Any]:
    """Return the JSON Schema of a record type, with its name as title."""
    schema = msgspec.json.schema(described(record))
    definitions = dict(schema.get("$defs", {}))
    top = definitions.get(record.__name__, schema)
    if f'"#/$defs/{record.__name__}"' not in json.dumps(definitions):
        definitions.pop(record.__name__, None)  # otherwise, a record contains records of its own type
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **top, "title": name or record.__name__}
    return {**schema, "$defs": definitions} if definitions else schema
