"""Message keys in Protobuf: messages whose only field is the key, or whose fields are those of the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message import Message as ProtobufMessage

from ...processors import DeclarationError
from ...processors.declare import KeyPart, KeyValue, canonical_int, content_of_key, key_of_content, names_of
from .decoded import UndecodableValue
from .protobuf_schemas import (
    PROTOBUF,
    descriptor_of,
    encode_indexes,
    file_of,
    find_message,
    indexes_of,
    schema_of_file,
    split_indexes,
)
from .registry import RegistryClient, RegistrySchema
from .registry_keys import KeyType, RegistryKeys, UnsupportedKey, plain_key

if TYPE_CHECKING:
    from .confluent_protobuf import ConfluentProtobuf

_INTS = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}


class ProtobufKeys(RegistryKeys):
    """Keys in Protobuf.

    Args:
        spec: the message class and the registry.
        category: the name of the category.
        parts: the fields of a key of several; empty for other keys.

    Raises:
        DeclarationError: the message does not have exactly one field, a string or an int as the key; or other fields than the key.
    """

    def __init__(self, spec: ConfluentProtobuf, category: str, parts: tuple[KeyPart, ...] = ()) -> None:
        self._message = spec.message
        self._descriptor = descriptor_of(spec.message)
        self._parts = parts
        self._fields = _fields_of(category, spec.message, parts) if parts else [_only_field(category, spec.message)]
        subject = spec.subjects.subject(category, self._descriptor.full_name, "key")
        super().__init__(RegistryClient(spec.registry, PROTOBUF), subject, register=spec.register)

    @property
    def own_schema(self) -> RegistrySchema:
        """The schema of the message class."""
        return schema_of_file(self._descriptor.file)

    def key_type(self, schema: RegistrySchema) -> KeyType:
        """Return the content of keys under a schema."""
        file = file_of(schema)
        if file is None:  # a registry that returns no descriptors
            return self._key_type(indexes_of(self._descriptor))
        found = find_message(file, self._descriptor.full_name)
        stored = {field.name: (field.number, field.type) for field in found[1].field} if found else {}
        missing = [field.name for field in self._fields if stored.get(field.name) != (field.number, field.type)]
        if found is None or missing or (self._parts and len(stored) > len(self._fields)):
            names = ", ".join(field.name for field in self._fields)
            others = ", and no other" if self._parts else ""
            raise UnsupportedKey(
                f"their schema has no message {self._descriptor.full_name} with the same number and type of {names}{others}",
                "Declare the message class that protoc generates from this schema.",
            )
        return self._key_type(found[0])

    def _key_type(self, indexes: tuple[int, ...]) -> KeyType:
        messages = _KeyMessages(self._message, indexes)
        return _FieldsKey(messages, self._parts) if self._parts else _OnlyFieldKey(messages, self._fields[0])


class _KeyMessages:
    """Converts messages of one class to the content of message keys and back.

    Args:
        message: the class.
        indexes: its place within the file of its schema.
    """

    def __init__(self, message: type[ProtobufMessage], indexes: tuple[int, ...]) -> None:
        self._message = message
        self._indexes = indexes
        self._prefix = encode_indexes(indexes)

    def encode(self, fields: Mapping[str, KeyValue]) -> bytes:
        try:
            return self._prefix + self._message(**fields).SerializeToString()
        except (TypeError, EncodeError) as error:
            raise ValueError(str(error)) from error

    def decode(self, content: bytes) -> ProtobufMessage:
        indexes, body = split_indexes(content)
        if indexes != self._indexes:
            raise UndecodableValue(f"it is not a message {descriptor_of(self._message).full_name}")
        try:
            return self._message.FromString(body)
        except DecodeError as error:
            raise UndecodableValue(f"not a message {descriptor_of(self._message).full_name}: {error}") from error


class _OnlyFieldKey:
    def __init__(self, messages: _KeyMessages, field: FieldDescriptor) -> None:
        self._messages = messages
        self._name = field.name
        self._is_int = _is_int(field)

    def encode(self, key: str) -> bytes:
        return self._messages.encode({self._name: canonical_int(key) if self._is_int else key})

    def decode(self, content: bytes) -> str:
        return plain_key(getattr(self._messages.decode(content), self._name))


class _FieldsKey:
    def __init__(self, messages: _KeyMessages, parts: tuple[KeyPart, ...]) -> None:
        self._messages = messages
        self._parts = parts

    def encode(self, key: str) -> bytes:
        return self._messages.encode(content_of_key(key, self._parts))

    def decode(self, content: bytes) -> str:
        message = self._messages.decode(content)
        return key_of_content({part.name: getattr(message, part.name) for part in self._parts}, self._parts)


def _only_field(category: str, message: type[ProtobufMessage]) -> FieldDescriptor:
    fields = list(descriptor_of(message).fields)
    if len(fields) != 1 or not _is_key(fields[0]):
        raise DeclarationError(
            f"Category {category}: the message {descriptor_of(message).full_name} cannot be the key, because it does not have exactly one field, a string or "
            "an int. Declare another message as `key_codec`, or all fields of the message as `key`."
        )
    return fields[0]


def _fields_of(category: str, message: type[ProtobufMessage], parts: tuple[KeyPart, ...]) -> Sequence[FieldDescriptor]:
    """Return the fields of a message for a key of several fields."""
    fields = list(descriptor_of(message).fields)
    if {KeyPart(field.name, _is_int(field)) for field in fields if _is_key(field)} != set(parts) or len(fields) > len(
        parts
    ):
        found = ", ".join(field.name for field in fields)
        raise DeclarationError(
            f"Category {category}: the message {descriptor_of(message).full_name} with the fields {found} cannot be the key, which has the fields "
            f"{names_of(parts)}. Declare a message with exactly these fields, each a string or an int like the field of the record."
        )
    return fields


def _is_int(field: FieldDescriptor) -> bool:
    return field.cpp_type in _INTS


def _is_key(field: FieldDescriptor) -> bool:
    return not field.is_repeated and (field.type == FieldDescriptor.TYPE_STRING or _is_int(field))
