"""Conditions on the rows of a table, as joins.

    WHERE origin IN (SELECT code FROM airports)      --> JOIN airports ON origin = airports.code
    WHERE origin NOT IN (SELECT code FROM airports)  --> LEFT JOIN … WHERE airports.code IS NULL AND origin IS NOT NULL
    WHERE [NOT] EXISTS (SELECT … FROM airports a WHERE a.code = origin)

A table has one row for each key, so the join returns each event once. Whether a stream contains a row is never final: it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from .errors import SqlText
from .expression_compiler import position_of
from .join_conditions import Side, conjuncts
from .joins import missing_key_of, side_of
from .lookup_tables import LookupTable
from .queries import table_of
from .refused_expressions import SEMI_JOIN_EXAMPLE, first_part
from .relations import Relation

_ALIAS = "condition_{}"


def add_semi_joins(
    text: SqlText, select: exp.Select, relations: Mapping[str, Relation], lookups: Mapping[str, LookupTable]
) -> None:
    """Replace the conditions of WHERE on the rows of a table by joins. The query is changed.

    Raises:
        SqlRefused: a condition is not supported.
    """
    where = select.args.get("where")
    found = [] if where is None else [(node, _Condition.of(node)) for node in conjuncts(where.this)]
    if not any(condition for _, condition in found):
        return
    left = table_of(text, select.args.get("from_") or select, relations)
    rights = [side_of(text, clause, relations, lookups) for clause in select.args.get("joins") or ()]
    outer = [Side(left.name, left.columns, left.attributes), *rights]
    select.set("where", None)
    _qualify(select, outer)
    kept: list[exp.Expr] = []
    for node, condition in found:
        if condition is None:
            _qualify(node, outer)
            kept.append(node)
        else:
            number = len(select.args.get("joins") or ())
            _Builder(text, outer, relations, lookups, f"{left.name}.{left.time}", number).add(select, condition, kept)
    if kept:
        select.set("where", exp.Where(this=exp.and_(*kept, copy=False)))
    results = [each for node in select.expressions for each in _of_outer(node, outer)]
    select.set("expressions", results)


@dataclass(frozen=True)
class _Condition:
    """A condition on the rows of a table.

    Args:
        value: the left side of IN; None for EXISTS.
        select: the query of the rows.
        negated: whether it is NOT IN or NOT EXISTS.
    """

    value: exp.Expr | None
    select: exp.Expr
    negated: bool

    @staticmethod
    def of(node: exp.Expr) -> _Condition | None:
        """Return the parts of a condition; None for another one."""
        node = node.unnest()
        negated = isinstance(node, exp.Not)
        inner = node.this.unnest() if negated else node
        if isinstance(inner, exp.In) and inner.args.get("query") is not None:
            return _Condition(inner.this, inner.args["query"].unnest(), negated)
        if isinstance(inner, exp.Exists):
            return _Condition(None, inner.this.unnest(), negated)
        return None


@dataclass(frozen=True)
class _Builder:
    """Makes the join of a condition.

    Args:
        text: the file.
        outer: the tables of the query.
        relations: the tables that it can read.
        lookups: the lookup tables.
        time: the column with the event time of the query.
        number: the number of joins before this one.
    """

    text: SqlText
    outer: Sequence[Side]
    relations: Mapping[str, Relation]
    lookups: Mapping[str, LookupTable]
    time: str
    number: int

    def add(self, select: exp.Select, condition: _Condition, kept: list[exp.Expr]) -> None:
        """Add the join to a query, and to `kept` the conditions on its result."""
        inner = self._plain(condition.select)
        source, place = inner.args["from_"], position_of(inner.args["from_"].this)
        side, key = self._table(source)
        alias = _ALIAS.format(self.number)
        version = source.this.args.get("version")
        if version is not None:
            _qualify(version, self.outer)
        conditions = list(self._conditions(inner, side, alias))
        if condition.value is not None:
            self._expect_key(inner, side, key)
            _qualify(condition.value, self.outer)
            conditions.insert(0, exp.EQ(this=condition.value.copy(), expression=_column(key, alias, place)))
        table = exp.Table(
            this=exp.to_identifier(source.this.name, quoted=True),
            alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)),
            version=version,
        )
        table.meta["start"] = place
        if not conditions:
            raise self.text.refusal(
                place, f"The query compares no row of {side.name} with the event.", SEMI_JOIN_EXAMPLE
            )
        join = exp.Join(this=table, on=exp.and_(*conditions, copy=False))
        if condition.negated:
            join.set("side", "LEFT")
            kept.append(exp.Is(this=_column(key, alias, place), expression=exp.Null()))
            if condition.value is not None:  # as in PostgreSQL, NULL is neither in rows nor not in them
                kept.append(exp.Not(this=exp.Is(this=condition.value.copy(), expression=exp.Null())))
        select.set("joins", [*(select.args.get("joins") or ()), join])

    def _plain(self, select: exp.Expr) -> exp.Select:
        """Return the query of the rows, which has only FROM and WHERE."""
        known = {"expressions", "from_", "where", "distinct"}
        further = [name for name, value in select.args.items() if value not in (None, False, []) and name not in known]
        if not isinstance(select, exp.Select) or further or not isinstance(_from(select), exp.Table):
            raise self.text.refusal(
                position_of(first_part(select)),
                "A condition on the rows of a table has only SELECT, FROM and WHERE.",
                SEMI_JOIN_EXAMPLE,
            )
        return select

    def _table(self, source: exp.From) -> tuple[Side, str]:
        """Return the table and its key."""
        name = source.this.name
        if name in self.lookups and name not in self.relations:
            lookup = self.lookups[name]
            return Side(source.this.alias or name, lookup.columns, lookup.attributes), lookup.key
        right = table_of(self.text, source, self.relations)
        if source.this.args.get("version") is None:
            raise self.text.refusal(
                position_of(source.this),
                f"{name} is a stream: whether it contains a row is never final.",
                f"For the latest row of each key, write FROM {name} FOR SYSTEM_TIME AS OF {self.time}. For events at about the same time, JOIN {name} within an "
                "interval.",
            )
        if right.key is None:
            raise self.text.refusal(position_of(source.this), *missing_key_of(right))
        return Side(right.name, right.columns, right.attributes), right.key

    def _expect_key(self, inner: exp.Select, side: Side, key: str) -> None:
        results = [node.unalias() for node in inner.expressions]
        if len(results) != 1 or not isinstance(results[0], exp.Column) or results[0].name != key:
            raise self.text.refusal(
                position_of(first_part(inner)),
                f"The rows of {side.name} are found by their key, {key}.",
                f"Write SELECT {key} in the parentheses.",
            )

    def _conditions(self, inner: exp.Select, side: Side, alias: str) -> Iterator[exp.Expr]:
        """Yield the conditions of the inner query, with the columns of its table under their alias."""
        where = inner.args.get("where")
        for node in () if where is None else conjuncts(where.this):
            for column in list(node.find_all(exp.Column)):
                if column.table == side.name or (not column.table and column.name in side.columns):
                    column.set("table", exp.to_identifier(alias, quoted=True))
            _qualify(node, self.outer)
            yield node.copy()


def _from(select: exp.Select) -> exp.Expr | None:
    source = select.args.get("from_")
    return None if source is None else source.this


def _column(name: str, table: str, place: int) -> exp.Column:
    column = exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(table, quoted=True))
    column.meta["start"] = place
    return column


def _qualify(node: exp.Expr, tables: Sequence[Side]) -> None:
    """Write the name of the table before each column of the query that has none: the new joins have columns of the same names."""
    for column in node.find_all(exp.Column):
        owners = [side for side in tables if column.name in side.columns]
        if not column.table and len(owners) == 1:
            column.set("table", exp.to_identifier(owners[0].name, quoted=True))


def _of_outer(node: exp.Expr, tables: Sequence[Side]) -> list[exp.Expr]:
    """Return a result; `*` becomes all columns of the tables of the query, without those of the new joins."""
    if not isinstance(node, exp.Star):
        return [node]
    stars = [exp.Column(this=exp.Star(), table=exp.to_identifier(side.name, quoted=True)) for side in tables]
    for star in stars:
        star.meta["start"] = position_of(node)
    return list(stars)
