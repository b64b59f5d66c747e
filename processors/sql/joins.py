"""Joins: the processors between the two tables of a query and its results.

    left  --copied under the key of the join, unless it has it--> join --> WHERE and results, or the internal category of the aggregates
    right --likewise-------------------------------------------->

A join of two streams is a `Join`, one with a table a `TableJoin`, and one with a lookup table a `LookupJoin`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from ..declare import Join, JoinType, Processor, TableJoin
from ..lookups import LookupJoin
from .errors import SqlText
from .expression_compiler import Compiled, position_of
from .expressions import StatementProgram
from .join_conditions import ConditionReader, JoinCondition, JoinedColumns, Side
from .join_copies import JoinInput, copied_inputs, text_of_key
from .lookup_tables import LookupTable
from .queries import Query, table_of
from .relations import Relation, RowStep
from .types import SqlType
from .updates import expect_no_updates

_EXAMPLE = "Write: FROM orders JOIN payments ON orders.id = payments.id AND payments.at BETWEEN orders.at AND orders.at + interval '1 hour'."
_TABLE_EXAMPLE = "To join the latest row of a table, write: JOIN users FOR SYSTEM_TIME AS OF orders.at ON orders.customer = users.name."


@dataclass(frozen=True)
class JoinedRelation(Relation):
    """The joined rows of two tables: no category contains them, but the code of a join reads them.

    Args:
        codes: the code of its columns.
        join: the join.
    """

    codes: Mapping[str, Compiled] = field(default_factory=dict)
    join: RowStep | None = None

    def is_keyed_by(self, column: str) -> bool:  # noqa: ARG002 - the rows are not in a category
        """Return False."""
        return False

    @property
    def step(self) -> RowStep:
        """The join."""
        return super().step if self.join is None else self.join

    def column(self, table: str | None, name: str) -> Compiled | None:
        """Return the code of a column by its unique name."""
        return None if table is not None else self.codes.get(name)


def joined(query: Query, relations: Mapping[str, Relation], lookups: Mapping[str, LookupTable], number: int) -> Query:
    """Return a query over the joined rows of its two tables, with the processors that copy them under the key of the join.

    Args:
        query: a query with one join.
        relations: the tables, by name.
        lookups: the lookup tables, by name.
        number: the number of the query among the branches of UNION ALL.

    Raises:
        SqlRefused: the join is not supported.
    """
    [clause] = query.select.args["joins"]
    optional = _is_left_join(query.text, clause)
    version = clause.this.args.get("version")
    name = clause.this.name
    is_lookup = name in lookups and name not in relations
    if not optional and (is_lookup or version is not None):
        effect = "the earlier row would stay in the result when the later one has no match"
        expect_no_updates(query.text, query.source, position_of(clause), effect, "Write LEFT JOIN, which loses no row.")
    if is_lookup:
        return _lookup_join(query, clause, replace(lookups[name], name=clause.this.alias or name), optional=optional)
    right = table_of(query.text, clause, relations)
    clause.this.set("version", None)
    parts = _Parts.of(query, clause, Side(right.name, right.columns, right.attributes), right.time, optional)
    parts.expect_equal_types()
    if version is None:
        return _stream_join(parts, right, number)
    return _table_join(parts, right, number, ordered=_is_at_event_time(parts, version))


def side_of(
    text: SqlText, clause: exp.Join, relations: Mapping[str, Relation], lookups: Mapping[str, LookupTable]
) -> Side:
    """Return the table that a join names.

    Raises:
        SqlRefused: there is no such table.
    """
    name = clause.this.name
    if name in lookups and name not in relations:
        lookup = lookups[name]
        return Side(clause.this.alias or name, lookup.columns, lookup.attributes)
    right = table_of(text, clause, relations)
    return Side(right.name, right.columns, right.attributes)


def _is_left_join(text: SqlText, clause: exp.Join) -> bool:
    """Return whether a join is LEFT JOIN; False for JOIN."""
    words = [str(clause.args[name]).upper() for name in ("method", "side", "kind") if clause.args.get(name)]
    if clause.args.get("using"):
        raise text.refusal(position_of(clause), "USING is not supported.", "Write ON a.key = b.key.")
    if words not in ([], ["INNER"], ["LEFT"], ["LEFT", "OUTER"]):
        advice = (
            "Exchange the tables, and write LEFT JOIN." if "RIGHT" in words else f"Write JOIN or LEFT JOIN. {_EXAMPLE}"
        )
        raise text.refusal(position_of(clause), f"{' '.join(words)} JOIN is not supported.", advice)
    if clause.args.get("on") is None:
        raise text.refusal(position_of(clause), "The join has no condition.", _EXAMPLE)
    return words[:1] == ["LEFT"]


@dataclass(frozen=True)
class _Parts:
    """What all joins have.

    Args:
        query: the query; its columns have unique names.
        columns: the columns of both tables.
        condition: the condition of the join.
        optional: whether left rows without a match are joined with NULL.
        place: the position of the join in the file.
    """

    query: Query
    columns: JoinedColumns
    condition: JoinCondition
    optional: bool
    place: int

    @staticmethod
    def of(query: Query, clause: exp.Join, right: Side, right_time: str | None, optional: bool) -> _Parts:
        """Resolve the columns of a query, and read its condition."""
        left = query.source
        if left.name == right.name:
            raise query.text.refusal(
                position_of(clause),
                f"Both tables are named {left.name}.",
                "Name them: FROM events AS a JOIN events AS b ON ….",
            )
        columns = JoinedColumns(query.text, Side(left.name, left.columns, left.attributes), right)
        select, place = query.select, position_of(clause)
        select.set("joins", None)
        columns.expand(select)
        columns.rewrite(select)
        columns.rewrite(clause)
        condition = ConditionReader(columns, left.time, right_time).read(clause.args["on"])
        if not condition.keys:
            raise query.text.refusal(place, "The join has no equal keys.", _EXAMPLE)
        return _Parts(query, columns, condition, optional, place)

    def over(
        self, step: RowStep, variables: tuple[str, str], inputs: Sequence[Relation], before: Sequence[type[Processor]]
    ) -> Query:
        """Return the query over the joined rows.

        Args:
            step: the join.
            variables: the variables with the left and the right row.
            inputs: the tables that the join reads.
            before: the processors before the join.
        """
        left = self.query.source
        types = self.columns.types(optional=self.optional)
        scope = self.columns.scope(*variables, optional=self.optional)
        watermarks = {table.category: self.query.watermark_of(table) for table in inputs}
        step = replace(step, members={**step.members, "watermark": watermarks})
        relation = JoinedRelation(
            left.name, left.category, types, {}, left.time, updates=left.updates, codes=scope.codes, join=step
        )
        return replace(self.query, source=relation, before=tuple(before))

    def matches(self, method: str, variables: tuple[str, str], rest: Sequence[exp.Expr]) -> Any:
        """Return a method that returns whether two rows satisfy conditions."""
        program = StatementProgram(self.query.text, self.columns.scope(*variables))
        codes = [f"({program.expect(node, SqlType.BOOLEAN).code}) is True" for node in rest]
        return program.function(method, f"self, {', '.join(variables)}", [f"return {' and '.join(codes)}"])

    def optional_row(self, rest: Sequence[exp.Expr]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the members and first lines of a method that receives an event and the row of its key, or None."""
        members: dict[str, Any] = {}
        lines: list[str] = []
        if rest:
            members["passes_condition"] = self.matches("passes_condition", ("event", "row"), rest)
            lines += ["if row is not None and not self.passes_condition(event, row):", "    row = None"]
        if not self.optional:
            lines += ["if row is None:", "    return ()"]
        return members, tuple(lines)

    def expect_equal_types(self) -> None:
        """Raise SqlRefused unless both sides of each pair of keys have one type."""
        for left, right in self.condition.keys:
            types = [
                StatementProgram(self.query.text, scope).compile(node).type
                for node, scope in (
                    (left, self.columns.scope("event", None)),
                    (right, self.columns.scope(None, "event")),
                )
            ]
            if types[0] is not types[1]:
                raise self.query.text.refusal(
                    position_of(left), f"The join compares {types[0].value} with {types[1].value}.", "Add a cast."
                )


