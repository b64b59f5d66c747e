"""The shapes of values that an Avro schema describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from .shape import Shape, merged

_TYPES = {
    "null": "null",
    "boolean": "bool",
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "string": "str",
    "enum": "str",
    "bytes": "bytes",
    "fixed": "bytes",
}
_LOGICAL_TYPES = {
    "timestamp-millis": "datetime",
    "timestamp-micros": "datetime",
    "timestamp-nanos": "int",
    "date": "date",
    "decimal": "decimal",
    "uuid": "uuid",
}
_ITEMS = {"array": ("items", "list"), "map": ("values", "map")}
"""The names of the item type in the schema, and of the kind in a shape."""
RECURSIVE = "recursive"
"""The kind of a record inside itself."""


def shape_of_schema(schema: Any, named: Mapping[str, Any]) -> Shape:
    """Return the shape of values with a parsed Avro schema, as if there were one value of each kind.

    Args:
        schema: the schema.
        named: the schemas that it may refer to, by their full names.
    """
    return _shape(schema, dict(named), ())


def _shape(schema: Any, named: dict[str, Any], around: tuple[str, ...]) -> Shape:
    if isinstance(schema, list):
        return _union([_shape(member, named, around) for member in schema])
    if isinstance(schema, str):
        return Shape(1, {_TYPES[schema]: 1}) if schema in _TYPES else _shape(named[schema], named, around)
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record(schema, named, around)
    if kind in _ITEMS:
        of_items, name = _ITEMS[kind]
        return Shape(1, {name: 1}, items=_shape(schema[of_items], named, around))
    if not isinstance(kind, str) or kind not in _TYPES:
        return _shape(kind, named, around)
    if "name" in schema:
        named[schema["name"]] = schema
    return Shape(1, {_LOGICAL_TYPES.get(schema.get("logicalType", ""), _TYPES[kind]): 1})


def _union(members: Sequence[Shape]) -> Shape:
    """Return the shape of values of any of these shapes. A field that one of several records lacks is optional."""
    return replace(reduce(merged, members, Shape()), count=1)


def _record(schema: Any, named: dict[str, Any], around: tuple[str, ...]) -> Shape:
    name = schema["name"]
    named[name] = schema
    if name in around:
        return Shape(1, {RECURSIVE: 1})
    fields = {field["name"]: _shape(field["type"], named, (*around, name)) for field in schema["fields"]}
    return Shape(1, {"object": 1}, fields=fields)
