"""The schemas that Kafka Connect writes beside rows in JSON: the types and null values of columns, of which the rows show only examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def columns_of(schemas: Iterable[Any], *, are_changes: bool) -> Mapping[str, Shape]:
    """Return the columns of rows by name; none for schemas that cannot be read.

    Args:
        schemas: the schemas of rows, or of changes of rows by Debezium, oldest first. A column that one of them lacks is optional.
        are_changes: whether they are of changes.
    """
    found = [schema for each in _distinct(schemas) if (schema := _read(each)) is not None]
    rows = [row for schema in found if (row := _row(schema) if are_changes else schema) is not None]
    if not rows:
        return {}
    shapes = reduce(merged, map(_shape, rows)).fields
    for name, shape in shapes.items():
        if any(name not in {column.field for column in row.fields} for row in rows):
            shape.make_optional()
    setting = "decimal.handling.mode=string" if are_changes else "a converter with decimal.format=NUMERIC"
    for column in rows[-1].fields:
        if column.name == _DECIMAL:
            scale = column.parameters.get("scale", "0")
            shapes[
                column.field
            ].note = f"a decimal as bytes in base64, with scale {scale}; for a Decimal, set {setting} on the connector"
    return shapes


def _distinct(schemas: Iterable[Any]) -> list[Any]:
    """Return the different ones of some schemas, of which most are equal."""
    found: list[Any] = []
    for schema in schemas:
        if schema not in found:
            found.append(schema)
    return found


def _read(schema: Any) -> _Schema | None:
    try:
        return msgspec.convert(schema, _Schema)
    except msgspec.ValidationError:
        return None


def _row(envelope: _Schema) -> _Schema | None:
    """Return the schema of the row after a change."""
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
