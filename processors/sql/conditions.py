"""Conditions on one record or state, for options of commands: `amount > 100 AND user LIKE 'a%'`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from types import NoneType
from typing import Any, get_type_hints

import msgspec
from sqlglot import exp

from ..models import described
from ..monoids import to_json_value
from .cursor import parsed_sql, statements_of
from .errors import SqlDataError, SqlRefused, SqlText
from .expression_compiler import Compiled
from .expressions import StatementProgram
from .types import SqlType, type_of_annotation


def compile_condition(option: str, text: str, kind: Any, whole: str) -> Callable[[Any], bool]:
    """Return a function that tests a value. NULL counts as false.

    A field of a type that SQL does not have, such as a dict or a list, is of type jsonb.

    Args:
        option: what the text is, for messages, such as "--when".
        text: an SQL expression over the fields of the value.
        kind: the type of the value: a record, or a plain type.
        whole: the name of a value of a plain type in the expression.

    Raises:
        SqlRefused: the expression is invalid, has another type than boolean, or names no field.
    """
    source = SqlText(option, text)
    columns: dict[str, Compiled] = {}
    program = StatementProgram(source, _Fields(columns))
    columns |= _columns(kind, whole, program.constant(_as_json))
    statements = list(statements_of(source))
    if len(statements) != 1:
        raise source.refusal(0, "This is no condition.", f"Write one, such as: {whole} > 100.")
    compiled = program.expect(parsed_sql(source, statements[0].tokens, 0), SqlType.BOOLEAN)
    return program.function("condition", "event", [f"return ({compiled.code}) is True"])


def _columns(kind: Any, whole: str, to_json: str) -> dict[str, Compiled]:
    kind = described(kind)
    if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or is_dataclass(kind)):
        hints = get_type_hints(kind, include_extras=True)
        return {name: _column(f"event.{name}", hint, to_json) for name, hint in hints.items()}
    return {whole: _column("event", kind, to_json)}


def _as_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(to_json_value(value)))  # tuples become lists


def _column(code: str, annotation: Any, to_json: str) -> Compiled:
    found = type_of_annotation(annotation)
    if found is None:
        return Compiled(f"{to_json}({code})", SqlType.JSON, nullable=True)
    return Compiled(code, found.type, nullable=found.nullable)


@dataclass(frozen=True)
class _Fields:
    """The scope of a condition."""

    columns: Mapping[str, Compiled]

    def column(self, table: str | None, name: str) -> Compiled | None:
        """Return the code of a field; None if there is none of this name."""
        return self.columns.get(name) if table is None else None

    def names(self) -> Sequence[str]:
        """Return the names of the fields."""
        return list(self.columns)


_JSON_TYPES: dict[type, SqlType] = {
    bool: SqlType.BOOLEAN,
    int: SqlType.BIGINT,
    float: SqlType.DOUBLE,
    str: SqlType.TEXT,
    bytes: SqlType.BYTES,
}


class JsonCondition:
    """A condition on decoded messages, whose fields can have another type in each message. A missing field is NULL.

    `a.b` is field b of the object in field a. A message that is no object has one field, `value`.

    Args:
        option: what the text is, for messages, such as "--where".
        text: an SQL expression.

    Raises:
        SqlRefused: it is invalid.
    """

    def __init__(self, option: str, text: str) -> None:
        self._text = SqlText(option, text)
        statements = list(statements_of(self._text))
        if len(statements) != 1:
            raise self._text.refusal(0, "This is no condition.", "Write one, such as: amount > 100.")
        self._parsed = parsed_sql(self._text, statements[0].tokens, 0)
        found = {(column.table or None, column.name) for column in self._parsed.find_all(exp.Column)}
        self._fields = sorted(found, key=str)
        self._compiled: dict[tuple[type, ...], Callable[[Any], bool] | None] = {}
        self._compile((NoneType,) * len(self._fields))
        self.mismatched = 0
        """The number of messages whose fields have types that the condition does not fit; it does not hold for them."""
        self.unseen = {name if table is None else f"{table}.{name}" for table, name in found}
        """The fields that had no value in any message so far: their names may be misspelled."""

    def __call__(self, value: Any) -> bool:
        """Return whether the condition holds for a message."""
        found = value if isinstance(value, Mapping) else {"value": value}
        values = [_field(found, *field) for field in self._fields]
        if self.unseen:
            seen = (field for field, each in zip(self._fields, values, strict=True) if each is not None)
            self.unseen -= {name if table is None else f"{table}.{name}" for table, name in seen}
        types = tuple(type(each) for each in values)
        if types not in self._compiled:
            try:
                self._compiled[types] = self._compile(types)
            except SqlRefused:
                self._compiled[types] = None
        holds = self._compiled[types]
        if holds is None:
            self.mismatched += 1
            return False
        try:
            return holds(values)
        except SqlDataError:
            self.mismatched += 1
            return False

    def _compile(self, types: Sequence[type]) -> Callable[[Any], bool]:
        columns = {
            field: Compiled(f"event[{at}]", _JSON_TYPES.get(kind, SqlType.NULL), nullable=kind is NoneType)
            for at, (field, kind) in enumerate(zip(self._fields, types, strict=True))
        }
        if any(kind is not NoneType and kind not in _JSON_TYPES for kind in types):
            raise self._text.refusal(0, "A field is an object or a list.")
        program = StatementProgram(self._text, _JsonFields(columns))
        compiled = program.expect(self._parsed, SqlType.BOOLEAN)
        return program.function("condition", "event", [f"return ({compiled.code}) is True"])


@dataclass(frozen=True)
class _JsonFields:
    """The scope of a condition on a message."""

    columns: Mapping[tuple[str | None, str], Compiled]

    def column(self, table: str | None, name: str) -> Compiled | None:
        """Return the code of a field."""
        return self.columns.get((table, name))

    def names(self) -> Sequence[str]:
        """Return the names of the fields."""
        return [name for _, name in self.columns]


def _field(value: Mapping[str, Any], table: str | None, name: str) -> Any:
    if table is None:
        return value.get(name)
    inner = value.get(table)
    return inner.get(name) if isinstance(inner, Mapping) else None
