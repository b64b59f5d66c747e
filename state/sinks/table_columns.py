"""Columns of SQL tables for the fields of records: the types that fit each field, and the conversion of its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as shapes

from ...processors import DeclarationError
from ...processors.declare import AnyRecord, fields_of, primitive, without_null
from ...processors.models import encode_model

Convert = Callable[[Any], Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = "timestamp with time zone"
_KEY_SHAPES = (shapes.StrType, shapes.IntType, shapes.UUIDType, shapes.DateType, shapes.BytesType)
_encode = msgspec.json.Encoder(enc_hook=encode_model).encode


class TableColumn(NamedTuple):
    """A column of an existing table.

    Args:
        type: its type, as PostgreSQL writes it.
        nullable: whether it accepts null.
        is_filled: whether a missing value is filled in, by a default or a generated value.
        is_generated: whether the table computes it, and accepts no value.
    """

    type: str
    nullable: bool
    is_filled: bool
    is_generated: bool


@dataclass(frozen=True)
class RecordColumn:
    """The column of a field.

    Args:
        name: its name: the field's name on the bus.
        attribute: the field's Python name.
        nullable: whether the field may be None.
        shape: the field's type, without None.
        forms: the types of columns that fit, with the conversion of a value. The first is recommended.
    """

    name: str
    attribute: str
    nullable: bool
    shape: Any
    forms: dict[str, Convert]

    @property
    def definition(self) -> str:
        """The column in a CREATE TABLE statement."""
        return f"{quoted(self.name)} {next(iter(self.forms))}{'' if self.nullable else ' NOT NULL'}"

    @property
    def can_be_key(self) -> bool:
        """Whether rows can be found by it."""
        return not self.nullable and isinstance(primitive(self.shape), _KEY_SHAPES)


def record_columns(record: type[AnyRecord]) -> list[RecordColumn]:
    """Return the columns of a record type.

    Raises:
        DeclarationError: a field has several types.
    """
    return [_column(name, field) for name, field in fields_of(record).items()]


def _column(name: str, field: shapes.Field) -> RecordColumn:
    shape, nullable = without_null(field.type)
    return RecordColumn(name, field.name, nullable, shape, _forms(field.type, shape))


def _forms(declared: Any, shape: Any) -> dict[str, Convert]:
    kind = type(primitive(shape))
    if isinstance(shape, shapes.EnumType):
        return dict.fromkeys(_FORMS[kind], _value_of_enum)
    if kind is shapes.IntType and _is_event_time(declared):
        return {_TIME: _time_of_ms, **_FORMS[kind]}
    return _FORMS.get(kind, {"jsonb": _json, "json": _json})


def _is_event_time(declared: Any) -> bool:
    if isinstance(declared, shapes.UnionType):
        return any(map(_is_event_time, declared.types))
    return isinstance(declared, shapes.Metadata) and "ms since 1970, UTC" in (declared.extra or {}).values()


def _same(value: Any) -> Any:
    return value


def _value_of_enum(value: Any) -> Any:
    return value.value


def _time_of_ms(value: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=value)


def _with_zone(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _json(value: Any) -> str:
    return _encode(value).decode()


_FORMS: dict[type, dict[str, Convert]] = {
    shapes.BoolType: {"boolean": _same},
    shapes.IntType: {"bigint": _same, "numeric": _same},
    shapes.FloatType: {"double precision": _same},
    shapes.StrType: {"text": _same, "character varying": _same},
    shapes.BytesType: {"bytea": _same},
    shapes.DateTimeType: {_TIME: _with_zone},
    shapes.DateType: {"date": _same},
    shapes.UUIDType: {"uuid": _same, "text": str},
    shapes.DecimalType: {"numeric": _same},
}
"""By the type of a field, the types of columns that fit. Smaller numbers or texts of limited length would refuse some values. All others are JSON."""


def quoted(name: str) -> str:
    """Return a name as an SQL identifier; within a schema, `schema.table` becomes two."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def create_table(table: str, columns: Sequence[RecordColumn], key: Sequence[str]) -> str:
    """Return the statement that creates the table of a sink."""
    lines = [column.definition for column in columns]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    return f"CREATE TABLE {quoted(table)} ({', '.join(lines)});"


def unfit_reasons(columns: Sequence[RecordColumn], found: dict[str, TableColumn]) -> list[str]:
    """Return why the columns of a table do not fit a record; nothing if they fit."""
    reasons: list[str] = []
    for column in columns:
        there = found.get(column.name)
        if there is None:
            reasons.append(f"column {column.name} is missing")
        elif there.is_generated:
            reasons.append(f"column {column.name} is generated by the table")
        elif there.type not in column.forms:
            reasons.append(f"column {column.name} is {there.type} instead of {' or '.join(column.forms)}")
        elif column.nullable and not there.nullable:
            reasons.append(f"column {column.name} is NOT NULL, but the field may be None")
    names = {column.name for column in columns}
    reasons += [
        f"column {name} is NOT NULL without a default, and the record has no such field"
        for name, there in found.items()
        if name not in names and not (there.nullable or there.is_filled)
    ]
    return reasons


def key_columns(what: str, columns: Sequence[RecordColumn], names: Sequence[str]) -> list[str]:
    """Return the names of key columns, which are given as Python names or names on the bus.

    Raises:
        DeclarationError: a field is missing, or no key.
    """
    found: list[str] = []
    for name in names:
        column = next((column for column in columns if name in (column.name, column.attribute)), None)
        if column is None:
            known = ", ".join(column.name for column in columns)
            raise DeclarationError(f"{what}: the key field {name!r} is not a field of the record ({known}).")
        if not column.can_be_key:
            raise DeclarationError(
                f"{what}: the key field {name!r} must be a str, int, date, UUID or bytes, without None. Declare another `key`, or `key=None` to append rows."
            )
        found.append(column.name)
    if len(set(found)) < len(found):
        raise DeclarationError(f"{what}: `key` names a field twice. Name each field once.")
    return found
