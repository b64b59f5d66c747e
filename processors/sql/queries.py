"""Queries with resolved tables and columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ..declare import Processor, Semantics, Stateless
from ..time import BoundedOutOfOrderness, Confidence, UpstreamWatermark, Watermark
from ..validation import did_you_mean
from .aggregates import is_aggregate
from .columns import ARROW_TYPES, computed_table, filtered, unless_no_value
from .errors import SqlText
from .expression_compiler import Compiled, described, position_of
from .expressions import StatementProgram
from .python_calls import PythonAggregate, PythonFunction
from .relations import CATEGORY_SETTINGS, Relation, TableDeclaration, duration, expect_name, unknown_setting
from .statements import CreateTable, Setting
from .types import PYTHON_TYPES, ColumnType, SqlType

if TYPE_CHECKING:
    import pyarrow as pa

_PROCESSOR_SETTINGS = ("semantics", "late", "out_of_orderness", "two_phase", "on_error")
_STORED = {SqlType.INTERVAL: "Write its seconds: extract(epoch FROM …)."}
"""What to write for a type that results do not have."""
_CLAUSES = frozenset({"expressions", "distinct", "from_", "joins", "where", "group", "having"})


@dataclass(frozen=True)
class Query:
    """A query with resolved names.

    Args:
        text: the file.
        module: the name of the module of its processors.
        statement: its statement.
        select: its parsed SELECT.
        source: the table that it reads; of a join, first the left one.
        columns: its results: their names and expressions.
        before: the processors that prepare its source.
    """

    text: SqlText
    module: str
    statement: CreateTable
    select: exp.Select
    source: Relation
    columns: tuple[tuple[str, exp.Expr], ...]
    before: tuple[type[Processor], ...] = ()

    @staticmethod
    def of(text: SqlText, module: str, statement: CreateTable, relations: Mapping[str, Relation]) -> Query:
        """Resolve the table of a query.

        Raises:
            SqlRefused: a clause is not supported, or the table does not exist.
        """
        select = statement.query
        if not isinstance(select, exp.Select):
            raise text.refusal(position_of(select), f"{type(select).__name__.upper()} is not supported.")
        for clause, value in select.args.items():
            if value not in (None, False, []) and clause not in _CLAUSES:
                place = value[0] if isinstance(value, list) else value
                raise text.refusal(
                    position_of(place if isinstance(place, exp.Expr) else select),
                    f"{clause.strip('_').replace('_', ' ').upper()} is not supported.",
                )
        source = table_of(text, select.args.get("from_") or select, relations)
        return Query(text, module, statement, select, source, ())

    def with_columns(self) -> Query:
        """Return the query with its columns.

        Raises:
            SqlRefused: a column of the result has no name, or the name of another one.
        """
        _name_columns(self.select, self.source)
        text, columns = self.text, tuple(_columns(self.text, self.select, self.source))
        names = [name for name, _ in columns]
        for name, node in columns:
            if names.count(name) > 1:
                raise text.refusal(
                    position_of(node),
                    f"Two columns of the result are named {name}.",
                    "Name one of them: … AS other_name.",
                )
        return replace(self, columns=columns)

    @property
    def is_grouped(self) -> bool:
        """Whether it aggregates."""
        return any(self.select.args.get(clause) is not None for clause in ("group", "having")) or any(
            is_aggregate(each) for _, node in self.columns for each in node.walk()
        )

    def keeps_time(self, at: int) -> bool:
        """Return whether a column of the result, by index, is the event time of the source."""
        _, node = self.columns[at]
        return isinstance(node, exp.Column) and node.name == self.source.time

    def condition(self, program: StatementProgram) -> Compiled | None:
        """Return the code of its WHERE; None without one."""
        where = self.select.args.get("where")
        if where is None:
            return None
        for node in where.walk():
            if is_aggregate(node):
                raise self.text.refusal(
                    position_of(node), "WHERE cannot contain aggregates.", "Move the condition to HAVING."
                )
        return program.expect(where.this, SqlType.BOOLEAN)

    def output(
        self, columns: Mapping[str, Compiled], time: str | None, key: str | None, group: Sequence[str] = ()
    ) -> Relation:
        """Return the table of its results.

        Args:
            columns: their columns.
            time: the column with their event time; None if only WITH can name it.
            key: the column that is their key, if WITH names no other.
            group: the columns that are their key together, if there is no such column.
        """
        types = {name: ColumnType(each.type, each.nullable) for name, each in columns.items()}
        nodes = dict(self.columns)
        for name, kind in types.items():
            expect_name(self.text, position_of(nodes.get(name, self.select)), name)
            if kind.type not in PYTHON_TYPES:
                raise self.text.refusal(
                    position_of(nodes.get(name, self.select)),
                    f"Column {name} is of type {kind.type.value}, which categories do not have.",
                    _STORED.get(kind.type, f"Add a cast: cast(… as {SqlType.TEXT.value})."),
                )
        settings = {name: value for name, value in self.statement.settings.items() if name not in _PROCESSOR_SETTINGS}
        for name, value in settings.items():
            if name not in CATEGORY_SETTINGS:
                raise unknown_setting(self.text, name, value, (*CATEGORY_SETTINGS, *_PROCESSOR_SETTINGS))
        keeps_time = "time" not in settings
        if not keeps_time:
            time = str(settings["time"].value)
        if time is None:
            raise self.text.refusal(
                position_of(self.select),
                f"The result has no event time: column {self.source.time} is missing.",
                f"Select {self.source.time}, or name another column: WITH (time = '…').",
            )
        if key is not None and "key" not in settings:
            settings["key"] = Setting(key, self.statement.position)
        needed = {time, str(settings["key"].value)} if "key" in settings else {time}
        for name in needed.intersection(types):
            if types[name].nullable:
                raise self.text.refusal(
                    position_of(nodes.get(name, self.select)),
                    f"Column {name} can be NULL, so it cannot be a key or an event time.",
                    f"Exclude NULL: coalesce({name}, …).",
                )
        declared = TableDeclaration(
            self.statement.name,
            types,
            time,
            settings,
            self.statement.position,
            () if "key" in settings else tuple(group),
        )
        return replace(Relation.of(self.text, declared), has_watermarks=keeps_time)

    def filtered_rows(
        self, program: StatementProgram, output: Relation, columns: Mapping[str, Compiled], **options: Any
    ) -> type[Processor]:
        """Return the processor that writes a row for each row of the source for which WHERE holds: in columns, if they are known.

        Args:
            program: compiled the columns.
            output: the table that it writes.
            columns: the columns of its rows.
            options: further attributes of the processor.
        """
        condition = self.condition(program)
        written = f"return ({constructor(program, output, columns)},)"
        body = [written] if condition is None else [f"if {condition.code}:", f"    {written}", "return ()"]
        obstacle = self.obstacle(columns.items(), condition)
        if obstacle is not None:
            return self.row_processor(program, self.source, output, body, sql_by_event=obstacle, **options)
        where = None if condition is None else condition.columns
        values = {name: each.columns for name, each in columns.items() if each.columns is not None}

        def process_columns(_: Processor, events: pa.RecordBatch) -> pa.RecordBatch | None:
            return unless_no_value(lambda: computed_table(filtered(events, where), values))

        members = {"columns": self.needed_columns(), "process_columns": process_columns, **options}
        return self.row_processor(program, self.source, output, body, **members)

    def needed_columns(self) -> tuple[str, ...]:
        """Return the columns of the source that the query names, and the event time."""
        named = {column.name for column in self.select.find_all(exp.Column)}
        named |= {column.name for _, node in self.columns for column in node.find_all(exp.Column)}
        return tuple(name for name in self.source.columns if name in named or name == self.source.time)

    def obstacle(self, columns: Collection[tuple[str, Compiled]], condition: Compiled | None) -> str | None:
        """Return why columns, with their names, and WHERE cannot be computed for many rows at once, in words; None if they can."""
        if self.source.step.kind is not Stateless:
            return "a join has no columns"
        needed = [each for _, each in columns] + ([] if condition is None else [condition])
        if all(each.columns is not None for each in needed):
            return None
        for name, each in columns:
            if each.type not in ARROW_TYPES:
                return f"{name} is of type {each.type.value}"
        for name in self.needed_columns():
            if self.source.columns[name].type not in ARROW_TYPES:
                return f"{name} is of type {self.source.columns[name].type.value}"
        call = next(self.select.find_all(PythonFunction, PythonAggregate), None)
        return (
            "one of its values is computed row by row" if call is None else f"{described(call)} is computed in Python"
        )

    def row_processor(
        self, program: StatementProgram, source: Relation, output: Relation, body: Sequence[str], **options: Any
    ) -> type[Processor]:
        """Return the processor without aggregates that runs lines of code for each row of a source, and returns their outputs.

        Args:
            program: compiled the code.
            source: the table that it reads.
            output: the table that it writes.
            body: the lines.
            options: further attributes of the processor.
        """
        step = source.step
        method = program.function(step.method, step.parameters, [*step.before, *body])
        return self.processor(step.kind, source, output, {**step.members, step.method: method, **options})

    def processor(
        self, kind: type[Processor], source: Relation, output: Relation, members: Mapping[str, Any]
    ) -> type[Processor]:
        """Return a processor with the name of its output table."""
        declared: dict[str, Any] = {
            "__module__": self.module,
            "sql_query": self.statement.words,
            "name": output.name,
            "writes": output.category,
            "watermark": self.watermark_of(source),
            **members,
        }
        if "semantics" in self.statement.settings:
            declared["output_semantics"] = self._semantics(self.statement.settings["semantics"])
        made: type[Processor] = type(output.name, (kind,), declared)
        return made

    def watermark_of(self, source: Relation) -> Watermark:
        """Return the watermark of a table that the query reads."""
        if source.has_watermarks:
            return UpstreamWatermark()
        bound = self.statement.settings.get("out_of_orderness")
        return Confidence() if bound is None else BoundedOutOfOrderness(duration(self.text, bound))

    def _semantics(self, setting: Setting) -> Semantics:
        for each in Semantics:
            if each.value == setting.value:
                return each
        names = [each.value for each in Semantics]
        raise self.text.refusal(
            setting.position,
            f"There are no semantics {setting.value!r}.",
            f"Write {', '.join(map(repr, names))}.{did_you_mean(str(setting.value), names)}",
        )


def constructor(program: StatementProgram, output: Relation, columns: Mapping[str, Compiled]) -> str:
    """Return the code that creates a record of a table."""
    values = ", ".join(f"{output.attributes[name]}={each.code}" for name, each in columns.items())
    return f"{program.constant(output.category.record)}({values})"


def table_of(text: SqlText, clause: exp.Expr, relations: Mapping[str, Relation]) -> Relation:
    """Return the table that FROM or JOIN names, under its alias.

    Raises:
        SqlRefused: there is no such table.
    """
    if isinstance(clause, exp.Select):
        raise text.refusal(position_of(clause), "The query has no FROM.", "Name the table that it reads.")
    table = clause.this
    if not isinstance(table, exp.Table):
        raise text.refusal(
            position_of(table), "This is not supported in FROM.", "Name a table, or a query: (SELECT …) AS name."
        )
    if isinstance(table.this, exp.Func):
        raise text.refusal(
            position_of(table),
            "Functions are not supported in FROM.",
            "Windows are in GROUP BY: FROM views GROUP BY page, tumble(seen, interval '5 minutes').",
        )
    found = relations.get(table.name)
    if found is None:
        raise text.refusal(
            position_of(table),
            f"There is no table {table.name}.",
            f"The tables are: {', '.join(relations) or 'none'}.{did_you_mean(table.name, relations)}",
        )
    return replace(found, name=table.alias) if table.alias else found


def column_named(name: str) -> exp.Column:
    """Return a column of the source as all expressions of a query name it: equal expressions are equal nodes."""
    return exp.column(exp.to_identifier(name))


def _name_columns(select: exp.Select, source: Relation) -> None:
    """Name the columns of the source in one way: without the name of the table, and with quotes only where needed."""
    for column in list(select.find_all(exp.Column)):
        if column.name in source.columns and column.table in ("", source.name):
            named = column_named(column.name)
            named.meta["start"] = position_of(column)
            column.replace(named)


def fold_names(query: exp.Query, known: Collection[str]) -> None:
    """Convert the unquoted names of a query to lower case, as PostgreSQL does, except names of declared columns.

    Args:
        query: the query; it is changed.
        known: the names of the columns that tables declare: they are the fields of messages, in any case.
    """
    for name in query.find_all(exp.Identifier):
        if not name.quoted and name.name not in known:
            name.set("this", name.name.lower())


def _columns(text: SqlText, select: exp.Select, source: Relation) -> Iterator[tuple[str, exp.Expr]]:
    for index, node in enumerate(select.expressions):
        if isinstance(node, exp.Star) or (isinstance(node.this, exp.Star) and node.text("table") == source.name):
            yield from ((name, column_named(name)) for name in source.columns)
        elif isinstance(node, exp.Alias):
            yield node.alias, node.this
        elif isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            yield node.name, node
        elif (name := _default_name(text, node)) is not None:
            yield name, node
        else:
            raise text.refusal(
                position_of(node),
                f"Column {index + 1} of the result has no name.",
                f"Name it: {node.sql(dialect='postgres')} AS a_name.",
            )


def _default_name(text: SqlText, node: exp.Expr) -> str | None:
    """Return the name that PostgreSQL gives to a result: of the function or of the converted column; None if it has none."""
    match node:
        case exp.Column():
            return node.name
        case exp.Filter() | exp.Paren():
            return _default_name(text, node.this)
        case exp.Cast():
            return _default_name(text, node.this) or node.to.sql(dialect="postgres").lower()
        case exp.Extract() | exp.Substring() | exp.Trim() | exp.Case():
            return type(node).__name__.lower()
        case exp.Func() if "start" in node.meta:
            return text.text[node.meta["start"] : node.meta["end"] + 1].lower()
        case _:
            return None
