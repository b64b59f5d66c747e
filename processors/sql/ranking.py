"""Queries with `topk`: the items with the largest sums, one result each.

    source --aggregator--> <table>.ranked: the items of a group and window as JSON --one record for each item--> results

Puma has no GROUP BY: its first column is the group, and the other ones are the item.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from ..declare import Processor
from ..time import GlobalWindow, Session
from .aggregates import STORED, Ranked, is_aggregate
from .expression_compiler import Compiled, position_of
from .expressions import StatementProgram
from .grouping import QueryGroups, grouped
from .inner_queries import within
from .phases import TWO_PHASE
from .queries import Query, constructor
from .relations import Relation
from .statements import Emit, EmitClause
from .types import SqlType

MOST_ITEMS = 10
"""The number of items without a second argument of topk."""
_EXAMPLE = "Write: SELECT category, event, topk(score, 10) AS score FROM events [5 minutes] GROUP BY category."
_BOUNDS = ("window_start", "window_end")
_RANKED = "ranked"


def is_topk(node: exp.Expr) -> bool:
    """Return whether a node is a call of topk."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == "topk"


def ranked(query: Query) -> tuple[list[type[Processor]], Relation]:
    """Return the processors of a query with topk, and the table of its results.

    Raises:
        SqlRefused: the query is not supported.
    """
    roles = _Roles.of(query)
    inner = _inner(query, roles)
    processors, relation = grouped(inner)
    rows = replace(query, source=relation)
    program = StatementProgram(query.text, relation)
    columns = _results(query, roles, program)
    bound = roles.bound_in(columns)
    single = next(iter(roles.group)) if len(roles.group) == 1 else None
    key = single if single is not None and not columns[single].nullable else None
    output = rows.output(columns, bound, key)
    output = replace(output, updates=output.updates or relation.updates)
    written = constructor(program, output, columns)
    body = [f"return [{written} for row in ranked_rows(event.{_RANKED})]"]
    return [*processors, rows.row_processor(program, relation, output, body)], output


@dataclass(frozen=True)
class _Roles:
    """The columns of the results.

    Args:
        group: the expressions of the group, by column.
        items: the expressions of the item, by column.
        weight: the column and the call of topk.
        bounds: the bounds of the window, by column.
        bound: the bound that is the event time of the results.
    """

    group: Mapping[str, exp.Expr]
    items: Mapping[str, exp.Expr]
    weight: tuple[str, exp.Expr]
    bounds: Mapping[str, str]
    bound: str

    @staticmethod
    def of(query: Query) -> _Roles:
        """Return the roles of the columns of a query.

        Raises:
            SqlRefused: there are other aggregates, or no item.
        """
        calls = [(name, node) for name, node in query.columns if is_topk(node)]
        for _, node in query.columns:
            if is_aggregate(node) or (not is_topk(node) and any(map(is_topk, node.walk()))):
                raise query.text.refusal(position_of(node), "A query with topk has no other aggregates.", _EXAMPLE)
        if query.select.args.get("distinct") is not None:
            raise query.text.refusal(position_of(query.select), "A query with topk has no DISTINCT.", _EXAMPLE)
        having, emit = query.select.args.get("having"), query.statement.emit
        if len(calls) > 1 or having is not None or not (emit is None or emit.at_end):
            raise query.text.refusal(
                position_of(query.select),
                "A query with topk has one topk, no HAVING, and results that are written once, at the end of their window.",
                _EXAMPLE,
            )
        bounds = {
            name: node.name for name, node in query.columns if isinstance(node, exp.Column) and node.name in _BOUNDS
        }
        plain = {name: node for name, node in query.columns if not is_topk(node) and name not in bounds}
        group = QueryGroups.of(query)
        if isinstance(group.window, GlobalWindow):
            raise query.text.refusal(
                position_of(query.select), "topk needs a window, at whose end the ranks are final.", _EXAMPLE
            )
        in_group = {name: node for name, node in plain.items() if node in group.keys}
        if not group.keys and len(plain) > 1:
            first = next(iter(plain))
            in_group = {first: plain[first]}
        items = {name: node for name, node in plain.items() if name not in in_group}
        if not items or len(in_group) < len(group.keys):
            raise query.text.refusal(
                position_of(query.select),
                "topk needs a column of items, and each column of GROUP BY in its results.",
                _EXAMPLE,
            )
        return _Roles(in_group, items, calls[0], bounds, _BOUNDS[isinstance(group.window, Session)])

    def bound_in(self, columns: Mapping[str, Compiled]) -> str:
        """Return the column that is the event time of the results."""
        return next((name for name in columns if self.bounds.get(name, name) == self.bound), self.bound)


def _inner(query: Query, roles: _Roles) -> Query:
    """Return the query that ranks the items of each group."""
    _, call = roles.weight
    weight, most = _arguments(query, call)
    node = Ranked(this=exp.Tuple(expressions=list(roles.items.values())), weight=weight, most=exp.Literal.number(most))
    node.meta["start"] = position_of(call)
    statement = within(query.statement, _RANKED, query.select)
    select = query.select.copy()
    keys = [each.copy() for each in roles.group.values()]
    windows = [each for each in _grouping(query.select) if isinstance(each, exp.Anonymous)]
    select.set("group", exp.Group(expressions=[*keys, *windows]))
    statement = replace(
        statement,
        query=select,
        window=query.statement.window,
        emit=query.statement.emit or EmitClause(Emit.ON_WINDOW_CLOSE),
    )
    outer = query.statement.settings
    of_groups = {name: outer[name] for name in ("late", TWO_PHASE) if name in outer}
    statement = replace(statement, settings={**statement.settings, **of_groups})
    bounds = ((bound, exp.column(bound)) for bound in _BOUNDS)
    columns = (*roles.group.items(), (_RANKED, node), *bounds)
    return replace(query, statement=statement, select=select, columns=columns)


def _arguments(query: Query, call: exp.Expr) -> tuple[exp.Expr, int]:
    """Return the weight and the number of items."""
    match call.expressions:
        case [weight]:
            return weight, MOST_ITEMS
        case [weight, exp.Literal() as most] if most.is_int and int(most.this) > 0:
            return weight, int(most.this)
    raise query.text.refusal(position_of(call), "topk has a weight, and the number of items, at least 1.", _EXAMPLE)


def _grouping(select: exp.Select) -> list[exp.Expr]:
    clause = select.args.get("group")
    return [] if clause is None else list(clause.expressions)


def _results(query: Query, roles: _Roles, program: StatementProgram) -> dict[str, Compiled]:
    """Return the columns of the results: the group and the bounds from the ranked record, the item and its sum from a row of it."""
    of_source = StatementProgram(query.text, query.source)
    items = list(roles.items)
    columns: dict[str, Compiled] = {}
    for name, node in query.columns:
        if name in roles.group:
            columns[name] = program.compile(exp.column(exp.to_identifier(name, quoted=True)))
        elif name in roles.bounds:
            columns[name] = program.compile(exp.column(roles.bounds[name]))
        elif name in roles.items:
            item = of_source.compile(node)
            stored = f"row[{items.index(name)}]"
            code = STORED[item.type][1].replace("{0}", stored)
            columns[name] = Compiled(f"(None if {stored} is None else {code})", item.type, nullable=item.nullable)
        else:
            kind = of_source.compile(roles.weight[1].expressions[0]).type
            check = "bigint" if kind is SqlType.BIGINT else "double"
            columns[name] = Compiled(f"{check}(row[{len(items)}])", kind)
    if roles.bound not in roles.bounds.values():
        columns[roles.bound] = program.compile(exp.column(roles.bound))
    return columns