def _lookup_join(query: Query, clause: exp.Join, table: LookupTable, *, optional: bool) -> Query:
    """Return a query over events with the rows of a lookup table."""
    if clause.this.args.get("version") is not None:
        raise query.text.refusal(position_of(clause), f"{table.name} has no versions.", "Remove FOR SYSTEM_TIME AS OF.")
    parts = _Parts.of(query, clause, Side(table.name, table.columns, table.attributes), None, optional)
    parts.expect_equal_types()
    key, rest = _split_keys(parts, table.key)
    program = StatementProgram(query.text, parts.columns.scope("event", None))
    key_of = program.function("key_of", "self, event", [f"return {text_of_key(program, key)}"])
    members, lines = parts.optional_row(rest)
    members |= {"reads": query.source.category, "key_of": key_of, **table.members}
    step = RowStep(LookupJoin, members, "join", "self, event, row", lines)
    return parts.over(step, ("event", "row"), [query.source], [])


def _split_keys(parts: _Parts, key: str) -> tuple[exp.Expr, list[exp.Expr]]:
    """Return the left expression that equals the key of the right table, and the other conditions.

    Raises:
        SqlRefused: the condition does not compare the key.
    """
    name = parts.columns.of_right(key)
    chosen = next(
        (pair for pair in parts.condition.keys if isinstance(pair[1], exp.Column) and pair[1].name == name), None
    )
    table = parts.columns.right.name
    if chosen is None:
        raise parts.query.text.refusal(
            parts.place,
            f"The join does not compare the key of {table}, {key}.",
            f"A table has one row for each key: write ON {parts.query.source.name}.… = {table}.{key}.",
        )
    others = [_equality(*pair) for pair in parts.condition.keys if pair is not chosen]
    return chosen[0], [*others, *parts.condition.rest]


