"""Copies of tables under the key of a join.

A join reads a category as it is if the category has the key. Its inputs have one number of buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
from sqlglot import exp

from ..declare import Processor, Stateless, Tombstone
from .expression_compiler import Compiled
from .expressions import StatementProgram
from .join_conditions import JoinedScope
from .queries import Query, constructor
from .relations import Relation, TableDeclaration
from .statements import Setting
from .types import ColumnType, SqlType

_TEXT_TYPES = (SqlType.TEXT, SqlType.BIGINT, SqlType.BOOLEAN, SqlType.DATE, SqlType.TIMESTAMP, SqlType.UUID)
"""The types whose equal values have equal texts, so that texts can be keys."""
_KEY = "join_key"
_JSON = msgspec.json.Encoder()


@dataclass(frozen=True)
class JoinInput:
    """An input of a join.

    Args:
        relation: the table.
        keys: the expressions of the key, by unique names.
        scope: the columns of the table, as fields of `event`.
        keeps_null: whether rows whose key is NULL are kept. Their key is an empty text.
        is_table: whether it is the table of a join with a table, whose tombstones delete rows.
    """

    relation: Relation
    keys: tuple[exp.Expr, ...]
    scope: JoinedScope
    keeps_null: bool = False
    is_table: bool = False

    @property
    def has_key(self) -> bool:
        """Whether the category has the key of the join."""
        first, *others = self.keys
        if others or not isinstance(first, exp.Column) or self.relation.key is None:
            return False
        own = self.relation.column(None, self.relation.key)
        return own is not None and own.code == self.scope.codes[first.name].code and self._has_partitioner

    @property
    def _has_partitioner(self) -> bool:
        return self.relation.category.partitioner is not None

    def fits(self, other: JoinInput) -> bool:
        """Return whether a join can read both categories as they are."""
        mine, theirs = self.relation, other.relation
        return (
            self.has_key
            and other.has_key
            and mine.category.partitioning == theirs.category.partitioning
            and mine.category.record is not theirs.category.record
        )


def copied_inputs(
    query: Query, left: JoinInput, right: JoinInput, number: int
) -> tuple[Relation, Relation, list[type[Processor]]]:
    """Return the inputs of a join, and the processors that copy them under its key.

    Args:
        query: the query.
        left: the left table.
        right: the right table.
        number: the number of the query among the branches of UNION ALL.
    """
    if left.fits(right):
        return left.relation, right.relation, []
    inputs = (left, right)
    kept = next((one for one in inputs if one.has_key), None)
    buckets = query.statement.settings.get("buckets") if kept is None else None
    if buckets is None:
        buckets = Setting((kept or left).relation.category.buckets, query.statement.position)
    relations, processors = [left.relation, right.relation], list[type[Processor]]()
    for index, one in enumerate(inputs):
        if one is not kept:
            relations[index], processor = _copy(query, one, buckets, "" if number == 1 else f"_{number}")
            processors.append(processor)
    return relations[0], relations[1], processors


def text_of_key(program: StatementProgram, node: exp.Expr) -> str:
    """Return the code of a key as text.

    Raises:
        SqlRefused: equal values of its type can have different texts.
    """
    kind = program.compile(node).type
    if kind not in _TEXT_TYPES:
        names = ", ".join(each.value for each in _TEXT_TYPES)
        raise program.refused(
            node, f"A join cannot compare keys of type {kind.value}.", f"Cast both to one of: {names}."
        )
    return program.compile(exp.cast(node.copy(), "text")).code


def _copy(query: Query, one: JoinInput, buckets: Setting, branch: str) -> tuple[Relation, type[Processor]]:
    """Return the copy of a table, and the processor that writes it."""
    source, key = one.relation, _KEY
    while key in source.columns:
        key += "_"
    copy = _declared(query, one, key, buckets, branch)
    program = StatementProgram(query.text, one.scope)
    codes = {name: Compiled(f"event.{source.attributes[name]}", kind.type) for name, kind in source.columns.items()}
    written = constructor(program, copy, {**codes, key: Compiled("key", SqlType.TEXT)})
    without_key = f"key = {program.constant('')}" if one.keeps_null else "return ()"
    body = [f"key = {_key(program, one)}", "if key is None:", f"    {without_key}", f"return ({written},)"]
    if one.is_table:
        body = [f"if type(event) is {program.constant(Tombstone)}:", "    return (event,)", *body]
    process = program.function("process", "self, event", body)
    members = {"reads": source.category, "process": process, "tombstones": one.is_table}
    return copy, query.processor(Stateless, source, copy, members)


def _declared(query: Query, one: JoinInput, key: str, buckets: Setting, branch: str) -> Relation:
    statement, source = query.statement, one.relation
    category = statement.settings.get("category", Setting(statement.name, statement.position)).value
    settings = {
        "category": Setting(f"{category}.{source.name}{branch}.by_key", statement.position),
        "key": Setting(key, statement.position),
        "buckets": buckets,
    }
    if one.is_table:  # a lost state is rebuilt from all rows
        settings["retention"] = Setting("forever", statement.position)
    types = {**source.columns, key: ColumnType(SqlType.TEXT, nullable=False)}
    name = f"{statement.name}_{source.name}{branch}_by_key"
    declared = TableDeclaration(name, types, source.time, settings, statement.position)
    return replace(Relation.of(query.text, declared), has_watermarks=True)


def _key(program: StatementProgram, one: JoinInput) -> str:
    """Return the code of the key of a row: its text, or the JSON of several texts; None if one is NULL."""
    codes = [text_of_key(program, node) for node in one.keys]
    return codes[0] if len(codes) == 1 else f"{program.constant(_several)}({', '.join(codes)})"


def _several(*texts: str | None) -> str | None:
    return None if None in texts else _JSON.encode(texts).decode()
