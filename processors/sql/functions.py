"""Functions in Python: CREATE FUNCTION.

CREATE FUNCTION f USING 'udfs.py:f' --> a function with annotations, or a monoid class
f(x) in a query                     --> PythonFunction or PythonAggregate, which carry it
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from sqlglot import exp

from ..monoids import Monoid
from .cursor import is_builtin
from .errors import SqlText
from .expression_compiler import position_of
from .python_calls import DEFINITION, Definition, PythonAggregate, PythonFunction
from .statements import CreateFunction
from .types import ColumnType, type_of_annotation

LoadMember = Callable[[str], object]
"""Returns the member of a Python file that a text such as `udfs.py:f` names, or raises PenstockError."""
_RESERVED = frozenset({"tumble", "hop", "session", "topk"})
_SCALAR = "Annotate each: def domain(address: str) -> str | None."
_MONOID = "Annotate both: def lift(self, observation: float) -> … and def value(self, partial: …) -> float."


def defined_function(text: SqlText, statement: CreateFunction, load: LoadMember) -> Definition:
    """Return the function of a statement.

    Raises:
        SqlRefused: SQL has a function of this name, or the annotations of the function are not types of SQL.
        PenstockError: the file has no such member, or is invalid.
    """
    if statement.name in _RESERVED or is_builtin(statement.name):
        raise text.refusal(statement.position, f"SQL has a function {statement.name}.", "Choose another name.")
    member = load(statement.place)
    if inspect.isclass(member) and issubclass(member, Monoid):
        return _aggregate(text, statement, member())
    if not inspect.isfunction(member):
        raise text.refusal(
            statement.position,
            f"{statement.place} is neither a function nor a class of monoids.",
            "Name a function with annotations, or a class that is derived from penstock.monoids.Monoid.",
        )
    names = list(inspect.signature(member).parameters)
    types = _types(text, statement, member, [*names, "return"], _SCALAR)
    return Definition(statement.name, member, tuple(types[name] for name in names), types["return"])


def _aggregate(text: SqlText, statement: CreateFunction, monoid: Monoid[Any]) -> Definition:
    [observation, *_] = inspect.signature(monoid.lift).parameters
    observed = _types(text, statement, type(monoid).lift, [observation], _MONOID)[observation]
    value = _types(text, statement, type(monoid).value, ["return"], _MONOID)["return"]
    return Definition(statement.name, monoid, (ColumnType(observed.type, nullable=False),), value)


def _types(
    text: SqlText, statement: CreateFunction, function: Callable[..., Any], names: list[str], advice: str
) -> dict[str, ColumnType]:
    """Return the types of parameters and of the result."""
    hints, types = get_type_hints(function), dict[str, ColumnType]()
    for name in names:
        found = type_of_annotation(hints.get(name))
        if found is None:
            what = "its result" if name == "return" else f"its argument {name}"
            annotation = (
                "no annotation" if name not in hints else f"the annotation {hints[name]}, which is no type of SQL"
            )
            raise text.refusal(statement.position, f"{statement.place}: {what} has {annotation}.", advice)
        types[name] = found
    return types


def with_functions(query: exp.Query, functions: Mapping[str, Definition]) -> None:
    """Replace calls of these functions in a query by nodes that carry their definitions."""
    for node in reversed(list(query.find_all(exp.Anonymous))):  # inner calls first
        definition = functions.get(node.name.lower())
        if definition is not None:
            kind = PythonAggregate if definition.is_aggregate else PythonFunction
            call = kind(this=exp.to_identifier(definition.name), expressions=node.expressions)
            call.meta.update({"start": position_of(node), DEFINITION: definition})
            node.replace(call)
