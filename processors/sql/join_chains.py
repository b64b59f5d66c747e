"""Queries with several joins.

FROM a JOIN b ON … JOIN c ON …  -->  FROM (SELECT … FROM a JOIN b ON …) AS a_b JOIN c ON …

The inner query selects the columns of its two tables that the query uses, and the event time of the left one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from .errors import SqlText
from .expression_compiler import position_of
from .join_conditions import JoinedColumns, Side


def move_first_join(text: SqlText, select: exp.Select, name: str, sides: Sequence[Side], time: str) -> exp.Select:
    """Move the first join of a query with several into an inner query, and return that. The query then reads its result.

    Args:
        text: the file.
        select: the query; it is changed.
        name: the name of the result of the inner query.
        sides: the tables, in the order of FROM and the joins.
        time: the column with the event time of the first table.

    Raises:
        SqlRefused: a column is in several tables, or the query selects `*`.
    """
    left, right, *others = sides
    first, *rest = select.args["joins"]
    source = select.args["from_"]
    select.set("joins", rest)
    select.set("expressions", [_named(text, node) for node in select.expressions])
    moved = _MovedColumns(JoinedColumns(text, left, right), others, name)
    for column in list(select.find_all(exp.Column)):
        moved.replace(column)
    moved.add(time, exp.column(time, left.name))
    table = exp.to_table(name)
    table.meta["start"] = position_of(source.this)
    select.set("from_", exp.From(this=table))
    results = [exp.alias_(node, exp.to_identifier(alias, quoted=True)) for alias, node in moved.found.items()]
    return exp.Select(expressions=results, from_=source, joins=[first])


def _named(text: SqlText, node: exp.Expr) -> exp.Expr:
    """Return a result with the name of its column, before the column has another one."""
    if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
        raise text.refusal(position_of(node), "* is not supported with several joins.", "Name the columns.")
    if not isinstance(node, exp.Column):
        return node
    alias = exp.alias_(node, exp.to_identifier(node.name, quoted=True))
    alias.meta["start"] = position_of(node)
    return alias


class _MovedColumns:
    """The columns of the first two tables that a query uses, by their names in the result of the inner query."""

    def __init__(self, columns: JoinedColumns, others: Sequence[Side], table: str) -> None:
        self.found: dict[str, exp.Column] = {}
        self._columns = columns
        self._others = others
        self._table = table
        self._names: Mapping[str, str] = _names_of(columns)

    def replace(self, column: exp.Column) -> None:
        """Replace a column of the two tables by one of the inner query."""
        sides = (self._columns.left, self._columns.right)
        if column.table and column.table not in {side.name for side in sides}:
            return
        unique = self._columns.unique_name(column)
        if unique is None:
            return
        if not column.table:
            self._expect_unambiguous(column)
        name = self._names[unique]
        owner = self._columns.left if self._columns.is_left(unique) else self._columns.right
        self.add(name, exp.column(column.name, owner.name))
        replacement = exp.column(exp.to_identifier(name, quoted=True), self._table)
        replacement.meta["start"] = position_of(column)
        column.replace(replacement)

    def add(self, name: str, column: exp.Column) -> None:
        """Add a column to the results of the inner query, unless they contain it."""
        self.found.setdefault(name, column)

    def _expect_unambiguous(self, column: exp.Column) -> None:
        for side in self._others:
            if column.name in side.columns:
                raise self._columns.text.refusal(
                    position_of(column),
                    f"Column {column.name} is in several tables of the query.",
                    f"Write the name of the table before it, such as {side.name}.{column.name}.",
                )


def _names_of(columns: JoinedColumns) -> dict[str, str]:
    """Return legal names of the columns, by their unique names."""
    names: dict[str, str] = {}
    for unique in columns.types(optional=False):
        name = unique.replace(".", "_")
        while name in names.values() or (name != unique and columns.is_left(name)):
            name += "_"
        names[unique] = name
    return names
