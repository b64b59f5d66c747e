"""The shapes and the contents of Protobuf messages, by their registered schemas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from ....transport.codecs import TIMESTAMP, WRAPPERS, descriptor_of, enum_of, is_map, message_of
from .avro_shape import RECURSIVE
from .shape import Shape

_F = FieldDescriptor
_KINDS = {
    _F.CPPTYPE_DOUBLE: "float",
    _F.CPPTYPE_FLOAT: "float",
    _F.CPPTYPE_BOOL: "bool",
    _F.CPPTYPE_ENUM: "str",
    _F.CPPTYPE_INT32: "int",
    _F.CPPTYPE_INT64: "int",
    _F.CPPTYPE_UINT32: "int",
    _F.CPPTYPE_UINT64: "int",
}


def shape_of_message(descriptor: Descriptor) -> Shape:
    """Return the shape of messages of a type, as if there were one."""
    return _message_shape(descriptor, ())


def _message_shape(descriptor: Descriptor, around: tuple[str, ...]) -> Shape:
    name = descriptor.full_name
    if name == TIMESTAMP:
        return Shape(1, {"datetime": 1})
    if name in WRAPPERS:
        return _value_shape(descriptor.fields_by_name["value"], around)
    if name in around:
        return Shape(1, {RECURSIVE: 1})
    if name.startswith("google.protobuf."):
        return Shape(1, {name: 1})  # no type of a record
    return Shape(1, {"object": 1}, fields={one.name: _field_shape(one, (*around, name)) for one in descriptor.fields})


def _field_shape(field: FieldDescriptor, around: tuple[str, ...]) -> Shape:
    if is_map(field):
        entry = message_of(field).fields_by_name
        if entry["key"].cpp_type != _F.CPPTYPE_STRING:
            return Shape(1, {"map with keys that are no text": 1})
        return Shape(1, {"map": 1}, items=_value_shape(entry["value"], around))
    if field.is_repeated:
        return Shape(1, {"list": 1}, items=_value_shape(field, around))
    shape = _value_shape(field, around)
    if field.has_presence and not field.is_required:
        shape.make_optional()
    return shape


def _value_shape(field: FieldDescriptor, around: tuple[str, ...]) -> Shape:
    if field.cpp_type == _F.CPPTYPE_MESSAGE:
        return _message_shape(message_of(field), around)
    return Shape(1, {_kind_of(field): 1})


def _kind_of(field: FieldDescriptor) -> str:
    return "bytes" if field.type == _F.TYPE_BYTES else _KINDS.get(field.cpp_type, "str")


def content_of(message: Message) -> Mapping[str, Any]:
    """Return the plain values of a message; None for absent ones."""
    return {field.name: _content_of_field(message, field) for field in descriptor_of(type(message)).fields}


def _content_of_field(message: Message, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        item = message_of(field).fields_by_name["value"]
        return {key: _content(value[key], item) for key in value}
    if field.is_repeated:
        return [_content(item, field) for item in value]
    return None if field.has_presence and not message.HasField(field.name) else _content(value, field)


def _content(value: Any, field: FieldDescriptor) -> Any:
    if field.cpp_type == _F.CPPTYPE_ENUM:
        names = enum_of(field).values_by_number
        return names[value].name if value in names else str(value)
    if field.cpp_type != _F.CPPTYPE_MESSAGE:
        return value
    name = message_of(field).full_name
    if name == TIMESTAMP:
        return value.ToDatetime(tzinfo=UTC)
    return value.value if name in WRAPPERS else content_of(value)
