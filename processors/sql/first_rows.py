"""Queries with ORDER BY … LIMIT over windows: the first rows of each window, written at its end.

    source --aggregator--> <table>.rows --aggregator in two phases--> <table>.first: the first rows of a window --one record for each row--> results

Each bucket finds its first rows, and one processor the first of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import msgspec
from sqlglot import exp

from ..declare import Processor
from ..time import Hopping, Tumbling
from .aggregates import FirstRows, is_aggregate
from .errors import SqlText
from .expression_compiler import Compiled, described, position_of
from .expressions import StatementProgram
from .grouping import QueryGroups, grouped
from .inner_queries import within
from .phases import TWO_PHASE
from .queries import Query, column_named, constructor
from .refused_expressions import first_part
from .relations import Relation
from .statements import Emit, EmitClause, Setting

_ROWS, _FIRST = "rows", "first"
_EXAMPLE = "Write: SELECT page, count(*) AS views FROM views GROUP BY page, tumble(seen, interval '1 hour') ORDER BY views DESC LIMIT 10."


@dataclass(frozen=True)
class RowOrder:
    """ORDER BY and LIMIT of a query.

    Args:
        keys: the expressions of ORDER BY, each with its direction.
        most: the number of rows of each window.
        position: the position of ORDER BY in the file.
    """

    keys: tuple[exp.Ordered, ...]
    most: int
    position: int

    @staticmethod
    def taken_from(text: SqlText, query: exp.Query) -> RowOrder | None:
        """Remove ORDER BY and LIMIT from a query, and return them; None without them.

        Raises:
            SqlRefused: one of them is missing, or the query is no SELECT.
        """
        order, limit = query.args.get("order"), query.args.get("limit")
        clause = limit if order is None else order
        if clause is None:
            return None
        place = position_of(first_part(clause))
        count = None if limit is None else limit.expression
        if order is None or not (isinstance(count, exp.Literal) and count.is_int and int(count.this) > 0):
            raise text.refusal(
                place,
                "ORDER BY and LIMIT belong together, with a number of rows: a stream has no last row, so all rows are never in order.",
                _EXAMPLE,
            )
        if not isinstance(query, exp.Select):
            raise text.refusal(
                place, "ORDER BY is not supported after UNION ALL.", "Name it first: WITH name AS (… UNION ALL …)."
            )
        query.set("order", None)
        query.set("limit", None)
        return RowOrder(tuple(order.expressions), int(count.this), place)


def first_rows(query: Query, order: RowOrder) -> tuple[list[type[Processor]], Relation]:
    """Return the processors of a query with ORDER BY and LIMIT, and the table of its results.

    Raises:
        SqlRefused: its windows have no common end, or a key of the order is not supported.
    """
    length = _length(query, order)
    group = QueryGroups.of(query)
    statement = query.statement
    inner = within(statement, _ROWS, query.select)
    phases = {name: statement.settings[name] for name in (TWO_PHASE,) if name in statement.settings}
    emit = statement.emit or EmitClause(Emit.ON_WINDOW_CLOSE)
    rows = replace(inner, window=statement.window, emit=emit, settings={**inner.settings, **phases})
    before, relation = grouped(replace(query, statement=rows))
    processors, first = grouped(_choosing(query, order, relation, length))
    outer = replace(query, source=first)
    program = StatementProgram(query.text, first)
    columns = {
        name: replace(_column(relation, name), code=f"row.{relation.attributes[name]}") for name in relation.columns
    }
    of_group = [name for name, node in query.columns if node in group.keys]
    output = outer.output(columns, relation.time, relation.key, of_group)
    decode = program.constant(_decoder(relation))
    body = [f"return [{constructor(program, output, columns)} for row in {decode}(event.{_FIRST})]"]
    return [*before, *processors, outer.row_processor(program, first, output, body)], output


def _length(query: Query, order: RowOrder) -> timedelta:
    """Return the time between the starts of two windows."""
    emit, late = query.statement.emit, query.statement.settings.get("late")
    if late is not None and late.value != "drop":
        raise query.text.refusal(
            late.position, "A late event would change first rows that were written before.", "Remove late."
        )
    if query.is_grouped and (emit is None or emit.at_end):
        match QueryGroups.of(query).window:
            case Tumbling(size):
                return size
            case Hopping(_, step):
                return step
    raise query.text.refusal(
        order.position,
        "ORDER BY … LIMIT needs groups in tumbling or hopping windows, and results at their end: only then are the first rows final.",
        _EXAMPLE,
    )


def _choosing(query: Query, order: RowOrder, relation: Relation, length: timedelta) -> Query:
    """Return the query that chooses the first rows of each window."""
    keys = [_key(query, relation, key) for key in order.keys]
    node = FirstRows(expressions=keys, most=exp.Literal.number(order.most))
    node.meta["start"] = order.position
    inner = within(query.statement, _FIRST, query.select)
    settings = {**inner.settings, TWO_PHASE: Setting(value=True, position=order.position)}
    statement = replace(inner, window=length, emit=EmitClause(Emit.ON_WINDOW_CLOSE), settings=settings)
    columns = ((_FIRST, node), ("window_start", column_named("window_start")))
    return replace(query, statement=statement, select=exp.Select(), source=relation, columns=columns, before=())


def _key(query: Query, relation: Relation, key: exp.Ordered) -> exp.Ordered:
    """Return a key of the order over the rows: a result by its name, its number or its expression, or an expression of results."""
    node, chosen = key.this, key.copy()
    if isinstance(node, exp.Literal):
        if not (node.is_int and 0 < int(node.this) <= len(query.columns)):
            raise query.text.refusal(position_of(node), f"The result has no column {node.sql()}.")
        chosen.set("this", _result(query.columns[int(node.this) - 1][0], node))
    elif not (isinstance(node, exp.Column) and node.name in relation.columns):
        chosen.set("this", node.transform(lambda each: _result(_name_of(query, each), each)))
    for each in chosen.walk():
        if is_aggregate(each):
            raise query.text.refusal(
                position_of(each),
                f"ORDER BY orders results, and {described(each)} is none.",
                "Select it, and order by its name: count(*) AS views … ORDER BY views.",
            )
    return chosen


def _name_of(query: Query, node: exp.Expr) -> str | None:
    """Return the name of the result that is an expression; None if there is none."""
    return next((name for name, each in query.columns if each == node), None)


def _result(name: str | None, node: exp.Expr) -> exp.Expr:
    """Return a result by its name, at the place of an expression; the expression if there is no name."""
    if name is None:
        return node
    column = column_named(name)
    column.meta["start"] = position_of(node)
    return column


def _column(relation: Relation, name: str) -> Compiled:
    kind = relation.columns[name]
    return Compiled("", kind.type, nullable=kind.nullable)


def _decoder(relation: Relation) -> Callable[[str], list[Any]]:
    """Return the function from the text of the first rows to their records."""
    shape: Any = list.__class_getitem__(relation.category.record)
    decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(shape)
    return decoder.decode
