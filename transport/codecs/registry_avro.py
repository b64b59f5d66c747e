"""Avro schemas of a registry, with the schemas that they refer to."""

from __future__ import annotations

import json
from typing import Any

from fastavro import parse_schema
from fastavro.types import Schema as AvroSchema
from msgspec import inspect as shapes

from ...processors.declare.records import AnyRecord, fields_of, plain, without_null
from .registry import RegistrySchema

_PLAIN_SHAPES = (shapes.BoolType, shapes.IntType, shapes.FloatType, shapes.StrType, shapes.BytesType, shapes.NoneType)


def parsed_schema(
    stored: RegistrySchema, record: type[AnyRecord] | None = None, *, plain_types: bool = False
) -> AvroSchema:
    """Return a schema with its references.

    Args:
        stored: the schema.
        record: the record type of its values. Where a field is a number or a string, the logical type of the schema is ignored.
        plain_types: whether to ignore all logical types, because the record type contains only numbers, strings and bytes.
    """
    named: dict[str, Any] = {}
    return _parsed(stored, record, named, plain_types=plain_types)


def _parsed(
    stored: RegistrySchema, record: type[AnyRecord] | None, named: dict[str, Any], *, plain_types: bool
) -> AvroSchema:
    for name, referenced in stored.references:
        if name not in named:
            _parsed(referenced, None, named, plain_types=plain_types)
    schema = _schema_json(stored.text)
    if plain_types:
        schema = _without_logical_types(schema)
    elif record is not None:
        schema = _without_unused_logical_types(schema, record)
    return parse_schema(schema, named_schemas=named)


def _schema_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()  # the registry accepts the name of a simple type without quotes


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        return {name: _without_logical_types(one) for name, one in schema.items() if name != "logicalType"}
    return schema


def _without_unused_logical_types(schema: Any, record: type[AnyRecord]) -> Any:
    """Remove the logical types of the top-level fields that are numbers, strings or bytes in the record type."""
    if not isinstance(schema, dict):
        return schema
    kinds = {name: plain(without_null(field.type)[0]) for name, field in fields_of(record).items()}
    fields = [
        {**field, "type": _without_logical_types(field["type"])}
        if isinstance(kinds.get(field["name"]), _PLAIN_SHAPES)
        else field
        for field in schema.get("fields", ())
    ]
    return {**schema, "fields": fields}


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
    return isinstance(shape, _PLAIN_SHAPES)