def _equality(left: exp.Expr, right: exp.Expr) -> exp.EQ:
    return exp.EQ(this=left.copy(), expression=right.copy())


def _stream_join(parts: _Parts, right: Relation, number: int) -> Query:
    """Return a query over the pairs of two streams."""
    condition = parts.condition
    if condition.earliest is None or condition.latest is None:
        raise parts.query.text.refusal(
            parts.place,
            "A join of two streams needs bounds of the time between two events: it would keep all events forever.",
            f"{_EXAMPLE} {_TABLE_EXAMPLE}",
        )
    for table in (parts.query.source, right):
        effect = "a join of two streams would pair each of these rows with the other stream's"
        expect_no_updates(parts.query.text, table, parts.place, effect)
    if condition.earliest > condition.latest:
        raise parts.query.text.refusal(parts.place, "No event can match: the bounds of the time exclude each other.")
    keys, rest = _common_key(parts, right)
    first, second, copiers = _copied(parts, right, keys, number, keeps_null=parts.optional)
    members = {
        "left": first.category,
        "right": second.category,
        "before": -condition.earliest,
        "after": condition.latest,
        "join_type": JoinType.LEFT if parts.optional else JoinType.INNER,
    }
    if rest:
        members["matches"] = parts.matches("matches", _PAIR, rest)
    step = RowStep(Join, members, "join", f"self, {', '.join(_PAIR)}, context")
    return parts.over(step, _PAIR, [first, second], copiers)


_PAIR = ("left_event", "right_event")
"""The variables with the two events of a join: `left` and `right` are functions of SQL."""


