"""Calls of functions in Python, as nodes of queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from ..monoids import Monoid
from .types import ColumnType

DEFINITION = "definition"
"""The name under which the node of a call carries its definition."""


@dataclass(frozen=True)
class Definition:
    """A function in Python.

    Args:
        name: its name in SQL.
        function: the function; of an aggregate, the monoid.
        parameters: the types of its arguments. The call is NULL if an argument is NULL whose type excludes it.
        result: the type of its value.
    """

    name: str
    function: Any
    parameters: tuple[ColumnType, ...]
    result: ColumnType

    @property
    def is_aggregate(self) -> bool:
        """Whether it aggregates."""
        return isinstance(self.function, Monoid)


class PythonFunction(exp.Expression, exp.Func):
    """A call of a function in Python. Created from a query; no text of SQL contains it."""

    arg_types = {"this": True, "expressions": False}  # noqa: RUF012 - as sqlglot declares it
    is_var_len_args = True


class PythonAggregate(exp.Expression, exp.AggFunc):
    """A call of a monoid in Python. Created from a query; no text of SQL contains it."""

    arg_types = {"this": True, "expressions": False}  # noqa: RUF012 - likewise
    is_var_len_args = True
