"""The schemas that Kafka Connect writes beside rows in JSON: the types and null values of columns, of which the rows show only examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import msgspec

from .shape import Shape, merged

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_KINDS = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "int"),
    **dict.fromkeys(("float", "double", "float32", "float64"), "float"),
    "boolean": "bool",
    "string": "str",
    "bytes": "str",  # base64
}
"""The kinds in JSON by the types of Kafka Connect."""
_NAMED_KINDS = {"io.debezium.time.ZonedTimestamp": "datetime", "io.debezium.data.Uuid": "uuid"}
"""The kinds of texts by the names of their schemas."""


class _Schema(msgspec.Struct):
    """A schema of Kafka Connect, or a field of one."""

    type: str = ""
    field: str = ""
    name: str | None = None
    optional: bool = False
    parameters: dict[str, str] = {}
    fields: list[_Schema] = []
    items: _Schema | None = None
    values: _Schema | None = None
    keys: _Schema | None = None


@dataclass(frozen=True)
class Columns:
    """The columns of rows.

    Args:
        shapes: the values of each column, by name.
        notes: comments on columns, by name.
    """

    shapes: Mapping[str, Shape]
    notes: Mapping[str, str]


def columns_of(schemas: Iterable[Any]) -> Columns:
    """Return the columns of the rows of a table; none for schemas that cannot be read.

    Args:
        schemas: the schemas of changes of Debezium, oldest first. A column that one of them lacks is optional.
    """
    rows = [row for schema in _distinct(schemas) if (row := _row(schema)) is not None]
    if not rows:
        return Columns({}, {})
    shapes = reduce(merged, map(_shape, rows)).fields
    for name, shape in shapes.items():
        if any(name not in {column.field for column in row.fields} for row in rows):
            shape.make_optional()
    notes = {
        column.field: (
            f"a decimal as bytes in base64, with scale {column.parameters.get('scale', '0')}; for a Decimal, set decimal.handling.mode=string "
            "on the connector"
        )
        for column in rows[-1].fields
        if column.name == _DECIMAL
    }
    return Columns(shapes, notes)


def _distinct(schemas: Iterable[Any]) -> list[Any]:
    """Return the different ones of some schemas, of which most are equal."""
    found: list[Any] = []
    for schema in schemas:
        if schema not in found:
            found.append(schema)
    return found


def _row(schema: Any) -> _Schema | None:
    """Return the schema of the row after a change."""
    try:
        envelope = msgspec.convert(schema, _Schema)
    except msgspec.ValidationError:
        return None
    return next((part for part in envelope.fields if part.field == "after"), None)


def _shape(schema: _Schema) -> Shape:
    """Return the shape of the values of a schema, as if there were one; empty for a type that JSON has no values of."""
    shape = Shape(1)
    if schema.type == "struct" or schema.fields:
        shape = Shape(1, {"object": 1}, fields={each.field: _shape(each) for each in schema.fields})
    elif schema.type == "array" and schema.items is not None:
        shape = Shape(1, {"list": 1}, items=_shape(schema.items))
    elif schema.type == "map" and schema.values is not None and schema.keys is not None:
        is_object = schema.keys.type == "string"  # other maps are arrays of pairs in JSON
        shape = Shape(1, {"map" if is_object else "list": 1}, items=_shape(schema.values) if is_object else None)
    elif schema.type in _KINDS:
        kind = _NAMED_KINDS.get(schema.name or "", "str") if schema.type == "string" else _KINDS[schema.type]
        shape = Shape(1, {kind: 1})
    if schema.optional:
        shape.make_optional()
    return shape
