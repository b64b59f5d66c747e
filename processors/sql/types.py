"""Types of SQL values, and the Python types that represent them.

| SQL | Python | JSON |
| --- | --- | --- |
| boolean | bool | true, false |
| bigint, integer, smallint | int | number |
| double precision, real | float | number |
| numeric | Decimal | string |
| text, varchar | str | string |
| timestamp with time zone | datetime in UTC | string, ISO-8601 |
| timestamp without time zone, only within queries | datetime, as if it was in UTC | |
| date | date | string |
| uuid | UUID | string |
| bytea | bytes | string, base64 |
| jsonb, json | a value of JSON | any |
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from uuid import UUID

from sqlglot import exp


class SqlType(Enum):
    """The type of an expression; the value is its name in SQL."""

    BOOLEAN = "boolean"
    BIGINT = "bigint"
    DOUBLE = "double precision"
    NUMERIC = "numeric"
    TEXT = "text"
    TIMESTAMP = "timestamp with time zone"
    LOCAL = "timestamp without time zone"
    DATE = "date"
    INTERVAL = "interval"
    UUID = "uuid"
    BYTES = "bytea"
    JSON = "jsonb"
    NULL = "null"

    @property
    def is_number(self) -> bool:
        """Return whether arithmetic applies."""
        return self in NUMBERS


NUMBERS = (SqlType.BIGINT, SqlType.NUMERIC, SqlType.DOUBLE)
"""The types of numbers; of two different ones, an operation converts to the later."""

_DECLARED = {
    exp.DataType.Type.BOOLEAN: SqlType.BOOLEAN,
    exp.DataType.Type.SMALLINT: SqlType.BIGINT,
    exp.DataType.Type.INT: SqlType.BIGINT,
    exp.DataType.Type.BIGINT: SqlType.BIGINT,
    exp.DataType.Type.FLOAT: SqlType.DOUBLE,
    exp.DataType.Type.DOUBLE: SqlType.DOUBLE,
    exp.DataType.Type.DECIMAL: SqlType.NUMERIC,
    exp.DataType.Type.TEXT: SqlType.TEXT,
    exp.DataType.Type.VARCHAR: SqlType.TEXT,
    exp.DataType.Type.TIMESTAMP: SqlType.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ: SqlType.TIMESTAMP,
    exp.DataType.Type.DATE: SqlType.DATE,
    exp.DataType.Type.UUID: SqlType.UUID,
    exp.DataType.Type.VARBINARY: SqlType.BYTES,
    exp.DataType.Type.JSON: SqlType.JSON,
    exp.DataType.Type.JSONB: SqlType.JSON,
}
PYTHON_TYPES: dict[SqlType, Any] = {
    SqlType.BOOLEAN: bool,
    SqlType.BIGINT: int,
    SqlType.DOUBLE: float,
    SqlType.NUMERIC: Decimal,
    SqlType.TEXT: str,
    SqlType.TIMESTAMP: datetime,
    SqlType.DATE: date,
    SqlType.UUID: UUID,
    SqlType.BYTES: bytes,
    SqlType.JSON: Any,
}
"""The types of fields of records, by the type of the column."""


@dataclass(frozen=True)
class ColumnType:
    """A type with its nullability.

    Args:
        type: the type of the values.
        nullable: whether NULL is a value. It is one of jsonb, always: JSON's null.
    """

    type: SqlType
    nullable: bool

    def annotation(self) -> Any:
        """Return the annotation of a record's field."""
        plain = datetime if self.type is SqlType.LOCAL else PYTHON_TYPES[self.type]
        return plain | None if self.nullable else plain


def declared_type(declared: exp.DataType) -> SqlType | None:
    """Return the type of a column definition or a cast; None if Penstock has no such type."""
    return _DECLARED.get(declared.this) if isinstance(declared.this, exp.DataType.Type) else None


def type_of_annotation(annotation: Any) -> ColumnType | None:
    """Return the type of a record's field; None if SQL has no such type."""
    if get_origin(annotation) is Annotated:
        return type_of_annotation(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        found = type_of_annotation(members[0]) if len(members) == 1 else None
        return found and ColumnType(found.type, nullable=True)
    for kind, python in PYTHON_TYPES.items():
        if annotation is python and python is not Any:  # a function without annotations inherits Any
            return ColumnType(kind, nullable=False)
    return None


def common_type(types: list[SqlType]) -> SqlType | None:
    """Return the type to which an operation converts its operands; None if there is none."""
    known = [kind for kind in types if kind is not SqlType.NULL]
    if not known:
        return SqlType.NULL
    if all(kind.is_number for kind in known):
        return max(known, key=NUMBERS.index)
    if all(kind in (SqlType.TIMESTAMP, SqlType.DATE) for kind in known):
        return SqlType.TIMESTAMP if SqlType.TIMESTAMP in known else SqlType.DATE
    return known[0] if len(set(known)) == 1 else None
