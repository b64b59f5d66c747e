"""Example rows of SQL files: the statements of a test file.

    TEST 'a name';                          a new test, with empty tables
    INSERT INTO views (…) VALUES (…), (…);  events arrive; the rows of a lookup table replace its source
    ADVANCE interval '2 minutes';           time passes without events
    EXPECT pages (…) VALUES (…);            the rows written since the last EXPECT of the table, in any order
    EXPECT NO ROWS IN pages;

Values are constant expressions of SQL, converted to the types of their columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from ..declare import plan_of
from ..validation import did_you_mean
from ..wording import counted
from .compiler import SqlApp
from .cursor import Cursor, keyword, parsed_sql, statements_of
from .errors import SqlDataError, SqlText
from .expressions import StatementProgram
from .lookup_tables import LookupTable
from .relations import Relation
from .statements import interval_from
from .types import ColumnType

_INSERT = "INSERT INTO views (seen, page) VALUES (0, '/'), (1000, '/home');"
_EXPECT = "EXPECT views_per_page (page, views) VALUES ('/', 1);"
_NO_ROWS = "EXPECT NO ROWS IN views_per_page;"
_ADVANCE = "ADVANCE interval '2 minutes';"
_TEST = "TEST 'late events are dropped';"
_EXAMPLES = f"The statements are:\n{_TEST}\n{_INSERT}\n{_ADVANCE}\n{_EXPECT}\n{_NO_ROWS}"


Table = TypeVar("Table", Relation, LookupTable)


@dataclass(frozen=True)
class ExampleRows(Generic[Table]):
    """Rows of a table.

    Args:
        table: the table.
        columns: the columns that they contain.
        values: the values of each row, in the order of the columns.
        line: the line of the statement in its file.
    """

    table: Table
    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    line: int


@dataclass(frozen=True)
class Insert:
    """INSERT: the rows arrive as events."""

    rows: ExampleRows[Relation]


@dataclass(frozen=True)
class InsertLookup:
    """INSERT: the rows are added to a lookup table, in place of its source."""

    rows: ExampleRows[LookupTable]


@dataclass(frozen=True)
class Advance:
    """ADVANCE: time passes without events."""

    time: timedelta


@dataclass(frozen=True)
class Expect:
    """EXPECT: these rows were written since the last EXPECT of the table."""

    rows: ExampleRows[Relation]


Step = Insert | InsertLookup | Advance | Expect


@dataclass(frozen=True)
class ExampleTest:
    """A test of an SQL file.

    Args:
        name: its name.
        steps: its steps, in order.
    """

    name: str
    steps: tuple[Step, ...]


def parse_examples(text: SqlText, app: SqlApp) -> list[ExampleTest]:
    """Return the tests of a test file.

    Args:
        text: the test file.
        app: the tested file.

    Raises:
        SqlRefused: a statement is invalid, or its values do not fit their columns.
    """
    tests: list[tuple[str, list[Step]]] = []
    for cursor in statements_of(text):
        if cursor.accepts("TEST"):
            tests.append((cursor.quoted(_TEST), []))
            cursor.end(_TEST)
        else:
            if not tests:
                tests.append((text.name, []))
            tests[-1][1].append(_step(cursor, app))
    return [ExampleTest(name, tuple(steps)) for name, steps in tests]


def _step(cursor: Cursor, app: SqlApp) -> Step:
    if cursor.accepts("INSERT"):
        cursor.expect("INTO", _INSERT)
        if cursor.word().lower() in app.lookups:
            return InsertLookup(_complete_rows(cursor, app.lookups))
        return _insert(cursor, app)
    if cursor.accepts("ADVANCE"):
        position, time = cursor.position, interval_from(cursor)
        if time <= timedelta():
            raise cursor.text.refusal(position, "Time passes only forward.", f"Write: {_ADVANCE}")
        return Advance(time)
    if cursor.accepts("EXPECT"):
        return Expect(_expected(cursor, app.relations))
    raise cursor.refused(f"There is no statement {cursor.word()} in a test file.", _EXAMPLES)


def _insert(cursor: Cursor, app: SqlApp) -> Insert:
    position, rows = cursor.position, _complete_rows(cursor, app.relations)
    if any(rows.table.category in plan_of(processor).outputs for processor in app.processors):
        raise cursor.text.refusal(
            position,
            f"A query writes {rows.table.name}, so a test does not insert into it.",
            "Insert into the tables that the query reads.",
        )
    return Insert(rows)


def _complete_rows(cursor: Cursor, tables: Mapping[str, Table]) -> ExampleRows[Table]:
    """Return rows with a value in each column that needs one."""
    position, rows = cursor.position, _rows(cursor, tables, _INSERT)
    for name, kind in rows.table.columns.items():
        if not kind.nullable and name not in rows.columns:
            raise cursor.text.refusal(
                position, f"Column {name} of {rows.table.name} needs a value.", "Add it to the list of columns."
            )
    return rows


def _expected(cursor: Cursor, relations: Mapping[str, Relation]) -> ExampleRows[Relation]:
    if not cursor.at("NO", "ROWS"):
        return _rows(cursor, relations, _EXPECT)
    cursor.accepts("NO", "ROWS")
    cursor.expect("IN", _NO_ROWS)
    line = cursor.line
    table = _table(cursor, relations, _NO_ROWS)
    cursor.end(_NO_ROWS)
    return ExampleRows(table, tuple(table.columns), (), line)


def _table(cursor: Cursor, relations: Mapping[str, Table], example: str) -> Table:
    position, name = cursor.position, cursor.name(example)
    if name not in relations:
        raise cursor.text.refusal(
            position,
            f"There is no table {name}.",
            f"The tables are: {', '.join(relations)}.{did_you_mean(name, relations)}",
        )
    return relations[name]


def _rows(cursor: Cursor, relations: Mapping[str, Table], example: str) -> ExampleRows[Table]:
    line = cursor.line
    table = _table(cursor, relations, example)
    columns = tuple(table.columns) if cursor.at("VALUES") else _columns(cursor, table, example)
    cursor.expect("VALUES", example)
    values = [_values(cursor, table, columns, example)]
    while cursor.accepts(","):
        values.append(_values(cursor, table, columns, example))
    cursor.end(example)
    return ExampleRows(table, columns, tuple(values), line)


def _columns(cursor: Cursor, table: Relation | LookupTable, example: str) -> tuple[str, ...]:
    cursor.expect("(", example)
    columns: list[str] = []
    while True:
        position, name = cursor.position, cursor.name(example)
        if name not in table.columns:
            raise cursor.text.refusal(
                position,
                f"{table.name} has no column {name}.",
                f"Its columns are: {', '.join(table.columns)}.{did_you_mean(name, table.columns)}",
            )
        if name in columns:
            raise cursor.text.refusal(position, f"Column {name} is listed twice.")
        columns.append(name)
        if not cursor.accepts(","):
            break
    cursor.expect(")", example)
    return tuple(columns)


def _values(cursor: Cursor, table: Relation | LookupTable, columns: Sequence[str], example: str) -> tuple[Any, ...]:
    """Return the values of a row in parentheses."""
    position, tokens = cursor.position, cursor.parentheses(example)
    nodes = parsed_sql(cursor.text, [keyword(TokenType.SELECT, "SELECT"), *tokens[1:-1]], position).expressions
    if len(nodes) != len(columns):
        raise cursor.text.refusal(
            position,
            f"This row has {counted(len(nodes), 'value')} for {counted(len(columns), 'column')}: {', '.join(columns)}.",
        )
    program = StatementProgram(cursor.text, _NoColumns())
    return tuple(
        _value(program, _placed(node, position), name, table.columns[name])
        for name, node in zip(columns, nodes, strict=True)
    )


def _placed(node: exp.Expr, position: int) -> exp.Expr:
    """Return a node that has a position: its own, or the position of its row."""
    if not any("start" in each.meta for each in node.walk()):
        node.meta["start"] = position
    return node


def _value(program: StatementProgram, node: exp.Expr, column: str, kind: ColumnType) -> Any:
    named = node.find(exp.Column)
    if named is not None:
        raise program.refused(
            named, f"{named.sql()} is a name, and values are constant.", "Write texts in single quotes: 'text'."
        )
    compiled = program.expect(node, kind.type)
    try:
        value = program.function("value", "", [f"return {compiled.code}"])()
    except SqlDataError as error:
        raise program.refused(node, f"This expression has no value: {error}.") from error
    if value is None and not kind.nullable:
        raise program.refused(node, f"Column {column} cannot be NULL.")
    return value


class _NoColumns:
    """The scope of constant expressions."""

    def column(self, table: str | None, name: str) -> None:
        """Return None."""

    def names(self) -> Sequence[str]:
        """Return no name."""
        return []
