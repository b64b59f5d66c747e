"""Conversion of record types to Arrow schemas, and of batches of records to columns and back.

Flat fields are converted as lists of plain values. msgspec first takes apart lists, dicts and nested records.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from operator import attrgetter
from typing import Any, get_type_hints

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import inspect as shapes

from ...processors import DeclarationError, runs_of
from ...processors.declare import (
    AnyRecord,
    RecordType,
    conversion_of,
    decimal_digits,
    fields_of,
    is_union,
    members_of,
    numbers_of,
    plain,
    primitive,
    tag_of,
    type_name,
    without_null,
)
from ...processors.models import described, encode_model, is_model, model_from
from .layout import DAY_MS, day_of

_MARKS: list[pa.Field[Any]] = [
    pa.field("_bucket", pa.int32(), nullable=False),
    pa.field("_offset", pa.int64(), nullable=False),
    pa.field("_key", pa.string()),
    pa.field("_event_time", pa.int64(), nullable=False),
    pa.field("_arrived", pa.int64(), nullable=False),
]
MARKS = pa.schema(_MARKS)
"""The origin of each archived event; times in milliseconds since 1970, UTC."""

ELEMENT: pa.Field[Any] = pa.field("_element", pa.int32())
"""The index of an event in its message, in categories whose messages may contain several events; null for earlier archives."""

OUTPUT_MARKS = pa.schema([MARKS.field("_key"), MARKS.field("_event_time")])
"""The columns of a batch run's output, beside its record's."""
EVENT_MARKS = ("_bucket", "_offset", "_event_time", "_arrived")
"""The bucket, offset and times of an event, without its key, which is in its record."""
DAY_COLUMN = "ds"
ROW = "_row"
"""The index of an event in its batch, while the batch is split."""
CONVERSION_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)
"""The errors for a value that does not fit its column, such as an integer beyond 64 bits."""

_RESERVED = frozenset([*MARKS.names, ELEMENT.name, DAY_COLUMN, ROW])
_SCALARS: dict[type, pa.DataType] = {
    shapes.BoolType: pa.bool_(),
    shapes.IntType: pa.int64(),
    shapes.FloatType: pa.float64(),
    shapes.StrType: pa.string(),
    shapes.BytesType: pa.binary(),
    shapes.DateTimeType: pa.timestamp("us", tz="UTC"),
    shapes.DateType: pa.date32(),
    shapes.UUIDType: pa.string(),
    shapes.AnyType: pa.string(),
}
"""The types of columns; of any value, the text of its JSON."""
_LOWERED = {shapes.UUIDType, shapes.EnumType, shapes.AnyType}
"""The scalars whose values Arrow does not accept as they are."""
_NATIVE = (bytes, datetime, date, Decimal)
"""The types of values, besides JSON's, that Arrow accepts."""


