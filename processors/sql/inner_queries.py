"""Queries that consist of other queries: WITH, queries in FROM, and UNION ALL.

An inner query becomes processors that write an internal category, `<table>.<name>`. Its aggregates are written once, when their window is
complete: the outer query would count each update otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from .aggregates import is_aggregate
from .errors import SqlText
from .expression_compiler import Compiled, position_of
from .expressions import StatementProgram
from .queries import Query
from .statements import CreateTable, Emit, EmitClause, Setting
from .types import SqlType

_PASSED_ON = ("buckets", "out_of_orderness")
"""The settings of a table that apply to its inner queries, too."""


def inner_queries(text: SqlText, query: exp.Query) -> Iterator[tuple[str, exp.Query]]:
    """Yield the named inner queries of a query, in an order in which each reads only earlier ones. They are removed from the query.

    Raises:
        SqlRefused: a query in FROM has no name, or a clause is not supported.
    """
    clause = query.args.get("with_")
    if clause is not None:
        if clause.recursive:
            raise text.refusal(position_of(query), "WITH RECURSIVE is not supported.")
        query.set("with_", None)
        for named in clause.expressions:
            yield _name(text, named), named.this
    for select in branches(text, query):
        for source in filter(None, [select.args.get("from_"), *(select.args.get("joins") or ())]):
            if isinstance(source.this, exp.Subquery):
                name, inner = _name(text, source.this), source.this.this
                table = exp.to_table(name)
                table.meta["start"] = position_of(source.this)
                source.set("this", table)
                yield name, inner


def _name(text: SqlText, named: exp.Expr) -> str:
    alias = named.args.get("alias")
    if alias is None or alias.this is None:
        raise text.refusal(position_of(named), "A query in FROM needs a name.", "Write: FROM (SELECT …) AS name.")
    if alias.args.get("columns"):
        raise text.refusal(
            position_of(named), "Names of columns after a name are not supported.", "Write AS in the query."
        )
    return str(alias.this.name)


def within(statement: CreateTable, name: str, query: exp.Query) -> CreateTable:
    """Return the statement of an inner query."""
    category = statement.settings.get("category", Setting(statement.name, statement.position)).value
    settings = {each: statement.settings[each] for each in _PASSED_ON if each in statement.settings}
    settings["category"] = Setting(f"{category}.{name}", statement.position)
    emit = EmitClause(Emit.ON_WINDOW_CLOSE) if isinstance(query, exp.Select) and has_aggregates(query) else None
    return replace(statement, name=f"{statement.name}_{name}", query=query, window=None, emit=emit, settings=settings)


def has_aggregates(select: exp.Select) -> bool:
    """Return whether a query groups, or its results contain aggregates."""
    return select.args.get("group") is not None or any(
        is_aggregate(node) for result in select.expressions for node in result.walk()
    )


def branches(text: SqlText, query: exp.Query) -> list[exp.Query]:
    """Return the branches of UNION ALL, whose columns have the names of the first one; for another query, the query.

    Raises:
        SqlRefused: a set operation is not UNION ALL.
    """
    first, *others = _branches(text, query)
    for branch in others:
        if len(branch.selects) == len(first.selects) and not first.is_star and not branch.is_star:
            for named, select in zip(first.selects, branch.selects, strict=True):
                select.replace(_named(named.alias_or_name, select))
    return [first, *others]


def _named(name: str, select: exp.Expr) -> exp.Expr:
    node = select.this if isinstance(select, exp.Alias) else select
    alias = exp.alias_(node, exp.to_identifier(name, quoted=True))
    alias.meta["start"] = position_of(select)
    return alias


def _branches(text: SqlText, query: exp.Query) -> list[exp.Query]:
    found, waiting = list[exp.Query](), [query]
    while waiting:
        each = waiting.pop()
        if isinstance(each, exp.Subquery):
            waiting.append(each.this)
        elif isinstance(each, exp.SetOperation):
            _expect_union_all(text, each)
            waiting += [each.expression, each.this]
        else:
            found.append(each)
    return found


def _expect_union_all(text: SqlText, query: exp.SetOperation) -> None:
    if not isinstance(query, exp.Union) or query.args.get("distinct"):
        raise text.refusal(
            position_of(query),
            f"{type(query).__name__.upper()} is not supported: it would compare all events of the past.",
            "Write UNION ALL; to write each row once: SELECT DISTINCT … FROM (… UNION ALL …) AS name.",
        )


def typed_nulls(
    program: StatementProgram, columns: Sequence[Compiled], first: Sequence[Compiled]
) -> Sequence[Compiled]:
    """Return the columns of a branch of a UNION ALL, where NULL has the type of the column in the first branch."""
    if len(columns) != len(first):
        return columns
    return [
        program.converted(column, expected.type) or column if column.type is SqlType.NULL else column
        for column, expected in zip(columns, first, strict=True)
    ]


def united(queries: Sequence[Query], compiled: Sequence[Sequence[Compiled]]) -> dict[str, Compiled]:
    """Return the columns of a UNION ALL, with the names of its first branch. A column is nullable if it is in a branch.

    Raises:
        SqlRefused: branches have different numbers or types of columns.
    """
    first = queries[0]
    for query, columns in zip(queries, compiled, strict=True):
        if len(columns) != len(first.columns):
            raise query.text.refusal(
                position_of(query.select),
                f"This branch of UNION ALL has another number of columns ({len(columns)}) than the first one ({len(first.columns)}).",
            )
        for (name, _), (_, node), column, expected in zip(
            first.columns, query.columns, columns, compiled[0], strict=True
        ):
            if column.type is not expected.type and expected.type is SqlType.NULL:
                raise query.text.refusal(
                    position_of(first.select),
                    f"Column {name} is NULL in the first branch of UNION ALL, which gives a column its type.",
                    f"Write cast(NULL AS {column.type.value}) AS {name}.",
                )
            if column.type is not expected.type:
                raise query.text.refusal(
                    position_of(node),
                    f"Column {name} is {column.type.value} here, and {expected.type.value} in the first branch of UNION ALL.",
                    f"Add a cast: CAST(… AS {expected.type.value}).",
                )
    return {
        name: replace(column, nullable=any(columns[at].nullable for columns in compiled))
        for at, ((name, _), column) in enumerate(zip(first.columns, compiled[0], strict=True))
    }
