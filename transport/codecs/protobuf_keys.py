"""Message keys in Protobuf: messages with one field, which is the key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message import Message as ProtobufMessage

from ...processors.declare.keys import canonical_int
from ...processors.errors import DeclarationError
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

    Raises:
        DeclarationError: the message does not have exactly one field, a string or an int as the key.
    """

    def __init__(self, spec: ConfluentProtobuf, category: str) -> None:
        self._message = spec.message
        self._descriptor = descriptor_of(spec.message)
        self._field = _only_field(category, spec.message)
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
            return _ProtobufKey(self._message, self._field, indexes_of(self._descriptor))
        found = find_message(file, self._descriptor.full_name)
        field = next((each for each in found[1].field if each.name == self._field.name), None) if found else None
        if found is None or field is None or (field.number, field.type) != (self._field.number, self._field.type):
            raise UnsupportedKey(
                f"their schema has no message {self._descriptor.full_name} with the field {self._field.name} of the same number and type"
            )
        return _ProtobufKey(self._message, self._field, found[0])


class _ProtobufKey:
    def __init__(self, message: type[ProtobufMessage], field: FieldDescriptor, indexes: tuple[int, ...]) -> None:
        self._message = message
        self._field = field
        self._indexes = indexes
        self._prefix = encode_indexes(indexes)
        self._is_int = field.cpp_type != FieldDescriptor.CPPTYPE_STRING

    def encode(self, key: str) -> bytes:
        try:
            message = self._message(**{self._field.name: canonical_int(key) if self._is_int else key})
            return self._prefix + message.SerializeToString()
        except (TypeError, EncodeError) as error:
            raise ValueError(str(error)) from error

    def decode(self, content: bytes) -> str:
        indexes, body = split_indexes(content)
        if indexes != self._indexes:
            raise UndecodableValue(f"it is not a message {descriptor_of(self._message).full_name}")
        try:
            return plain_key(getattr(self._message.FromString(body), self._field.name))
        except DecodeError as error:
            raise UndecodableValue(f"not a message {descriptor_of(self._message).full_name}: {error}") from error


def _only_field(category: str, message: type[ProtobufMessage]) -> FieldDescriptor:
    fields = list(descriptor_of(message).fields)
    if len(fields) != 1 or fields[0].is_repeated or not _is_key(fields[0]):
        raise DeclarationError(
            f"Category {category}: the message {descriptor_of(message).full_name} cannot be the key, because it does not have exactly one field, a string or "
            "an int. Declare another message as `key_codec`."
        )
    return fields[0]


def _is_key(field: FieldDescriptor) -> bool:
    return field.type == FieldDescriptor.TYPE_STRING or field.cpp_type in _INTS
