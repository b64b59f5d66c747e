"""Expressions and clauses that SQL has, and streams cannot compute: their refusals say what to write instead."""

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
    exp.RowNumber: "For the first or latest row of each value by event time, write first(…) or last(…) of its columns, with GROUP BY. For the first rows of "
    "a window, write GROUP BY id, tumble(…) ORDER BY … LIMIT 10 EMIT ON WINDOW CLOSE, where id differs in each row, or SELECT id, topk(price, 10): topk adds "
    "up the weights of equal items.",
    exp.Lag: "Keep the last value in the state of a penstock.Stateful with `ordered = True`, in an app in Python.",
    exp.Lead: "Join the table with itself within an interval, or keep the last row in the state of a penstock.Stateful with `ordered = True`, in Python.",
}
_AGGREGATE_ADVICE = (
    "Group by windows, which may overlap: GROUP BY customer, hop(at, interval '1 minute', interval '5 minutes'). For the events before each event, declare "
    "a penstock.Aggregator with penstock.windows.Sliding, in Python."
)


_TEXT_ADVICE = "Write a text in single quotes: 'it''s'."
_CASE_ADVICE = "Write CASE WHEN … THEN … ELSE … END."
EXPRESSION_ADVICE: dict[type[exp.Expr], str] = {
    exp.AggFunc: "An aggregate of aggregates reads a query of its own: WITH name AS (SELECT … GROUP BY …) SELECT …. WHERE comes before all aggregates, "
    "and HAVING after them.",
    exp.Any: "Write IN (1, 2).",
    exp.Bracket: "Write payload -> 'a'.",
    exp.ByteString: _TEXT_ADVICE,
    exp.Collate: 'Leave it out: texts compare by code point, as with COLLATE "C".',
    exp.DecodeCase: _CASE_ADVICE,
    exp.Distinct: "Only count has DISTINCT; min and max are the same without it.",
    exp.If: _CASE_ADVICE,
    exp.JSONBContains: "Write (payload -> 'a') IS NOT NULL.",
    exp.Order: "first and last take the values in the order of event times. For the rows with the largest values, write ORDER BY … LIMIT 10 after GROUP BY.",
    exp.RawString: _TEXT_ADVICE,
    exp.SimilarTo: "Write a regular expression: page ~ '^/a.*'.",
    exp.Tuple: "Compare one value at a time: a = 1 AND b = 2.",
    exp.UnicodeString: _TEXT_ADVICE,
}
"""What to write instead of a kind of expression."""
_WINDOW_ADVICE = "Windows are in GROUP BY: GROUP BY page, tumble(seen, interval '5 minutes'). Their bounds are the columns window_start and window_end."
FUNCTION_ADVICE = {
    **dict.fromkeys(("tumble", "hop", "session", "tumbling", "hopping", "time_bucket"), _WINDOW_ADVICE),
    **dict.fromkeys(("clock_timestamp", "statement_timestamp", "transaction_timestamp"), "Use the event time."),
    "age": "Subtract the times: extract(epoch FROM b - a) is the number of seconds between them.",
    "every": "Write bool_and(…).",
    "isnull": "Write … IS NULL.",
    "regexp_match": "Write regexp_substr(page, 'a.').",
    "timezone": "Write at AT TIME ZONE 'Europe/Berlin'.",
}
"""What to write instead of the functions of other systems, by name."""
_NAMED_COLUMNS = "Name the columns in the query: SELECT page AS other_name."
_SEVERAL_GROUPS = (
    "A query has one list of groups.",
    "Write one table for each: GROUP BY page, and GROUP BY page, customer.",
)
_CLAUSE_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Star: frozenset(),
    exp.Table: frozenset({"this", "alias", "version", "joins"}),
    exp.TableAlias: frozenset({"this"}),
    exp.Group: frozenset({"expressions"}),
    exp.Union: frozenset({"this", "expression", "distinct", "with_", "limit", "order", "offset"}),
}
"""The parts of clauses that queries use, by the kind of clause."""
_REFUSED_PARTS = {
    "except_": ("* without some columns is not supported.", "List the columns."),
    "replace": ("* with replaced columns is not supported.", "List the columns."),
    "rename": ("* with renamed columns is not supported.", "List the columns."),
    "db": ("The name of a table has no schema.", "Write the name alone: FROM views."),
    "sample": (
        "TABLESAMPLE is not supported: each run would choose other rows.",
        "Write a condition: WHERE id % 10 = 0.",
    ),
    "columns": ("Names of columns after a table are not supported.", _NAMED_COLUMNS),
    "all": ("GROUP BY ALL is not supported.", "List the columns."),
    "by_name": (
        "UNION ALL takes columns by their places, and not by their names.",
        "Write the columns in the same order.",
    ),
    **dict.fromkeys(("rollup", "cube", "grouping_sets"), _SEVERAL_GROUPS),
}
"""The refusals of other parts."""


def expect_clauses(text: SqlText, query: exp.Query) -> None:
    """Raise SqlRefused for a part of a clause that would be ignored."""
    for groups in query.find_all(exp.Rollup, exp.Cube, exp.GroupingSets):
        raise text.refusal(position_of(groups), *_SEVERAL_GROUPS)
    for clause in query.find_all(*_CLAUSE_PARTS):
        for name, value in clause.args.items():
            if value not in (None, False, []) and name not in _CLAUSE_PARTS[type(clause)]:
                part = value[0] if isinstance(value, list) else value
                written = name.strip("_").replace("_", " ").upper()
                raise text.refusal(
                    position_of(part if isinstance(part, exp.Expr) else clause),
                    *_REFUSED_PARTS.get(name, (f"{written} is not supported.",)),
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