class RecordColumns:
    """The columns of a category's record type.

    A union of types has a column for the tag, and the fields of all types; a field that some of the types lack is null there.

    Args:
        record: the type.

    Raises:
        DeclarationError: a field has no column type, or a reserved name.
    """

    def __init__(self, record: RecordType) -> None:
        self._types = {member: _TypeColumns(member, fields_of(member)) for member in members_of(record)}
        self._union = _UnionColumns(record, self._types) if is_union(record) else None
        self._only = next(iter(self._types.values()))
        self.schema = self._union.schema if self._union else self._only.schema

    def arrays(self, records: Sequence[Any]) -> list[pa.Array[Any]]:
        """Return the columns of records.

        Raises:
            pa.ArrowInvalid, pa.ArrowTypeError, OverflowError: a value does not fit; see `CONVERSION_ERRORS`.
        """
        return self._union.arrays(records) if self._union else self._only.arrays(records)

    def records(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the records of a batch with at least these columns.

        A null in a required field was written before the field existed, and becomes the field's default.

        Raises:
            DeclarationError: the field has no default, or an event has a tag that is in no type of the union.
        """
        return self._union.records(batch) if self._union else self._only.records(batch)

    def filled(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """Return some fields of a batch as columns, with the defaults of `records`; those of a union as they are.

        Raises:
            DeclarationError: as in `records`.
        """
        return batch.select(list(names)) if self._union else self._only.filled(batch, names)


class _UnionColumns:
    """The columns of several record types with tags.

    Args:
        record: the union.
        types: the columns of each type.
    """

    def __init__(self, record: RecordType, types: Mapping[type[AnyRecord], _TypeColumns]) -> None:
        self._types = types
        self._tags = {tag: member for member in types if (found := tag_of(member)) for tag in [found[1]]}
        self._tag_of = {member: tag for tag, member in self._tags.items()}
        merged = _TypeColumns(members_of(record)[0], fields_of(record))
        self._tag_field = next(found[0] for member in types if (found := tag_of(member)))
        if self._tag_field in merged.schema.names or self._tag_field in _RESERVED:
            raise DeclarationError(
                f"The tag field {self._tag_field!r} of {type_name(record)} has the name of a field or of a column of the warehouse. Declare another "
                "`tag_field`, or rename the field."
            )
        kind = pa.string() if all(isinstance(tag, str) for tag in self._tags) else pa.int64()
        self.schema = pa.schema([pa.field(self._tag_field, kind, nullable=False), *merged.schema])

    def arrays(self, records: Sequence[Any]) -> list[pa.Array[Any]]:
        """Return the columns of records."""
        rows: dict[type[AnyRecord], list[int]] = {}
        for row, record in enumerate(records):
            rows.setdefault(type(record), []).append(row)
        parts = [self._part(member, [records[row] for row in of_type]) for member, of_type in rows.items()]
        order = np.argsort([row for of_type in rows.values() for row in of_type], kind="stable")
        table = pa.concat_tables([self.schema.empty_table(), *parts]).combine_chunks().take(pa.array(order, pa.int64()))
        return [
            pa.concat_arrays(column.chunks) if column.num_chunks else column.combine_chunks()
            for column in table.columns
        ]

    def _part(self, member: type[AnyRecord], records: Sequence[Any]) -> pa.Table:
        """Return the columns of records of one type."""
        columns = self._types[member]
        found = dict(zip(columns.schema.names, columns.arrays(records), strict=True))
        found[self._tag_field] = pa.array([self._tag_of[member]] * len(records), self.schema.field(0).type)
        missing = {field.name: pa.nulls(len(records), field.type) for field in self.schema if field.name not in found}
        arrays = found | missing
        return pa.Table.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)

    def records(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the records of a batch."""
        tags = batch.column(self._tag_field).to_pylist()
        records: list[Any] = [None] * len(tags)
        for tag in dict.fromkeys(tags):
            if tag not in self._tags:
                raise DeclarationError(
                    f"An archived event has the tag {tag!r} in {self._tag_field!r}, but the record types of its category have only "
                    f"{', '.join(map(repr, self._tags))}. Declare a record type for it in the union."
                )
            at = [row for row, found in enumerate(tags) if found == tag]
            of_type = self._types[self._tags[tag]].records(batch.take(pa.array(at, pa.int64())))
            for row, record in zip(at, of_type, strict=True):
                records[row] = record
        return records


class _TypeColumns:
    """The columns of one record type.

    Args:
        record: the type.
        fields: its fields, by their names on the bus.

    Raises:
        DeclarationError: a field has no column type, or a reserved name.
    """

    def __init__(self, record: type[AnyRecord], fields: Mapping[str, shapes.Field]) -> None:
        self._record = record
        self._described = described(record)
        self._fields = fields
        for name in _RESERVED & self._fields.keys():
            raise DeclarationError(
                f"{record.__name__}.{name}: the warehouse reserves this column name. Rename the field, or "
                f"give it another name in files and messages: `{name}: … = msgspec.field(name=…)`."
            )
        self.schema = pa.schema([_column(record, name, field, ()) for name, field in self._fields.items()])

    def arrays(self, records: Sequence[Any]) -> list[pa.Array[Any]]:
        """Return the columns of records."""
        return [
            pa.array(_lowered(field.type, list(map(attrgetter(field.name), records))), column_type)
            for field, column_type in zip(self._fields.values(), self.schema.types, strict=True)
        ]

    def records(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the records of a batch."""
        columns = [self._values(name, field, batch.column(name)) for name, field in self._fields.items()]
        if not self._by_name:
            return list(map(self._record, *columns))
        names = [field.name for field in self._fields.values()]
        records = [self._described(**dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]
        return list(map(model_from, records)) if is_model(self._record) else records

    def filled(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """Return some fields of a batch as columns."""
        arrays = [self._filled(name, self._fields[name], batch.column(name)) for name in names]
        return pa.RecordBatch.from_arrays(arrays, names=list(names))

    def _filled(self, name: str, field: shapes.Field, column: pa.Array[Any]) -> pa.Array[Any]:
        if not column.null_count or _is_optional(field.type):
            return column
        filled: pa.Array[Any] = pa.array(
            _lowered(field.type, self._values(name, field, column)), self.schema.field(name).type
        )
        return filled

    @cached_property
    def _by_name(self) -> bool:
        parameters = inspect.signature(self._described).parameters.values()
        return any(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters)

    @cached_property
    def _canonical(self) -> Mapping[str, Callable[[Any], Any] | None]:
        return {name: conversion_of(field.type) for name, field in self._fields.items()}

    @cached_property
    def _types(self) -> Mapping[str, Any]:
        return get_type_hints(self._described, include_extras=True)

    def _values(self, name: str, field: shapes.Field, column: pa.Array[Any]) -> list[Any]:
        values = column.to_pylist()
        if column.null_count and not _is_optional(field.type):
            default = self._default_of(name, field)
            values = [default() if value is None else value for value in values]
        if not _is_native(field.type):
            convert = self._types[field.name]
            values = [msgspec.convert(_raised(field.type, value), convert) for value in values]
        canonical = self._canonical[name]
        return values if canonical is None else list(map(canonical, values))

    def _default_of(self, name: str, field: shapes.Field) -> Callable[[], Any]:
        if field.required:
            raise DeclarationError(
                f"{self._record.__name__}.{name} has no value in some events of the archive: they are older than the field, or a file of another "
                "program has NULL there. Declare it `| None`, or give it a default."
            )
        if field.default_factory is not msgspec.NODEFAULT:
            factory: Callable[[], Any] = field.default_factory
            return factory
        return lambda: field.default


def by_day(rows: pa.RecordBatch, column: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each UTC day of a column of times, in their order."""
    numbers = numbers_of(rows.column(column)) // DAY_MS
    runs = runs_of(numbers)
    if len(runs) > len(np.unique(numbers)):
        order = np.argsort(numbers, kind="stable")
        rows, numbers = rows.take(order), numbers[order]
        runs = runs_of(numbers)
    for begin, end in runs:
        yield day_of(int(numbers[begin]) * DAY_MS), rows.slice(begin, end - begin)


def _column(record: type, name: str, field: shapes.Field, around: tuple[type, ...]) -> pa.Field[Any]:
    nullable = _is_optional(field.type) or not field.required
    return pa.field(name, _type(record, name, field.type, (*around, record)), nullable=nullable)


def _is_optional(declared: Any) -> bool:
    """Return whether None is a value of a type."""
    shape, optional = without_null(declared)
    return optional or isinstance(shape, shapes.AnyType)


def _type(record: type, name: str, declared: Any, around: tuple[type, ...]) -> pa.DataType:
    shape, _ = without_null(declared)
    match shape:
        case shapes.ListType() | shapes.VarTupleType():
            return pa.list_(_type(record, name, shape.item_type, around))
        case shapes.DictType() if isinstance(plain(shape.key_type), shapes.StrType):
            return pa.map_(pa.string(), _type(record, name, shape.value_type, around))
        case shapes.StructType() | shapes.DataclassType() if shape.cls in around:
            raise DeclarationError(
                f"{record.__name__}.{name}: a record that contains itself cannot be stored in columns. Declare a "
                "list of flat records, or do not archive the category."
            )
        case shapes.StructType() | shapes.DataclassType():
            return pa.struct([_column(shape.cls, field.encode_name, field, around) for field in shape.fields])
        case shapes.DecimalType():
            digits = decimal_digits(declared)
            return pa.decimal128(digits.precision, digits.scale)
    try:
        return _SCALARS[type(primitive(shape))]
    except KeyError:
        raise DeclarationError(
            f"{record.__name__}.{name}: {type(shape).__name__.removesuffix('Type').lower()} fields have no column in the "
            "warehouse. Use bool, int, float, str, bytes, datetime, date, Decimal, UUID, an enum, a list, a dict with str keys, a record, or one of these | None."
        ) from None


def _lowered(shape: Any, values: Sequence[Any]) -> Sequence[Any]:
    """Return a field's values in the form that Arrow accepts."""
    if _is_native(shape):
        return values
    lowered: Sequence[Any] = msgspec.to_builtins(values, builtin_types=_NATIVE, enc_hook=encode_model)
    return [_with_pairs(shape, value) for value in lowered] if _differs_from_builtins(shape) else lowered


def _differs_from_builtins(declared: Any) -> bool:
    """Return whether Arrow needs another form than msgspec's: pairs of a map, the JSON of any value, or fields that msgspec omits."""
    shape, _ = without_null(declared)
    match shape:
        case shapes.ListType() | shapes.VarTupleType():
            return _differs_from_builtins(shape.item_type)
        case shapes.StructType() | shapes.DataclassType():
            omits = isinstance(shape, shapes.StructType) and shape.cls.__struct_config__.omit_defaults
            return omits or any(_differs_from_builtins(field.type) for field in shape.fields)
    return isinstance(shape, (shapes.DictType, shapes.AnyType))


def _is_native(declared: Any) -> bool:
    """Return whether Arrow accepts the values of a type as they are, and returns equal ones."""
    shape, _ = without_null(declared)
    scalars = (*_SCALARS, shapes.DecimalType, shapes.LiteralType)
    return isinstance(shape, scalars) and type(shape) not in _LOWERED


def _with_pairs(shape: Any, value: Any) -> Any:
    """Convert dicts that are maps to lists of pairs, and values of any type to JSON, at every depth."""
    if value is None:
        return None
    shape, _ = without_null(shape)
    match shape:
        case shapes.ListType() | shapes.VarTupleType():
            return [_with_pairs(shape.item_type, item) for item in value]
        case shapes.DictType():
            return [(key, _with_pairs(shape.value_type, item)) for key, item in value.items()]
        case shapes.StructType() | shapes.DataclassType():
            return {field.encode_name: _with_pairs(field.type, value[field.encode_name]) for field in shape.fields}
        case shapes.AnyType():
            return msgspec.json.encode(value).decode()
    return value


def _raised(shape: Any, value: Any) -> Any:
    """Convert lists of pairs that are maps to dicts, JSON to values of any type, and omit fields that a record lacked, at every depth."""
    if value is None:
        return None
    shape, _ = without_null(shape)
    match shape:
        case shapes.ListType() | shapes.VarTupleType():
            return [_raised(shape.item_type, item) for item in value]
        case shapes.DictType():
            return {key: _raised(shape.value_type, item) for key, item in value}
        case shapes.StructType() | shapes.DataclassType():
            fields = {field.encode_name: (field.type, value.get(field.encode_name)) for field in shape.fields}
            return {
                name: _raised(kind, item)
                for name, (kind, item) in fields.items()
                if item is not None or _is_optional(kind)
            }
        case shapes.AnyType():
            return msgspec.json.decode(value)
    return value
