"""Conditions on one record or state, for options of commands: `amount > 100 AND user LIKE 'a%'`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, get_type_hints

import msgspec

from .cursor import parsed_sql, statements_of
from .errors import SqlText
from .expressions import Compiled, Program
from .types import SqlType, type_of_annotation


def compile_condition(option: str, text: str, kind: Any, whole: str) -> Callable[[Any], bool]:
    """Return a function that tests a value. NULL counts as false.

    Args:
        option: what the text is, for messages, such as "--when".
        text: an SQL expression over the fields of the value.
        kind: the type of the value: a record, or a plain type.
        whole: the name of a value of a plain type in the expression.

    Raises:
        SqlRefused: the expression is invalid, has another type than boolean, or names no field.
    """
    source = SqlText(option, text)
    program = Program(source, _Fields(_columns(kind, whole)))
    statements = list(statements_of(source))
    if len(statements) != 1:
        raise source.refusal(0, "This is no condition.", f"Write one, such as: {whole} > 100.")
    compiled = program.expect(parsed_sql(source, statements[0].tokens, 0), SqlType.BOOLEAN)
    return program.function("condition", "event", [f"return ({compiled.code}) is True"])


def _columns(kind: Any, whole: str) -> dict[str, Compiled]:
    if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or is_dataclass(kind)):
        hints = get_type_hints(kind, include_extras=True)
        typed = {name: type_of_annotation(hint) for name, hint in hints.items()}
        return {
            name: Compiled(f"event.{name}", found.type, nullable=found.nullable)
            for name, found in typed.items()
            if found is not None
        }
    found = type_of_annotation(kind)
    return {} if found is None else {whole: Compiled("event", found.type, nullable=found.nullable)}


@dataclass(frozen=True)
class _Fields:
    """The scope of a condition."""

    columns: Mapping[str, Compiled]

    def column(self, table: str | None, name: str) -> Compiled | None:
        """Return the code of a field; None if there is none of this name."""
        return self.columns.get(name) if table is None else None

    def names(self) -> Sequence[str]:
        """Return the names of the fields that have an SQL type."""
        return list(self.columns)
