"""Avro: the record type determines the schema, and each message contains the fingerprint of its schema.

The bytes are Avro's single-object encoding: the marker C3 01, the schema's CRC-64-AVRO fingerprint, the body. A reader
whose record type has changed reads old messages by Avro's schema resolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, to_parsing_canonical_form
from fastavro.schema import fingerprint as fingerprint_of
from fastavro.types import Schema as AvroSchema
from msgspec import inspect as shapes

from ...processors import DeclarationError, with_capital_article
from ...processors.declare import (
    EPOCH,
    RECORD_SHAPES,
    AnyRecord,
    Decoded,
    InvalidRecord,
    Message,
    Payload,
    RecordCheck,
    decimal_digits,
    fields_of,
    plain,
    primitive,
    reader_of,
    without_null,
)
from ...processors.models import encode_model
from ..tables import Schemas, UnknownSchema
from .decoded import MissingEventTime, UndecodableValue, decode_singly, lacks_event_time, reject_out_of_range, value_of

MARKER = b"\xc3\x01"
BODY_AT = len(MARKER) + 8

UNREADABLE = (
    ValueError,
    OverflowError,
    EOFError,
    IndexError,
    TypeError,
    SchemaParseException,
    SchemaResolutionError,
    UnknownSchema,
)
"""What fastavro and the search for a schema raise for bytes that do not match their schema; OverflowError for a time after the year 9999."""

_SCALARS: dict[type, AvroSchema] = {
    shapes.BoolType: "boolean",
    shapes.IntType: "long",
    shapes.FloatType: "double",
    shapes.StrType: "string",
    shapes.BytesType: "bytes",
    shapes.DateTimeType: {"type": "long", "logicalType": "timestamp-micros"},
    shapes.DateType: {"type": "int", "logicalType": "date"},
    shapes.UUIDType: {"type": "string", "logicalType": "uuid"},
}
NATIVE = (bytes, datetime, date, Decimal, UUID)
"""The types of values that fastavro encodes by their logical types."""


def schema_of(record: type[AnyRecord]) -> dict[str, Any]:
    """Return the Avro schema of a record type.

    Raises:
        DeclarationError: Avro has no counterpart for the type of a field.
    """
    return _record_schema(record, fields_of(record), set())


def _record_schema(record: type, fields: dict[str, shapes.Field], named: set[str]) -> dict[str, Any]:
    named.add(record.__name__)
    return {
        "type": "record",
        "name": record.__name__,
        "fields": [_field_schema(record, name, field, named) for name, field in fields.items()],
    }


def _field_schema(record: type, name: str, field: shapes.Field, named: set[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"name": name, "type": _type_schema(record, name, field.type, named)}
    if not field.required:
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        schema["default"] = _default(field.type, default)
        if default is not None and isinstance(schema["type"], list):
            # Avro takes a union's default to be of its first branch.
            schema["type"] = schema["type"][::-1]
    return schema


def _default(shape: Any, value: Any) -> Any:
    """Return a default as Avro represents it in schemas."""
    kind, _ = without_null(shape)
    if isinstance(kind, RECORD_SHAPES) and value is not None:
        return {field.encode_name: _default(field.type, getattr(value, field.name)) for field in kind.fields}
    match value:
        case list() | tuple() if isinstance(kind, (shapes.ListType, shapes.VarTupleType)):
            return [_default(kind.item_type, item) for item in value]
        case dict() if isinstance(kind, shapes.DictType):
            return {key: _default(kind.value_type, item) for key, item in value.items()}
        case datetime() | date() | Decimal():
            return _logical_default(shape, value)
    return msgspec.json.decode(msgspec.json.encode(value))


def _logical_default(shape: Any, value: datetime | date | Decimal) -> int | str:
    """Return a default of a logical type as the number or the bytes that represent it."""
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(decimal_digits(shape).scale))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True).decode("latin-1")
    if not isinstance(value, datetime):
        return (value - EPOCH.date()).days
    if value.utcoffset() is None:
        raise DeclarationError(
            f"The default {value.isoformat()} is a datetime without an offset from UTC. Declare its `tzinfo`."
        )
    return (value - EPOCH) // timedelta(microseconds=1)


def _type_schema(record: type, name: str, declared: Any, named: set[str]) -> Any:
    shape, optional = without_null(declared)
    schema = _value_schema(record, name, declared, shape, named)
    return ["null", schema] if optional else schema


def _value_schema(record: type, name: str, declared: Any, shape: Any, named: set[str]) -> Any:
    match shape:
        case shapes.ListType() | shapes.VarTupleType():
            return {"type": "array", "items": _type_schema(record, name, shape.item_type, named)}
        case shapes.DictType() if isinstance(plain(shape.key_type), shapes.StrType):
            return {"type": "map", "values": _type_schema(record, name, shape.value_type, named)}
        case shapes.StructType() | shapes.DataclassType() if shape.cls.__name__ in named:
            return shape.cls.__name__
        case shapes.StructType() | shapes.DataclassType():
            return _record_schema(shape.cls, {field.encode_name: field for field in shape.fields}, named)
        case shapes.DecimalType():
            digits = decimal_digits(declared)
            return {"type": "bytes", "logicalType": "decimal", "precision": digits.precision, "scale": digits.scale}
    try:
        return _SCALARS[type(primitive(shape))]
    except KeyError:
        raise DeclarationError(
            f"{record.__name__}.{name}: Avro has no counterpart for {type(shape).__name__.removesuffix('Type').lower()} "
            "fields. Use bool, int, float, str, bytes, datetime, date, Decimal, UUID, an enum, a list, a dict with str keys, a record, or one of these | None; "
            "or the JSON codec."
        ) from None


def mismatch_in_words(error: Exception) -> str:
    """Return why bytes do not match their schema: one of the errors `UNREADABLE`."""
    if isinstance(error, OverflowError) or str(error).startswith(("year ", "ordinal ")):
        return f"a date or time in it is outside the years 1 to 9999 ({error})"
    return f"{type(error).__name__}: {error}"


class _Resolution(NamedTuple):
    """The schemas of a message's writer and of the record.

    Args:
        written: the writer's schema.
        ours: the record's schema.
        absent: the fields that the writer lacks. Their defaults come from the record, as fastavro does not convert those of logical types.
    """

    written: AvroSchema
    ours: AvroSchema
    absent: Sequence[str]


def fingerprint_with_logical_types(schema: dict[str, Any]) -> bytes:
    """Return the CRC-64-AVRO fingerprint of a schema.

    Avro's canonical form omits logical types, although the meaning of a value depends on them. With logical types, the fingerprint is
    therefore of the whole schema.
    """
    whole = msgspec.json.encode(schema, order="sorted").decode()
    text = whole if '"logicalType":' in whole else to_parsing_canonical_form(parse_schema(schema))
    return bytes.fromhex(fingerprint_of(text, "CRC-64-AVRO"))


class AvroCodec:
    """Encodes with the record type's schema. Decodes each message with its own schema."""

    def __init__(self, payload: Payload, schemas: Schemas) -> None:
        self._record = payload.record
        self._reader = reader_of(payload.record)
        self._event_time = payload.event_time
        self._schemas = schemas
        self._schema: AvroSchema = parse_schema(schema_of(payload.record))
        self._check = RecordCheck(payload.record)
        self._read_check = RecordCheck(payload.record, unchecked_field=payload.event_time)
        self._fingerprint: bytes | None = None
        self._resolutions: dict[bytes, _Resolution] = {}

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the bytes of each record; publishes the schema first."""
        self._check.expect(records)
        prefix = MARKER + (self._fingerprint or self._publish())
        schema, encoded = self._schema, []
        try:
            with self._check.naming_text(records):
                for fields in msgspec.to_builtins(records, builtin_types=NATIVE, enc_hook=encode_model):
                    out = BytesIO()
                    out.write(prefix)
                    schemaless_writer(out, schema, fields)
                    encoded.append(out.getvalue())
        except InvalidRecord:
            raise
        except (ValueError, KeyError, OverflowError, TypeError) as error:
            raise TypeError(
                f"{with_capital_article(self._record.__name__)} violates its own type: {error}. Nothing was sent. Correct the values, or the type."
            ) from error
        return encoded

    def _publish(self) -> bytes:
        fingerprint = fingerprint_with_logical_types(schema_of(self._record))
        self._schemas.add(fingerprint, schema_of(self._record))
        self._fingerprint = fingerprint  # only now: a worker encodes again after an outage
        return fingerprint

    def decode(self, messages: Sequence[Message]) -> Decoded:
        """Decode a batch."""
        return reject_out_of_range(decode_singly(messages, self._decode_one), self._read_check)

    def _decode_one(self, message: Message) -> Any:
        value = value_of(message)
        if value[: len(MARKER)] != MARKER or len(value) < BODY_AT:
            raise UndecodableValue("not an Avro message: it does not begin with Avro's single-object marker C3 01")
        fields = self._read_fields(value)
        if lacks_event_time(fields, self._event_time):
            raise MissingEventTime(f"no event time: {self._event_time!r} is missing or null")
        return self._reader.from_fields(fields)

    def _read_fields(self, value: bytes) -> dict[str, Any]:
        body = BytesIO(value)
        body.seek(BODY_AT)
        try:
            resolution = self._resolution(value[len(MARKER) : BODY_AT])
            fields = schemaless_reader(body, resolution.written, resolution.ours)
        except UNREADABLE as error:
            raise UndecodableValue(f"it does not match its schema: {mismatch_in_words(error)}") from error
        if not isinstance(fields, dict):
            raise UndecodableValue("its schema is not a record's")
        for name in resolution.absent:
            fields.pop(name, None)
        return fields

    def _resolution(self, fingerprint: bytes) -> _Resolution:
        """Return the writer's schema, and the reader's schema under the same name.

        Avro resolves only records of equal names. In a category the names may differ, after the class was renamed.
        """
        if fingerprint not in self._resolutions:
            written = self._schemas.find(fingerprint)
            ours = {**schema_of(self._record), "name": written.get("name", self._record.__name__)}
            names = {field["name"] for field in written.get("fields", ())}
            absent = [name for name in fields_of(self._record) if name not in names]
            self._resolutions[fingerprint] = _Resolution(parse_schema(written), parse_schema(ours), absent)
        return self._resolutions[fingerprint]
