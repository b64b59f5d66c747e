"""Logical types of Avro schemas, as far as a record type has values of such types.

schema and record type --walked together--> the type of each named schema --> the schema without logical types where the record has numbers or text
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from fastavro.read import LOGICAL_READERS
from msgspec import inspect as shapes

from ...processors.declare import EPOCH, RECORD_SHAPES, AnyRecord, fields_of, plain

PLAIN_SHAPES = (shapes.BoolType, shapes.IntType, shapes.FloatType, shapes.StrType, shapes.BytesType, shapes.NoneType)
_MICROSECONDS = {
    "timestamp-nanos": lambda value: value // 1_000,
    "local-timestamp-nanos": lambda value: value // 1_000,
    "local-timestamp-micros": lambda value: value,
    "local-timestamp-millis": lambda value: value * 1_000,
}
"""The logical types that fastavro reads as a number or as a time without a zone. A local time has no zone, and is read as UTC."""
_PREFIX = "penstock-"
_Visit = Callable[[Any, Any], None]


def _reader(to_microseconds: Callable[[int], int]) -> Callable[..., datetime]:
    def read(value: int, *_: Any) -> datetime:
        return EPOCH + timedelta(microseconds=to_microseconds(value))

    return read


for _name, _convert in _MICROSECONDS.items():
    # Under a name of our own: other readers in this process keep theirs.
    LOGICAL_READERS[f"long-{_PREFIX}{_name}"] = _reader(_convert)


class LogicalTypes:
    """Fits the logical types of a schema to a record type, at every depth.

    Args:
        record: the type of the records.
        schemas: the schema and the schemas to which it refers, as JSON.
        below: the fields of the schema that contain the records; empty if its values are the records.
    """

    def __init__(self, record: type[AnyRecord], schemas: Sequence[Any], below: Collection[str] = ()) -> None:
        self._top = {name: field.type for name, field in fields_of(record).items()}
        self._below = below
        self._definitions: dict[str, Any] = {}
        for schema in schemas:
            self._define(schema)
        self._wanted: dict[str, Any] = {}
        for schema in schemas:
            self._want_top(schema)

    def fitted(self, schema: Any) -> Any:
        """Return one of the schemas, without logical types where the record has plain values."""
        return self._fitted(schema, None)

    def _define(self, schema: Any) -> None:
        if isinstance(schema, list):
            for member in schema:
                self._define(member)
        elif isinstance(schema, dict):
            if "fields" in schema:
                self._definitions[_short(schema["name"])] = schema
            for part in _parts_of(schema):
                self._define(part)

    def _records_in(self, schema: Any) -> Iterator[Any]:
        """Yield the schemas of the records that are the values of a schema."""
        for member in schema if isinstance(schema, list) else [schema]:
            found = self._definitions.get(_short(member)) if isinstance(member, str) else member
            if isinstance(found, dict) and "fields" in found:
                yield found

    def _want_top(self, schema: Any) -> None:
        """Note the types of the records that are the values of a schema, or below them."""
        for found in self._records_in(schema):
            if not self._below:
                self._want_fields(found, self._top)
            for field in found["fields"]:
                if field["name"] in self._below:
                    for row in self._records_in(field["type"]):
                        self._want_fields(row, self._top)

    def _want_fields(self, schema: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        name = _short(schema["name"])
        if name in self._wanted:
            return
        self._wanted[name] = wanted
        for field in schema["fields"]:
            if field["name"] in wanted:
                self._want(field["type"], wanted[field["name"]])

    def _want(self, schema: Any, shape: Any) -> None:
        """Note the types of the records that a value of a type contains."""
        if isinstance(schema, str):
            schema = self._definitions.get(_short(schema))
        if isinstance(schema, list):
            for member in schema:
                self._want(member, shape)
        elif isinstance(schema, dict):
            if "fields" in schema:
                for one in _members(shape):
                    if isinstance(one, RECORD_SHAPES):
                        self._want_fields(schema, {field.encode_name: field.type for field in one.fields})
            else:
                for part in _parts_of(schema):
                    self._want(part, _item(schema, shape))

    def _fitted(self, schema: Any, shape: Any) -> Any:
        """Return a schema for values of a type; None for an unknown type, whose logical types stay."""
        if isinstance(schema, list):
            return [self._fitted(member, shape) for member in schema]
        if not isinstance(schema, dict):
            return schema
        if "fields" in schema:
            wanted = self._wanted.get(_short(schema["name"]), {})
            fields = [
                field | {"type": self._fitted(field["type"], wanted.get(field["name"]))} for field in schema["fields"]
            ]
            return schema | {"fields": fields}
        if "logicalType" in schema:
            return _for_shape(schema, shape)
        changed = {
            name: self._fitted(schema[name], _item(schema, shape)) for name in _NESTED if _is_nested(schema, name)
        }
        return schema | changed


_NESTED = ("type", "items", "values")


def _is_nested(schema: Mapping[str, Any], name: str) -> bool:
    return isinstance(schema.get(name), (dict, list, str)) and not (name == "type" and isinstance(schema["type"], str))


def _parts_of(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas in a schema."""
    for field in schema.get("fields", ()):
        yield field["type"]
    for name in _NESTED:
        if _is_nested(schema, name):
            yield schema[name]


def _short(name: str) -> str:
    """Return a name without its namespace: names of one schema and its references rarely differ only by that."""
    return name.rpartition(".")[2]


def _members(shape: Any) -> Iterator[Any]:
    """Yield the types of a union, or a type itself, without None."""
    shape = plain(shape)
    for member in map(plain, shape.types) if isinstance(shape, shapes.UnionType) else [shape]:
        if not isinstance(member, shapes.NoneType):
            yield member


def _item(schema: Mapping[str, Any], shape: Any) -> Any:
    """Return the type of what a schema contains: the elements of an array or map, or the same type in another form of writing."""
    if "items" not in schema and "values" not in schema:
        return shape
    for member in _members(shape) if shape is not None else ():
        if isinstance(member, shapes.CollectionType):
            return member.item_type
        if isinstance(member, shapes.DictType):
            return member.value_type
    return None


def _for_shape(schema: Mapping[str, Any], shape: Any) -> Mapping[str, Any]:
    """Return a schema with a logical type, for values of a type."""
    members = [] if shape is None else list(_members(shape))
    if members and all(isinstance(member, PLAIN_SHAPES) for member in members):
        return {name: each for name, each in schema.items() if name != "logicalType"}
    if schema["logicalType"] in _MICROSECONDS and any(isinstance(member, shapes.DateTimeType) for member in members):
        return dict(schema) | {"logicalType": _PREFIX + str(schema["logicalType"])}
    return schema
