"""Expressions that SQL has, and streams cannot compute: their refusals say what to write instead."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from .errors import SqlText
from .expression_compiler import position_of

SEMI_JOIN_EXAMPLE = "Write: WHERE origin IN (SELECT code FROM airports), with the key of a lookup table."
_QUERY_ADVICE = (
    f"Compare with the rows of a table in a condition of its own, joined by AND. {SEMI_JOIN_EXAMPLE} Otherwise, join: LEFT JOIN airports a ON "
    "origin = a.code."
)
_OVER_ADVICE: dict[type[exp.Expr], str] = {
    exp.RowNumber: "For the first row of each value, write SELECT DISTINCT, or first(…) with GROUP BY. For the first rows of a window, write "
    "GROUP BY … ORDER BY … LIMIT 10 EMIT ON WINDOW CLOSE, or topk(…).",
    exp.Lag: "Keep the last value in the state of a penstock.Stateful with `ordered = True`, in an app in Python.",
    exp.Lead: "Join the table with itself within an interval, or keep the last row in the state of a penstock.Stateful with `ordered = True`, in Python.",
}
_AGGREGATE_ADVICE = (
    "Group by windows, which may overlap: GROUP BY customer, hop(at, interval '1 minute', interval '5 minutes'). For the events before each event, declare "
    "a penstock.Aggregator with penstock.windows.Sliding, in Python."
)


def expect_supported(text: SqlText, select: exp.Select) -> None:
    """Raise SqlRefused for a query in an expression, and for a window function.

    A window function is not final: an event that arrives later changes the rows after it.
    """
    for root in _expressions(select):
        for node in root.walk():
            if isinstance(node, (exp.Subquery, exp.Exists)):
                place = position_of(first_part(node))
                raise text.refusal(place, "A query in an expression is not supported here.", _QUERY_ADVICE)
            if isinstance(node, exp.Window):
                raise text.refusal(
                    position_of(first_part(node)),
                    "OVER is not supported: an event that arrives later would change the rows after it.",
                    _OVER_ADVICE.get(type(node.this), _AGGREGATE_ADVICE),
                )


def _expressions(select: exp.Select) -> Iterator[exp.Expr]:
    for clause in ("expressions", "where", "group", "having", "qualify"):
        value = select.args.get(clause)
        if value is not None:
            yield from value if isinstance(value, list) else [value]


def first_part(node: exp.Expr) -> exp.Expr:
    """Return the first part of a query with a place in the file."""
    return next((each for each in node.walk() if "start" in each.meta), node)
