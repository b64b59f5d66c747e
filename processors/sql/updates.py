"""Tables of updates: a row replaces the earlier row of its key.

A query that would count each update is refused: aggregates, filters, DISTINCT, UNION ALL and joins within an interval. A projection writes updates itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from .errors import SqlText
from .expression_compiler import position_of
from .queries import Query
from .ranking import is_topk
from .refused_expressions import first_part
from .relations import Relation, Updates

_ADVICE = {
    Updates.LATEST_ROWS: "For the latest row of each key, join it with events: FROM orders JOIN {0} FOR SYSTEM_TIME AS OF orders.at ON …. If each row is an event of its "
    "own, declare {0} without compacted.",
    Updates.RESULTS: "Write each result of {0} once: GROUP BY …, tumble(…, interval '5 minutes') EMIT ON WINDOW CLOSE. For its latest row of each key, join it with "
    "events: FROM orders JOIN {0} FOR SYSTEM_TIME AS OF orders.at ON ….",
}


def expect_no_updates(text: SqlText, table: Relation, place: int, effect: str, advice: str = "") -> None:
    """Raise SqlRefused for a table of updates.

    Args:
        text: the file.
        table: the table.
        place: the position of the clause that cannot read it.
        effect: what the clause would do to updates, after the words "A row of the table replaces the earlier row of its key, and".
        advice: what else to write.
    """
    if table.updates is None:
        return
    raise text.refusal(
        place,
        f"A row of {table.name} replaces the earlier row of its key, and {effect}.",
        f"{advice} {_ADVICE[table.updates].replace('{0}', table.name)}".strip(),
    )


def updates_of(queries: Sequence[Query]) -> Updates | None:
    """Return whether the results of queries without aggregates replace earlier results, as the rows that they read do.

    Raises:
        SqlRefused: they would not replace the right ones.
    """
    for query in queries:
        source, select, setting = query.source, query.select, query.statement.settings.get("key")
        if len(queries) > 1:
            effect = "the rows of the branches of UNION ALL would replace each other"
            expect_no_updates(query.text, source, position_of(first_part(select)), effect)
        if select.args.get("where") is not None:
            effect = "the earlier row would stay in the result when WHERE excludes the later one"
            expect_no_updates(query.text, source, position_of(select.args["where"]), effect)
        keys = [name for name, node in query.columns if isinstance(node, exp.Column) and node.name == source.key]
        if setting is not None and setting.value not in keys:
            effect = f"the earlier row would stay under another key, {setting.value}"
            expect_no_updates(query.text, source, setting.position, effect)
    return queries[0].source.updates


def expect_events(query: Query) -> None:
    """Raise SqlRefused if a query with aggregates, topk or DISTINCT reads updates."""
    nodes = (node for _, node in query.columns if any(map(_aggregates, node.walk())))
    place = position_of(next(nodes, first_part(query.select)))
    effect = "aggregates and DISTINCT would take each of these rows for an event"
    expect_no_updates(query.text, query.source, place, effect)


def _aggregates(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc) or is_topk(node)
