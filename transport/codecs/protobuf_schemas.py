"""Schemas of Protobuf messages as a registry stores them: the file of a message, and its indexes in the file.

A message in the format of Confluent's serializers begins with a schema id, then with the path of indexes to its type, then with its bytes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import cast

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from .decoded import UndecodableValue
from .registry import RegistrySchema, SchemaKind

_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
"""The beginnings of the names of files that every registry contains."""
_ANY_FILE = "registered.proto"
"""The name of a file whose own name is unknown."""
_MAX_VARINT_BYTES = 10
_MAX_DEPTH = 100


def descriptor_of(message: type[Message]) -> Descriptor:
    """Return the type of a message class."""
    return cast("Descriptor", message.DESCRIPTOR)


def schema_of_file(file: FileDescriptor) -> RegistrySchema:
    """Return the schema of a file, with the files that it imports."""
    imported = [each for each in file.dependencies if not each.name.startswith(_BUILT_IN)]
    return RegistrySchema(
        b64encode(file.serialized_pb).decode(), tuple((each.name, schema_of_file(each)) for each in imported)
    )


def file_of(schema: RegistrySchema) -> FileDescriptorProto | None:
    """Return the file of a schema; None if the registry returned its text instead of its descriptor."""
    try:
        return FileDescriptorProto.FromString(b64decode(schema.text, validate=True))
    except (ValueError, DecodeError):
        return None


def message_class(schema: RegistrySchema, indexes: Sequence[int]) -> type[Message]:
    """Return a class for the messages at a path of indexes in a registered file.

    Raises:
        UndecodableValue: the file has no such message, imports a file that is not registered, or is not a descriptor.
    """
    file = file_of(schema)
    found = None if file is None else message_at(file, indexes)
    if found is None:
        reason = "is not a descriptor" if file is None else f"has no message with the indexes {list(indexes)}"
        raise UndecodableValue(f"its schema {reason}")
    pool = DescriptorPool()
    try:
        _add_file(pool, _ANY_FILE, schema, set())
        return GetMessageClass(pool.FindMessageTypeByName(found[0]))
    except (TypeError, KeyError, ImportError) as error:
        raise UndecodableValue(f"its schema cannot be used: {error}") from error


def _add_file(pool: DescriptorPool, name: str, schema: RegistrySchema, added: set[str]) -> None:
    """Add a registered file to a pool, after the files that it imports."""
    file = file_of(schema)
    if file is None or name in added:
        return
    added.add(name)
    for imported, referenced in schema.references:
        _add_file(pool, imported, referenced, added)
    for imported in file.dependency:
        if imported.startswith("google/protobuf/") and imported not in added:
            added.add(imported)
            module = import_module(f"{imported.removesuffix('.proto').replace('/', '.')}_pb2")
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    file.name = name
    pool.AddSerializedFile(file.SerializeToString())


def indexes_of(descriptor: Descriptor) -> tuple[int, ...]:
    """Return the path of indexes from the file of a message type to the type."""
    parent = descriptor.containing_type
    siblings = list(parent.nested_types if parent else descriptor.file.message_types_by_name.values())
    position = [each.full_name for each in siblings].index(descriptor.full_name)
    return (*(indexes_of(parent) if parent else ()), position)


def message_at(file: FileDescriptorProto, indexes: Sequence[int]) -> tuple[str, DescriptorProto] | None:
    """Return the full name and the type of a message in a file; None if the file has no such message."""
    names, siblings, found = [file.package] if file.package else [], file.message_type, None
    for index in indexes:
        if not 0 <= index < len(siblings):
            return None
        found = siblings[index]
        names.append(found.name)
        siblings = found.nested_type
    return None if found is None else (".".join(names), found)


def find_message(file: FileDescriptorProto, full_name: str) -> tuple[tuple[int, ...], DescriptorProto] | None:
    """Return the indexes and the type of a message in a file; None if the file has no such message."""
    for indexes, name, message in _messages(file.message_type, (), file.package):
        if name == full_name:
            return indexes, message
    return None


def _messages(
    siblings: Sequence[DescriptorProto], path: tuple[int, ...], scope: str
) -> Iterator[tuple[tuple[int, ...], str, DescriptorProto]]:
    for index, message in enumerate(siblings):
        name = f"{scope}.{message.name}" if scope else message.name
        yield (*path, index), name, message
        yield from _messages(message.nested_type, (*path, index), name)


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """Return the bytes of a path of indexes: their number and the indexes as zigzag varints; the common path 0 is one zero byte."""
    if tuple(indexes) == (0,):
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def split_indexes(value: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the path of indexes at the beginning of a value, and the bytes after it.

    Raises:
        UndecodableValue: the value begins with no such path.
    """
    count, at = _read_index(value, 0)
    if count > _MAX_DEPTH:
        raise UndecodableValue(f"no Protobuf message of a schema registry: it begins with {count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _read_index(value, at)
        indexes.append(index)
    return tuple(indexes) or (0,), value[at:]


def _read_index(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(value[at : at + _MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            if number & 1:
                break  # negative
            return number >> 1, at + shift + 1
    raise UndecodableValue("no Protobuf message of a schema registry: its message indexes are cut or invalid")


def _lines(text: str) -> list[str]:
    """Return one line for each field and each enum value of a schema."""
    file = file_of(RegistrySchema(text))
    if file is None:
        return text.splitlines()
    lines = []
    for _, name, message in _messages(file.message_type, (), file.package):
        lines.append(f"message {name}")
        lines += [f"  {_type_of(field)} {field.name} = {field.number}" for field in message.field]
        lines += [f"  {each.name}.{value.name} = {value.number}" for each in message.enum_type for value in each.value]
    return [*lines, *(f"{each.name}.{value.name} = {value.number}" for each in file.enum_type for value in each.value)]


def _type_of(field: FieldDescriptorProto) -> str:
    kind = field.type_name.lstrip(".") or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    is_optional = field.proto3_optional
    label = FieldDescriptorProto.Label.Name(field.label).removeprefix("LABEL_").lower()
    return f"{label} {kind}" if is_optional or label != "optional" else kind


PROTOBUF = SchemaKind("PROTOBUF", "serialized", _lines)
