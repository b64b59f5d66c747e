"""Records as Protobuf messages: fields match by name, and their types are compared once, before the first event.

record --msgspec--> plain fields --one function for each field--> message --> bytes, and back
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

import msgspec
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message
from msgspec import inspect as shapes

from ...processors import DeclarationError, did_you_mean, with_capital_article
from ...processors.declare import (
    EPOCH,
    RECORD_SHAPES,
    AnyRecord,
    InvalidRecord,
    fields_of,
    plain,
    primitive,
    without_null,
)
from ...processors.models import encode_model
from .decoded import UndecodableValue
from .protobuf_schemas import descriptor_of

TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = {
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_F = FieldDescriptor
_SCALAR_NAMES = {
    _F.TYPE_DOUBLE: "double",
    _F.TYPE_FLOAT: "float",
    _F.TYPE_INT64: "int64",
    _F.TYPE_UINT64: "uint64",
    _F.TYPE_INT32: "int32",
    _F.TYPE_FIXED64: "fixed64",
    _F.TYPE_FIXED32: "fixed32",
    _F.TYPE_BOOL: "bool",
    _F.TYPE_STRING: "string",
    _F.TYPE_BYTES: "bytes",
    _F.TYPE_UINT32: "uint32",
    _F.TYPE_SFIXED32: "sfixed32",
    _F.TYPE_SFIXED64: "sfixed64",
    _F.TYPE_SINT32: "sint32",
    _F.TYPE_SINT64: "sint64",
}
_TEXT = (shapes.StrType, shapes.UUIDType, shapes.DecimalType, shapes.DateType)
_SCALARS: dict[str, tuple[type, ...]] = {
    "double": (shapes.FloatType,),
    "float": (shapes.FloatType,),
    "bool": (shapes.BoolType,),
    "string": _TEXT,
    "bytes": (shapes.BytesType,),
}
"""The types of record fields for each scalar type; integers for the others."""
_NANOS_PER_MS = 1_000_000
_TIMESTAMP_SECONDS = range(-62_135_596_800, 253_402_300_800)
"""The years 1 to 9999."""


class _Scalar(NamedTuple):
    """Converts a plain value that is set by assignment; None for no conversion."""

    to_message: Callable[[Any], Any] | None = None
    to_plain: Callable[[Any], Any] | None = None


class _Nested(NamedTuple):
    """Converts a plain value that is a message in the message."""

    fill: Callable[[Any, Any], None]
    read: Callable[[Any], Any]


class _Field(NamedTuple):
    """One field of a record and a message.

    Args:
        name: the name.
        put: sets a value in a message.
        get: returns the plain value of a message.
        has_presence: whether the message distinguishes an absent value.
        is_optional: whether the record accepts None.
        default: the plain value if the record omits its defaults.
    """

    name: str
    put: Callable[[Any, Any], None]
    get: Callable[[Any], Any]
    has_presence: bool
    is_optional: bool
    default: Any


class _Mismatch(Exception):
    """The types of a field differ."""


class MessageMapping:
    """Converts the plain fields of records to the bytes of messages and back.

    Args:
        category: the name of the category, for errors.
        record: the record type.
        message: the message class.

    Raises:
        DeclarationError: a field of the record is not in the message, or has another type there.
    """

    native = (bytes, datetime)
    """The types that plain fields contain as they are."""

    def __init__(self, category: str, record: type[AnyRecord], message: type[Message]) -> None:
        self._category = category
        self._record = record
        self._message = message
        self.descriptor = descriptor_of(message)
        matcher = _Matcher()
        self._fields = matcher.fields(record.__name__, fields_of(record).values(), self.descriptor)
        if matcher.mismatches:
            lines = "".join(f"\n  {mismatch}" for mismatch in matcher.mismatches)
            raise DeclarationError(
                f"Category {category}: {record.__name__} does not fit the message {self.descriptor.full_name}. No event was read or written. "
                f"Change the record type or the .proto file:{lines}"
            )

    @property
    def names(self) -> list[str]:
        """The names of the record's fields."""
        return [field.name for field in self._fields.fields]

    def to_bytes(self, fields: Mapping[str, Any]) -> bytes:
        """Return the bytes of a message; equal fields have equal bytes.

        Raises:
            InvalidRecord: the message cannot represent a value.
        """
        message = self._message()
        try:
            self._fields.fill(message, fields)
            return message.SerializeToString(deterministic=True)
        except (ValueError, TypeError, OverflowError, EncodeError) as error:
            raise InvalidRecord(
                f"{with_capital_article(self._record.__name__)} does not fit the Protobuf message of {self._category}: {error}. Nothing was sent. Correct the values, or "
                "the type."
            ) from error

    def to_fields(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a message.

        Raises:
            UndecodableValue: the bytes are no such message, or contain a value that the record cannot represent.
        """
        message = self._message()
        try:
            message.ParseFromString(value)
        except DecodeError as error:
            raise UndecodableValue(f"not a Protobuf message {self.descriptor.full_name}: {error}") from error
        return self._fields.read(message)


@dataclass
class _Fields:
    """The matching fields of a record and a message."""

    fields: list[_Field]
    oneofs: list[tuple[str, list[str]]]

    def fill(self, message: Any, values: Mapping[str, Any]) -> None:
        for oneof, names in self.oneofs:
            present = [name for name in names if values.get(name) is not None]
            if len(present) > 1:
                raise ValueError(f"{' and '.join(present)} are in one oneof, {oneof}, which has one value at most")
        for field in self.fields:
            value = values.get(field.name, field.default)
            if value is not None:
                _fill_one(field, message, value)

    def read(self, message: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in self.fields:
            if not field.has_presence or message.HasField(field.name):
                found[field.name] = field.get(message)
            elif field.is_optional:
                found[field.name] = None
        return found


def _fill_one(field: _Field, message: Any, value: Any) -> None:
    try:
        field.put(message, value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"`{field.name}`: {error}") from error


class _Matcher:
    """Matches record types with message types, and collects their mismatches."""

    def __init__(self) -> None:
        self.mismatches: list[str] = []
        self._found: dict[tuple[type, str], _Fields] = {}

    def fields(self, owner: str, declared: Any, descriptor: Descriptor) -> _Fields:
        """Return the matching fields of one type.

        Args:
            owner: the name of the record type, or the path of a nested record, for errors.
            declared: the fields of the record type.
            descriptor: the type of the message.
        """
        fields = _Fields([], [])
        self._match(owner, list(declared), descriptor, fields)
        return fields

    def _match(self, owner: str, declared: list[shapes.Field], descriptor: Descriptor, fields: _Fields) -> None:
        known = descriptor.fields_by_name
        names = {field.encode_name for field in declared}
        for field in declared:
            name = field.encode_name
            if name not in known:
                hint = did_you_mean(name, [each for each in known if each not in names])
                self.mismatches.append(
                    f"{owner}.{name} is not a field of {descriptor.full_name}, which has {', '.join(known) or 'none'}.{hint}"
                )
                continue
            try:
                fields.fields.append(self._field(owner, field, known[name]))
            except (_Mismatch, DeclarationError) as error:
                self.mismatches.append(
                    f"{owner}.{name} is {_named(field.type)}, but {_proto_type(known[name])} in {descriptor.full_name}{_because(error)}"
                )
        self.mismatches += [
            f"{owner} has no field {name}, which {descriptor.full_name} requires"
            for name, field in known.items()
            if field.is_required and name not in names
        ]
        fields.oneofs += [
            (oneof.name, members)
            for oneof in descriptor.oneofs
            if len(members := [field.name for field in oneof.fields if field.name in names]) > 1
        ]

    def _field(self, owner: str, field: shapes.Field, proto: FieldDescriptor) -> _Field:
        name = proto.name
        shape, is_optional = without_null(field.type)
        if is_optional and not proto.has_presence:
            raise _Mismatch("it has no presence, so None would become an empty value: declare it `optional` there")
        if not is_optional and _oneof_of(proto) is not None:
            raise _Mismatch(
                f"it is absent if another field of the oneof {_oneof_of(proto)} is set: declare it with `| None`"
            )
        put, get = self._access(f"{owner}.{name}", shape, proto)
        return _Field(name, put, get, proto.has_presence, is_optional, _default_of(field))

    def _access(
        self, owner: str, shape: Any, proto: FieldDescriptor
    ) -> tuple[Callable[[Any, Any], None], Callable[[Any], Any]]:
        if is_map(proto):
            return self._map_access(owner, shape, proto)
        if proto.is_repeated:
            if not isinstance(shape, (shapes.ListType, shapes.VarTupleType)):
                raise _Mismatch
            return _list_access(proto.name, self._item(owner, shape.item_type, proto))
        return _single_access(proto.name, self._converter(owner, shape, proto))

    def _map_access(
        self, owner: str, shape: Any, proto: FieldDescriptor
    ) -> tuple[Callable[[Any, Any], None], Callable[[Any], Any]]:
        if not isinstance(shape, shapes.DictType):
            raise _Mismatch
        entry = message_of(proto).fields_by_name
        key = self._item(owner, shape.key_type, entry["key"])
        if key != _Scalar():
            raise _Mismatch("the keys differ")
        return _dict_access(proto.name, self._item(owner, shape.value_type, entry["value"]))

    def _item(self, owner: str, declared: Any, proto: FieldDescriptor) -> _Scalar | _Nested:
        shape, is_optional = without_null(declared)
        if is_optional:
            raise _Mismatch("a list or a map contains no None")
        return self._converter(owner, shape, proto)

    def _converter(self, owner: str, shape: Any, proto: FieldDescriptor) -> _Scalar | _Nested:
        if proto.type == _F.TYPE_ENUM:
            return _enum(shape, proto)
        if proto.type == _F.TYPE_MESSAGE:
            return self._nested(owner, shape, message_of(proto))
        wanted = _SCALARS.get(_SCALAR_NAMES.get(proto.type, ""), (shapes.IntType,))
        if proto.type not in _SCALAR_NAMES or not isinstance(primitive(shape), wanted):
            raise _Mismatch
        return _Scalar(_float32) if proto.type == _F.TYPE_FLOAT else _Scalar()

    def _nested(self, owner: str, shape: Any, descriptor: Descriptor) -> _Nested:
        if isinstance(shape, RECORD_SHAPES):
            fields = self._struct(owner, shape, descriptor)
            return _Nested(fields.fill, fields.read)
        if descriptor.full_name == TIMESTAMP and isinstance(shape, (shapes.DateTimeType, shapes.IntType)):
            return _AS_DATETIME if isinstance(shape, shapes.DateTimeType) else _AS_MS
        if descriptor.full_name in WRAPPERS:
            put, get = self._access(owner, shape, descriptor.fields_by_name["value"])
            return _Nested(put, get)
        raise _Mismatch

    def _struct(self, owner: str, shape: shapes.StructType | shapes.DataclassType, descriptor: Descriptor) -> _Fields:
        key = (shape.cls, descriptor.full_name)
        if key not in self._found:
            self._found[key] = _Fields([], [])  # first, because a record may contain records of its own type
            self._match(owner, list(shape.fields), descriptor, self._found[key])
        return self._found[key]


def _single_access(name: str, converter: _Scalar | _Nested) -> tuple[Callable[[Any, Any], None], Callable[[Any], Any]]:
    if isinstance(converter, _Nested):
        fill, read = converter

        def fill_message(message: Any, value: Any) -> None:
            nested = getattr(message, name)
            nested.SetInParent()
            fill(nested, value)

        return fill_message, lambda message: read(getattr(message, name))
    to_message, to_plain = converter.to_message, converter.to_plain
    put = (
        (lambda message, value: setattr(message, name, to_message(value)))
        if to_message
        else (lambda message, value: setattr(message, name, value))
    )
    get = (lambda message: to_plain(getattr(message, name))) if to_plain else (lambda message: getattr(message, name))
    return put, get


def _list_access(name: str, converter: _Scalar | _Nested) -> tuple[Callable[[Any, Any], None], Callable[[Any], Any]]:
    if isinstance(converter, _Nested):
        fill, read = converter

        def add_messages(message: Any, values: Any) -> None:
            container = getattr(message, name)
            for value in values:
                fill(container.add(), value)

        return add_messages, lambda message: [read(one) for one in getattr(message, name)]
    to_message, to_plain = converter.to_message, converter.to_plain

    def extend(message: Any, values: Any) -> None:
        getattr(message, name).extend(map(to_message, values) if to_message else values)

    return extend, lambda message: list(map(to_plain, getattr(message, name)) if to_plain else getattr(message, name))


def _dict_access(name: str, converter: _Scalar | _Nested) -> tuple[Callable[[Any, Any], None], Callable[[Any], Any]]:
    if isinstance(converter, _Nested):
        fill, read = converter

        def fill_entries(message: Any, values: Mapping[Any, Any]) -> None:
            container = getattr(message, name)
            for key, value in values.items():
                fill(container[key], value)

        return fill_entries, lambda message: {key: read(one) for key, one in getattr(message, name).items()}
    to_message, to_plain = converter.to_message, converter.to_plain

    def put_entries(message: Any, values: Mapping[Any, Any]) -> None:
        container = getattr(message, name)
        for key, value in values.items():
            container[key] = to_message(value) if to_message else value

    def entries(message: Any) -> dict[Any, Any]:
        items = getattr(message, name).items()
        return {key: to_plain(one) for key, one in items} if to_plain else dict(items)

    return put_entries, entries


def _enum(shape: Any, proto: FieldDescriptor) -> _Scalar:
    """Return the conversion of an enum: the members of a Python enum by name or value, a str by name, an int by number."""
    numbers = {value.name: value.number for value in enum_of(proto).values}
    if isinstance(shape, shapes.IntType):
        return _Scalar()
    match shape:
        case shapes.EnumType():
            members = {member.value: member.name if member.name in numbers else member.value for member in shape.cls}
        case shapes.LiteralType():
            members = {value: value for value in shape.values if value is not None}
        case shapes.StrType():
            members = {name: name for name in numbers}
        case _:
            raise _Mismatch
    unknown = [str(name) for name in members.values() if name not in numbers]
    if unknown:
        raise _Mismatch(f"it has no value {', '.join(unknown)}; its values are {', '.join(numbers)}")
    by_value = {value: numbers[name] for value, name in members.items()}
    by_number = {number: value for value, number in reversed(by_value.items())}
    names = {number: name for name, number in numbers.items()}

    def to_number(value: Any) -> int:
        if value not in by_value:
            raise ValueError(f"{value!r} is not a value of {enum_of(proto).full_name}")
        return by_value[value]

    def to_value(number: int) -> Any:
        if number not in by_number:
            raise UndecodableValue(f"`{proto.name}` is {names.get(number, number)}, which {_named(shape)} lacks")
        return by_number[number]

    return _Scalar(to_number, to_value)


def _float32(value: float) -> float:
    struct.pack("f", value)  # raises OverflowError, where Protobuf writes infinity
    return value


def _fill_datetime(timestamp: Any, value: datetime) -> None:
    since = value - EPOCH
    timestamp.seconds = since.days * 86_400 + since.seconds
    timestamp.nanos = since.microseconds * 1_000


def _read_datetime(timestamp: Any) -> datetime:
    _expect_range(timestamp)
    return EPOCH + timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // 1_000)


def _fill_ms(timestamp: Any, value: int) -> None:
    seconds, ms = divmod(value, 1_000)
    if seconds not in _TIMESTAMP_SECONDS:
        raise ValueError(f"{value} ms is outside the years 1 to 9999")
    timestamp.seconds, timestamp.nanos = seconds, ms * _NANOS_PER_MS


def _read_ms(timestamp: Any) -> int:
    _expect_range(timestamp)
    return int(timestamp.seconds * 1_000 + timestamp.nanos // _NANOS_PER_MS)


def _expect_range(timestamp: Any) -> None:
    if timestamp.seconds not in _TIMESTAMP_SECONDS or not 0 <= timestamp.nanos < 1_000 * _NANOS_PER_MS:
        raise UndecodableValue(
            f"a Timestamp of {timestamp.seconds} s and {timestamp.nanos} ns is outside the years 1 to 9999, or not normalized"
        )


_AS_DATETIME = _Nested(_fill_datetime, _read_datetime)
_AS_MS = _Nested(_fill_ms, _read_ms)


def _default_of(field: shapes.Field) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field.default_factory(), builtin_types=MessageMapping.native, enc_hook=encode_model)
    if field.default is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field.default, builtin_types=MessageMapping.native, enc_hook=encode_model)
    return None


def message_of(proto: FieldDescriptor) -> Descriptor:
    """Return the type of a field that is a message."""
    return cast("Descriptor", proto.message_type)


def enum_of(proto: FieldDescriptor) -> EnumDescriptor:
    """Return the type of a field that is an enum."""
    return cast("EnumDescriptor", proto.enum_type)


def is_map(proto: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    return bool(proto.type == _F.TYPE_MESSAGE and message_of(proto).GetOptions().map_entry)


def _oneof_of(proto: FieldDescriptor) -> str | None:
    """Return the name of a field's oneof; None for the implied oneof of a single `optional` field."""
    oneof = proto.containing_oneof
    return None if oneof is None or (len(oneof.fields) == 1 and oneof.name == f"_{proto.name}") else oneof.name


def _because(error: Exception) -> str:
    return f": {error}" if str(error) else ""


def proto_type_name(proto: FieldDescriptor) -> str:
    """Return the type of a single value: a scalar, an enum or a message."""
    if proto.type == _F.TYPE_ENUM:
        return f"enum {enum_of(proto).full_name}"
    return _SCALAR_NAMES.get(proto.type) or str(message_of(proto).full_name)


def _proto_type(proto: FieldDescriptor) -> str:
    if is_map(proto):
        entry = message_of(proto).fields_by_name
        return f"map<{proto_type_name(entry['key'])}, {proto_type_name(entry['value'])}>"
    return f"repeated {proto_type_name(proto)}" if proto.is_repeated else proto_type_name(proto)


_NAMES: dict[type, str] = {
    shapes.IntType: "int",
    shapes.FloatType: "float",
    shapes.StrType: "str",
    shapes.BytesType: "bytes",
    shapes.BoolType: "bool",
    shapes.NoneType: "None",
    shapes.AnyType: "Any",
    shapes.DateTimeType: "datetime",
    shapes.DateType: "date",
    shapes.DecimalType: "Decimal",
    shapes.UUIDType: "UUID",
}


def _named(shape: Any) -> str:
    """Return a type as Python writes it."""
    match shape := plain(shape):
        case shapes.EnumType() | shapes.StructType() | shapes.DataclassType():
            return str(shape.cls.__name__)
        case shapes.LiteralType():
            return f"Literal[{', '.join(map(repr, shape.values))}]"
        case shapes.VarTupleType():
            return f"tuple[{_named(shape.item_type)}, ...]"
        case shapes.ListType() | shapes.DictType():
            return f"{'list' if isinstance(shape, shapes.ListType) else 'dict'}[{', '.join(map(_named, _arguments(shape)))}]"
        case shapes.UnionType():
            return " | ".join(map(_named, shape.types))
    kind: type = type(shape)
    return _NAMES.get(kind, kind.__name__.removesuffix("Type").lower())


def _arguments(shape: shapes.ListType | shapes.DictType) -> tuple[Any, ...]:
    return (shape.item_type,) if isinstance(shape, shapes.ListType) else (shape.key_type, shape.value_type)
