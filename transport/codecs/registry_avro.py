"""Avro schemas of a registry, with the schemas that they refer to."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

from fastavro import parse_schema, schemaless_reader
from fastavro.types import Schema as AvroSchema
from msgspec import inspect as shapes

from ...processors.declare import AnyRecord, fields_of, plain
from .logical_types import PLAIN_SHAPES, LogicalTypes
from .registry import RegistrySchema


def parsed_schema(
    stored: RegistrySchema,
    record: type[AnyRecord] | None = None,
    *,
    below: Collection[str] = (),
    plain_types: bool = False,
) -> AvroSchema:
    """Return a schema with its references.

    Args:
        stored: the schema.
        record: the record type of its values. Where it has a number or a string, at any depth, the logical type of the schema is ignored.
        below: the fields of the values that contain such records; empty if the values are the records.
        plain_types: whether to ignore all logical types, because the record type contains only numbers, strings and bytes.
    """
    named: dict[str, Any] = {}
    return _parsed(stored, _fit_of(stored, record, below), named, plain_types=plain_types)


class AvroType(NamedTuple):
    """The type of a value.

    Args:
        name: its full name; empty for a type without a name.
        schema: its schema.
    """

    name: str
    schema: AvroSchema


@dataclass(frozen=True)
class AvroTypes:
    """The types of the values of one registered schema: one type, or those of a union, such as of all types in a topic.

    Args:
        members: the types.
        is_union: whether a value begins with the index of its type.
        named: the schemas with a name that occur in them, by their full names.
    """

    members: Sequence[AvroType]
    is_union: bool
    named: Mapping[str, Any]

    def type_of(self, value: bytes) -> AvroType:
        """Return the type of a value.

        Raises:
            IndexError: it begins with no index of a type.
        """
        return self.members[_zigzag(BytesIO(value))] if self.is_union else self.members[0]

    def read(self, value: bytes) -> tuple[str, Any]:
        """Return the name of the type and the content of a value.

        Raises:
            UNREADABLE: it does not match the schema.
        """
        body = BytesIO(value)
        found = self.members[_zigzag(body)] if self.is_union else self.members[0]
        return found.name, schemaless_reader(body, found.schema, None)


def _zigzag(body: BytesIO) -> int:
    """Read the index of a type.

    Raises:
        IndexError: there is none.
    """
    number = 0
    for shift in range(0, 35, 7):
        [byte] = body.read(1) or [0x80]
        number |= (byte & 0x7F) << shift
        if byte < 0x80 and not number & 1:
            return number >> 1
    raise IndexError("it begins with no index of a type")


def parsed_types(
    stored: RegistrySchema,
    record: type[AnyRecord] | None = None,
    *,
    below: Collection[str] = (),
    plain_types: bool = False,
) -> AvroTypes:
    """Return the types of a schema with its references. The arguments are those of `parsed_schema`."""
    schema = _schema_json(stored.text)
    named: dict[str, Any] = {}
    fit = _fit_of(stored, record, below)
    if not isinstance(schema, list):
        return AvroTypes([_typed(_parsed(stored, fit, named, plain_types=plain_types))], is_union=False, named=named)
    tops: dict[str, AvroSchema] = {}
    for name, referenced in stored.references:
        if name not in named:
            top = _parsed(referenced, fit, named, plain_types=plain_types)
            tops[_typed(top).name] = top
    members = [
        tops.get(member) or named.get(member) or parse_schema(member)
        if isinstance(member, str)
        else _parsed(RegistrySchema(json.dumps(member)), fit, named, plain_types=plain_types)
        for member in schema
    ]
    return AvroTypes(list(map(_typed, members)), is_union=True, named=named)


def _typed(schema: Any) -> AvroType:
    return AvroType(str(schema.get("name", "")) if isinstance(schema, dict) else "", schema)


def _parsed(
    stored: RegistrySchema, fit: LogicalTypes | None, named: dict[str, Any], *, plain_types: bool
) -> AvroSchema:
    for name, referenced in stored.references:
        if name not in named:
            _parsed(referenced, fit, named, plain_types=plain_types)
    schema = _schema_json(stored.text)
    if plain_types:
        schema = _without_logical_types(schema)
    elif fit is not None:
        schema = fit.fitted(schema)
    return parse_schema(schema, named_schemas=named)


def _schema_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()  # the registry accepts the name of a simple type without quotes


def _fit_of(stored: RegistrySchema, record: type[AnyRecord] | None, below: Collection[str]) -> LogicalTypes | None:
    return None if record is None else LogicalTypes(record, list(_all_schemas(stored)), below)


def _all_schemas(stored: RegistrySchema) -> Iterator[Any]:
    """Yield the JSON of a schema, then of its references."""
    yield _schema_json(stored.text)
    for _, referenced in stored.references:
        yield from _all_schemas(referenced)


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        return {name: _without_logical_types(one) for name, one in schema.items() if name != "logicalType"}
    return schema


def has_plain_fields(record: type[AnyRecord]) -> bool:
    """Return whether a record type contains, at every depth, only numbers, booleans, strings and bytes."""
    found: set[type] = set()
    return all(_is_plain(field.type, found) for field in fields_of(record).values())


def _is_plain(shape: Any, found: set[type]) -> bool:
    shape = plain(shape)
    match shape:
        case shapes.UnionType():
            return all(_is_plain(one, found) for one in shape.types)
        case shapes.ListType() | shapes.VarTupleType():
            return _is_plain(shape.item_type, found)
        case shapes.DictType():
            return _is_plain(shape.value_type, found)
        case shapes.StructType() | shapes.DataclassType():
            if shape.cls in found:
                return True
            found.add(shape.cls)
            return all(_is_plain(field.type, found) for field in shape.fields)
    return isinstance(shape, PLAIN_SHAPES)