def _common_key(parts: _Parts, right: Relation) -> tuple[Sequence[tuple[exp.Expr, exp.Expr]], list[exp.Expr]]:
    """Return the pairs of keys that become the key of the join, and the other conditions.

    If the key of both tables is among the pairs, it is enough: the tables need no copies.
    """
    pairs, left = parts.condition.keys, parts.query.source
    keys = (left.key, None if right.key is None else parts.columns.of_right(right.key))
    for pair in pairs:
        if tuple(node.name if isinstance(node, exp.Column) else None for node in pair) == keys:
            others = [_equality(*other) for other in pairs if other is not pair]
            return [pair], [*others, *parts.condition.rest]
    # Rows whose key is NULL share the key of an empty text; only the comparison excludes them.
    compared = [_equality(*pair) for pair in pairs] if parts.optional else []
    return pairs, [*compared, *parts.condition.rest]


def _copied(
    parts: _Parts,
    right: Relation,
    keys: Sequence[tuple[exp.Expr, exp.Expr]],
    number: int,
    *,
    keeps_null: bool,
    is_table: bool = False,
) -> tuple[Relation, Relation, list[type[Processor]]]:
    """Return the inputs of a join under its key, and the processors that copy them."""
    left_keys, right_keys = zip(*keys, strict=True)
    return copied_inputs(
        parts.query,
        JoinInput(parts.query.source, left_keys, parts.columns.scope("event", None), keeps_null=keeps_null),
        JoinInput(right, right_keys, parts.columns.scope(None, "event"), is_table=is_table),
        number,
    )


def _table_join(parts: _Parts, right: Relation, number: int, *, ordered: bool) -> Query:
    """Return a query over events with the rows of a table."""
    if right.key is None:
        raise parts.query.text.refusal(parts.place, *missing_key_of(right))
    key, rest = _split_keys(parts, right.key)
    keys = [(key, _unique_column(parts, right.key))]
    if parts.optional:
        rest = [_equality(*keys[0]), *rest]
    stream, table, copiers = _copied(parts, right, keys, number, keeps_null=parts.optional, is_table=True)
    members, lines = parts.optional_row(rest)
    members |= {"stream": stream.category, "table": table.category, "ordered": ordered}
    step = RowStep(TableJoin, members, "join", "self, event, row, context", lines)
    return parts.over(step, ("event", "row"), [stream, table], copiers)


def missing_key_of(table: Relation) -> tuple[str, str]:
    """Return why the key of a table is no column that a join can compare, and how to get one."""
    name, key = table.name, table.category.key_name
    if table.category.partitioner is None:
        return f"{name} has no key.", "A table has one row for each key: declare the column, WITH (key = '…')."
    column = table.columns.get(key)
    if column is None:
        example = " || '/' || ".join(key.split(", "))
        return (
            f"The key of {name} is {key} together, and a join compares one column.",
            f"In the query of {name}, group by one text, such as {example}, and select it with a name.",
        )
    if column.nullable:
        return (
            f"The key of {name}, {key}, can be NULL, and a join needs a key that is not.",
            f"Declare {key} NOT NULL in its CREATE CATEGORY; or in the query of {name}, group by coalesce({key}, …) and select it AS {key}.",
        )
    return (
        f"The key of {name}, {key}, is of type {column.type.value}, and a join needs text or bigint.",
        f"In the query of {name}, group by {key}::text and select it AS {key}.",
    )


def _unique_column(parts: _Parts, name: str) -> exp.Column:
    return exp.column(exp.to_identifier(parts.columns.of_right(name), quoted=True))


def _is_at_event_time(parts: _Parts, version: exp.Version) -> bool:
    """Return whether rows count as of the event time; False for the latest row that has arrived."""
    parts.columns.rewrite(version)
    moment = version.expression
    if version.name == "TIMESTAMP" and version.text("kind") == "AS OF":
        if isinstance(moment, exp.Column) and moment.name == parts.query.source.time and not moment.table:
            return True
        if isinstance(moment, exp.CurrentTimestamp):
            return False
    raise parts.query.text.refusal(
        parts.place,
        f"{version.sql(dialect='postgres')} is not supported.",
        f"Write FOR SYSTEM_TIME AS OF {parts.query.source.name}.{parts.query.source.time}, or AS OF current_timestamp for the latest row that has "
        "arrived.",
    )
