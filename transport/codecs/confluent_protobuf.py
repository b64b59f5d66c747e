"""Protobuf with a schema registry, as Confluent's serializers write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...processors import DeclarationError
from ...processors.declare import Codec, KeyConverter, KeyPart, Message, Payload
from .decoded import SkippedMessage, UndecodableValue
from .protobuf import ProtobufCodec, expect_message_class
from .registry import (
    RegistryClient,
    RegistrySchema,
    SchemaIncompatible,
    SchemaRegistry,
    SubjectStrategy,
    expect_registry,
    prefix_of,
    unframed,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message as ProtobufMessage


@dataclass(frozen=True)
class ConfluentProtobuf:
    """Protobuf with a schema registry, as Confluent's ProtobufSerializer and ProtobufDeserializer write and read it.

    Needs `pip install 'penstock[registry,protobuf]'`. Fields of the record and of the message have equal names. Their types are compared
    before the first event. Fields that the record type lacks are ignored. Files that the message's file imports are registered, too, each
    under its name.

    As the `key_codec` of a category, the message has one field, the key; or exactly the fields that `key` names.

    Args:
        message: the class that protoc generated, such as `Order_pb2.Order`.
        registry: the schema registry.
        subjects: how the registry names the schema of a topic. The record name is the full name of the message.
        register: whether to register a schema that the registry lacks. Otherwise an error precedes the first record.
        latest: whether to write with the id of the latest schema of the subject, which must contain the record's fields.
        other_types: for a topic with several message types, what to do with messages of another type: `"reject"` them as undecodable, or `"skip"` them.
    """

    message: type[ProtobufMessage]
    registry: SchemaRegistry
    subjects: SubjectStrategy = SubjectStrategy.TOPIC
    register: bool = True
    latest: bool = False
    other_types: Literal["reject", "skip"] = "reject"

    def __post_init__(self) -> None:
        expect_registry(self, self.registry)
        if self.other_types not in {"reject", "skip"}:
            raise DeclarationError(
                f"ConfluentProtobuf(other_types={self.other_types!r}) has an unknown value. Declare 'reject' or 'skip'."
            )

    def open(self, payload: Payload) -> Codec:
        """Return the codec.

        Raises:
            DeclarationError: the record type does not fit the message.
        """
        return _ConfluentProtobufCodec(payload, self)

    def open_keys(self, category: str, *, is_number: bool) -> KeyConverter:  # noqa: ARG002 - the message determines the type
        """Return the converter of the keys of a category.

        Raises:
            DeclarationError: the message does not have exactly one field for the key.
        """
        expect_message_class(category, self.message)
        from .protobuf_keys import ProtobufKeys  # noqa: PLC0415 - an optional dependency

        return ProtobufKeys(self, category)

    def open_composite_keys(self, category: str, parts: tuple[KeyPart, ...]) -> KeyConverter:
        """Return the converter of the keys of a category, which have several fields.

        Raises:
            DeclarationError: the message does not have exactly these fields.
        """
        expect_message_class(category, self.message)
        from .protobuf_keys import ProtobufKeys  # noqa: PLC0415 - an optional dependency

        return ProtobufKeys(self, category, parts)


class _ConfluentProtobufCodec(ProtobufCodec):
    def __init__(self, payload: Payload, spec: ConfluentProtobuf) -> None:
        super().__init__(payload, spec.message)
        self._spec = spec
        self._types = MessageTypes(spec)

    @cached_property
    def _prefix(self) -> bytes:
        """The bytes before each message."""
        name = self._types.descriptor.full_name
        return self._types.prefix(self._spec.subjects.subject(self.payload.category, name), self.mapping.names)

    def prepare(self) -> None:
        """Find or register the schema."""
        self._prefix  # noqa: B018 - computed once

    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        return self._prefix + super().to_bytes(fields)

    def to_fields(self, message: Message) -> Mapping[str, Any]:
        framed = unframed(message)
        if framed.in_header is None:
            return self.mapping.to_fields(self._types.unindexed(framed.schema_id, framed.value))
        self._types.unindexed(framed.schema_id, framed.in_header)
        return self.mapping.to_fields(framed.value)


class _Mismatch(NamedTuple):
    """Why messages do not have the type of a message class; an empty text if they have it."""

    text: str = ""
    is_other_type: bool = False


class MessageTypes:
    """The schema ids and message indexes of one message class.

    Args:
        spec: the message class and the registry.
    """

    def __init__(self, spec: ConfluentProtobuf) -> None:
        from . import protobuf_schemas  # noqa: PLC0415 - an optional dependency

        self.descriptor: Descriptor = protobuf_schemas.descriptor_of(spec.message)
        self._spec = spec
        self._schemas = protobuf_schemas
        self.client = RegistryClient(spec.registry, protobuf_schemas.PROTOBUF)
        self._reasons: dict[tuple[int | str, tuple[int, ...]], _Mismatch] = {}

    @property
    def own_schema(self) -> RegistrySchema:
        """The schema of the message class."""
        return self._schemas.schema_of_file(self.descriptor.file)

    def prefix(self, subject: str, fields: Sequence[str]) -> bytes:
        """Return the bytes before each message: 0, the schema id and the message indexes.

        Args:
            subject: the subject of the schema.
            fields: the names of the fields that the latest schema must contain.

        Raises:
            SchemaIncompatible: the registry does not accept the schema, or the latest schema lacks a field.
            RegistryUnreachable: the registry does not answer.
        """
        if self._spec.latest:
            return self.prefix_of_latest(subject, *self.client.latest(subject), fields)
        schema_id = self.client.id_of(subject, self.own_schema, register=self._spec.register)
        return prefix_of(schema_id) + self._schemas.encode_indexes(self._schemas.indexes_of(self.descriptor))

    def prefix_of_latest(self, subject: str, schema_id: int, schema: RegistrySchema, fields: Sequence[str]) -> bytes:
        """Return the same bytes for the latest schema of a subject."""
        file = self._schemas.file_of(schema)
        found = self._schemas.find_message(file, self.descriptor.full_name) if file else None
        if found is None:
            reason = "is not a descriptor" if file is None else f"has no message {self.descriptor.full_name}"
            raise SchemaIncompatible(
                f"The latest schema of {subject} {reason}. Nothing was written. Register the message, or declare `latest=False`."
            )
        indexes, message = found
        written = {field.name: (field.number, field.type, field.label) for field in message.field}
        own = {field.name: field for field in self._own_fields()}
        lost = [name for name in fields if written.get(name) != (own[name].number, own[name].type, own[name].label)]
        if lost:
            raise SchemaIncompatible(
                f"The latest schema of {subject} has no field {', '.join(lost)} of the same number and type, so consumers would lose the values of "
                f"{self.descriptor.full_name}. Nothing was written. Register a schema with this field, or generate the class from the latest schema."
            )
        return prefix_of(schema_id) + self._schemas.encode_indexes(indexes)

    def _own_fields(self) -> Sequence[Any]:
        file = self._schemas.file_of(self.own_schema)
        found = self._schemas.find_message(file, self.descriptor.full_name) if file else None
        return found[1].field if found else ()

    def unindexed(self, schema_id: int | str, value: bytes) -> bytes:
        """Return the bytes of a message after its indexes.

        Raises:
            UndecodableValue: the message has another type, or its schema is unknown.
            RegistryUnreachable: the registry does not answer.
        """
        indexes, content = self._schemas.split_indexes(value)
        key = (schema_id, indexes)
        if key not in self._reasons:
            self._reasons[key] = self._reason(schema_id, indexes)
        reason = self._reasons[key]
        if reason.is_other_type and self._spec.other_types == "skip":
            raise SkippedMessage
        if reason.text:
            raise UndecodableValue(reason.text)
        return content

    def _reason(self, schema_id: int | str, indexes: tuple[int, ...]) -> _Mismatch:
        """Return why messages of a schema have another type.

        As in Avro's codec, a package may have been renamed. A registry that returns no descriptors leaves the type unknown.
        """
        file = self._schemas.file_of(self.client.find(schema_id))
        if file is None:
            return _Mismatch()
        found = self._schemas.message_at(file, indexes)
        if found is None:
            return _Mismatch(f"its schema {schema_id} has no message with the indexes {list(indexes)}")
        name = found[0]
        if name.rpartition(".")[2] == self.descriptor.name:
            return _Mismatch()
        return _Mismatch(f"it is a message {name}, not {self.descriptor.full_name}", is_other_type=True)
