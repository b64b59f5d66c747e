"""Statements of SQL files.

    text --tokens--> statements, split at semicolons --a parser for each kind--> frozen values; sqlglot parses queries and column lists

Clauses that no SQL dialect has (SCRIBE, TIME, EMIT, a window in brackets) are removed from the tokens before sqlglot parses the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import NamedTuple

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ..validation import did_you_mean
from .cursor import Cursor, keyword, parsed_sql, statements_of
from .errors import SqlText
from .expression_compiler import position_of
from .time_functions import interval_of, window_length
from .types import PYTHON_TYPES, SqlType, declared_type

_STATEMENTS = "CREATE APPLICATION, CREATE CATEGORY, CREATE INPUT TABLE, CREATE LOOKUP TABLE, CREATE FUNCTION and CREATE TABLE … AS SELECT"


class Emit(Enum):
    """When a windowed query writes its results."""

    CHANGES = "EMIT CHANGES"
    ON_WINDOW_CLOSE = "EMIT ON WINDOW CLOSE"
    EVERY = "EMIT EVERY interval '10 seconds'"
    AFTER_WATERMARK = "EMIT AFTER WATERMARK WITH DELAY interval '1 minute'"


class EmitClause(NamedTuple):
    """When a query writes its results.

    Args:
        emit: the kind of clause.
        interval: the interval of EMIT EVERY, or the delay of EMIT AFTER WATERMARK.
    """

    emit: Emit
    interval: timedelta = timedelta()

    @property
    def at_end(self) -> bool:
        """Whether each window is written once, when it is complete."""
        return self.emit in (Emit.ON_WINDOW_CLOSE, Emit.AFTER_WATERMARK)


@dataclass(frozen=True)
class Setting:
    """A value of a WITH clause, with its position in the file."""

    value: str | int | bool
    position: int


Settings = Mapping[str, Setting]


@dataclass(frozen=True)
class ColumnDefinition:
    """A declared column.

    Args:
        name: its name.
        type: its type; None if the statement leaves it to the category.
        nullable: whether NULL is a value.
        position: its position in the file.
    """

    name: str
    type: SqlType | None
    nullable: bool
    position: int


@dataclass(frozen=True)
class CreateApplication:
    """CREATE APPLICATION: the name of the app."""

    name: str
    position: int


@dataclass(frozen=True)
class CreateInput:
    """CREATE INPUT TABLE or CREATE CATEGORY: a category that the app reads.

    Args:
        name: the name in queries.
        category: the name on the bus.
        columns: its columns; empty if a Python module declares the category.
        time: the column with the event time.
        settings: the values of its WITH clause.
        position: its position in the file.
        end: the offset behind its last character.
    """

    name: str
    category: str
    columns: tuple[ColumnDefinition, ...]
    time: str | None
    settings: Settings
    position: int
    end: int


@dataclass(frozen=True)
class CreateLookup:
    """CREATE LOOKUP TABLE: rows outside of the bus.

    Args:
        name: the name in queries.
        columns: its columns.
        settings: the values of its WITH clause.
        position: its position in the file.
    """

    name: str
    columns: tuple[ColumnDefinition, ...]
    settings: Settings
    position: int


@dataclass(frozen=True)
class CreateFunction:
    """CREATE FUNCTION: a function in Python.

    Args:
        name: its name in queries.
        place: its file and its name there, such as `udfs.py:domain`.
        position: its position in the file.
    """

    name: str
    place: str
    position: int


@dataclass(frozen=True)
class CreateTable:
    """CREATE TABLE … AS SELECT: a query and the category of its results.

    Args:
        name: the name in queries; without another setting, also the name of the category.
        query: the parsed query.
        words: the query as written, with EMIT.
        window: the length of the window in brackets after the input; None without one.
        emit: when to write results; None for the default.
        settings: the values of its WITH clause.
        position: its position in the file.
    """

    name: str
    query: exp.Query
    words: str
    window: timedelta | None
    emit: EmitClause | None
    settings: Settings
    position: int


Statement = CreateApplication | CreateInput | CreateLookup | CreateFunction | CreateTable


def parse_statements(text: SqlText) -> list[Statement]:
    """Return the statements of a file.

    Raises:
        SqlRefused: a statement is invalid or unsupported.
    """
    cursors = list(statements_of(text))
    for cursor in cursors:
        _expect_one_statement(cursor)
    return [_statement(cursor) for cursor in cursors]


def _expect_one_statement(cursor: Cursor) -> None:
    """Raise SqlRefused if another statement begins within one: then the parser would report a word that is correct there."""
    for before, token, word in zip(cursor.tokens, cursor.tokens[1:], cursor.tokens[2:], strict=False):
        if token.token_type is TokenType.CREATE and word.text.upper() in {words[0] for words, _ in _PARSERS}:
            raise cursor.text.refusal(
                before.end + 1, f"A semicolon is missing here, before CREATE {word.text.upper()}.", "Write ; here."
            )


def _statement(cursor: Cursor) -> Statement:
    start = cursor.position
    if any(cursor.accepts(word) for word in ("TEST", "INSERT", "EXPECT", "ADVANCE")):
        raise cursor.text.refusal(
            start,
            "This is a statement of a test file, and not of an app.",
            "Name the file of the app: `penstock sql test shop.sql` runs the tests in shop_test.sql.",
        )
    if not cursor.accepts("CREATE"):
        raise cursor.refused("A statement must begin with CREATE.", f"The statements are {_STATEMENTS}.")
    for words, parse in _PARSERS:
        if cursor.accepts(*words):
            return parse(cursor)
    known = [words[0] for words, _ in _PARSERS]
    raise cursor.refused(
        f"There is no statement CREATE {cursor.word() or ''}.",
        f"The statements are {_STATEMENTS}.{did_you_mean(cursor.word().upper(), known)}",
    )


_APPLICATION = "CREATE APPLICATION top_events;"
_INPUT = 'CREATE INPUT TABLE clicks (at bigint, page text) FROM SCRIBE("clicks") TIME at;'
_CATEGORY = "CREATE CATEGORY clicks (at bigint, page text) WITH (key = 'page', time = 'at');"
_LOOKUP = "CREATE LOOKUP TABLE airports (code text, city text) WITH (csv = 'airports.csv', key = 'code');"
_FUNCTION = "CREATE FUNCTION domain USING 'udfs.py:domain';"
_TABLE = (
    "CREATE TABLE pages AS SELECT page, count(*) AS clicks FROM clicks GROUP BY page, tumble(at, interval '5 minutes');"
)


def _application(cursor: Cursor) -> CreateApplication:
    position = cursor.position
    statement = CreateApplication(cursor.name(_APPLICATION), position)
    cursor.end(_APPLICATION)
    return statement


def _input(cursor: Cursor) -> CreateInput:
    position = cursor.position
    name = cursor.name(_INPUT)
    columns = _columns(cursor, _INPUT)
    cursor.expect("FROM", _INPUT)
    cursor.expect("SCRIBE", _INPUT)
    cursor.expect("(", _INPUT)
    category = cursor.quoted(_INPUT)
    cursor.expect(")", _INPUT)
    cursor.expect("TIME", _INPUT)
    time = cursor.name(_INPUT)
    settings = _settings(cursor, _INPUT)
    cursor.end(_INPUT)
    return CreateInput(name, category, columns, time, settings, position, cursor.position)


def _category(cursor: Cursor) -> CreateInput:
    position = cursor.position
    name = cursor.name(_CATEGORY)
    columns = _columns(cursor, _CATEGORY)
    settings = dict(_settings(cursor, _CATEGORY))
    cursor.end(_CATEGORY)
    category, time = settings.pop("category", None), settings.pop("time", None)
    return CreateInput(
        name,
        str(category.value) if category else name,
        columns,
        str(time.value) if time else None,
        settings,
        position,
        cursor.position,
    )


def _lookup(cursor: Cursor) -> CreateLookup:
    position = cursor.position
    statement = CreateLookup(cursor.name(_LOOKUP), _columns(cursor, _LOOKUP), _settings(cursor, _LOOKUP), position)
    cursor.end(_LOOKUP)
    return statement


def _function(cursor: Cursor) -> CreateFunction:
    position, name = cursor.position, cursor.name(_FUNCTION)
    cursor.expect("USING", _FUNCTION)
    place = cursor.quoted(_FUNCTION)
    cursor.end(_FUNCTION)
    return CreateFunction(name, place, position)


def _columns(cursor: Cursor, example: str) -> tuple[ColumnDefinition, ...]:
    start = cursor.position
    tokens = cursor.parentheses(example)
    prefix = [keyword(TokenType.CREATE, "CREATE"), keyword(TokenType.TABLE, "TABLE"), keyword(TokenType.VAR, "t")]
    created = parsed_sql(cursor.text, [*prefix, *tokens], start)
    columns = [_column(cursor.text, column, example) for column in created.this.expressions]
    names = [column.name for column in columns]
    for column in columns:
        if names.count(column.name) > 1:
            raise cursor.text.refusal(column.position, f"Column {column.name} is declared twice.")
    return tuple(columns)


def _column(text: SqlText, column: exp.Expr, example: str) -> ColumnDefinition:
    if isinstance(column, exp.Identifier):
        return ColumnDefinition(column.name, None, nullable=True, position=position_of(column))
    if not isinstance(column, exp.ColumnDef) or column.args.get("kind") is None:
        raise text.refusal(position_of(column), f"{column.sql()} is not a column.", f"Write: {example}")
    kind = declared_type(column.args["kind"])
    if kind is None or column.args["kind"].expressions:
        raise text.refusal(
            position_of(column),
            f"Column {column.name} has the type {column.args['kind'].sql(dialect='postgres')}, which is not supported.",
            f"The types are {', '.join(each.value for each in PYTHON_TYPES)}.",
        )
    nullable = True
    for constraint in column.args.get("constraints") or ():
        if not isinstance(constraint.kind, exp.NotNullColumnConstraint) or constraint.kind.args.get("allow_null"):
            raise text.refusal(position_of(column), f"{constraint.sql()} is not supported.", "Only NOT NULL is.")
        nullable = False
    return ColumnDefinition(column.name, kind, nullable, position_of(column))


def _settings(cursor: Cursor, example: str) -> Settings:
    """Return the values of a WITH clause; empty without one."""
    if not cursor.accepts("WITH"):
        return {}
    cursor.expect("(", example)
    settings: dict[str, Setting] = {}
    while True:
        position, name = cursor.position, cursor.name(example)
        if name in settings:
            raise cursor.text.refusal(position, f"{name} is set twice.")
        cursor.expect("=", example)
        settings[name] = Setting(_value(cursor, example), position)
        if not cursor.accepts(","):
            break
    cursor.expect(")", example)
    return settings


def _value(cursor: Cursor, example: str) -> str | int | bool:
    word, kind = cursor.word(), cursor.tokens[min(cursor.index, len(cursor.tokens) - 1)].token_type
    if kind is TokenType.NUMBER and word.isdigit():
        cursor.index += 1
        return int(word)
    if kind in (TokenType.TRUE, TokenType.FALSE):
        cursor.index += 1
        return kind is TokenType.TRUE
    return cursor.quoted(example)


def _table(cursor: Cursor) -> CreateTable:
    position, name = cursor.position, cursor.name(_TABLE)
    settings = _settings(cursor, _TABLE)
    cursor.expect("AS", _TABLE)
    start = cursor.position
    tokens = cursor.tokens[cursor.index :]
    tokens, emit = _without_emit(cursor.text, tokens)
    tokens, window = _without_window(cursor.text, tokens)
    query = parsed_sql(cursor.text, tokens, start) if tokens else None
    if not isinstance(query, exp.Query):
        raise cursor.text.refusal(start, "A query is expected after AS.", f"Write: {_TABLE}")
    words = cursor.text.text[start : cursor.tokens[-1].end + 1]
    return CreateTable(name, query, words, window, emit, settings, position)


def _without_emit(text: SqlText, tokens: list[Token]) -> tuple[list[Token], EmitClause | None]:
    """Return the tokens of a query without its EMIT clause."""
    places = [
        index
        for index, token in enumerate(tokens)
        if token.text.upper() == "EMIT" and token.token_type is TokenType.VAR
    ]
    if not places or _depth(tokens[: places[-1]]):
        return tokens, None
    cursor = Cursor(text, tokens[places[-1] + 1 :])
    emit = next((emit for words, emit in _EMITS if cursor.accepts(*words)), None)
    rest, interval = cursor.tokens[cursor.index :], timedelta()
    if emit is Emit.EVERY or (emit is Emit.AFTER_WATERMARK and cursor.accepts("WITH", "DELAY")):
        interval, rest = interval_from(cursor), []
    if emit is None or rest or interval < timedelta() or (emit is Emit.EVERY and not interval):
        clause = " ".join(token.text for token in tokens[places[-1] :])
        raise text.refusal(
            tokens[places[-1]].start,
            f"{clause} is not supported.",
            f"Write {', or '.join(emit.value for emit in Emit)}.",
        )
    return tokens[: places[-1]], EmitClause(emit, interval)


def interval_from(cursor: Cursor) -> timedelta:
    """Return the interval that is the rest of a statement.

    Raises:
        SqlRefused: it is no interval.
    """
    start, tokens = cursor.position, cursor.tokens[cursor.index :]
    select = parsed_sql(cursor.text, [keyword(TokenType.SELECT, "SELECT"), *tokens], start) if tokens else exp.Select()
    [node, *others] = select.expressions or [None]
    if not isinstance(node, exp.Interval) or others:
        raise cursor.text.refusal(start, "An interval is expected here.", "Write: interval '2 minutes'.")
    return interval_of(cursor.text, node)


def _depth(tokens: Sequence[Token]) -> int:
    return sum((token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN) for token in tokens)


def _without_window(text: SqlText, tokens: list[Token]) -> tuple[list[Token], timedelta | None]:
    """Return the tokens of a query without a window in brackets, such as `[5 minutes]`, after the name of a table."""
    for index, token in enumerate(tokens[:-3]):
        opened, amount, unit, closed = tokens[index : index + 4]
        if (opened.token_type, amount.token_type, closed.token_type) == (
            TokenType.L_BRACKET,
            TokenType.NUMBER,
            TokenType.R_BRACKET,
        ):
            interval = exp.Interval(this=exp.Literal.string(amount.text), unit=exp.Var(this=unit.text))
            interval.meta["start"] = token.start
            return tokens[:index] + tokens[index + 4 :], window_length(text, interval, interval_of(text, interval))
    return tokens, None


_EMITS = (
    (("CHANGES",), Emit.CHANGES),
    (("ON", "WINDOW", "CLOSE"), Emit.ON_WINDOW_CLOSE),
    (("EVERY",), Emit.EVERY),
    (("AFTER", "WATERMARK"), Emit.AFTER_WATERMARK),
)
_PARSERS = (
    (("APPLICATION",), _application),
    (("INPUT", "TABLE"), _input),
    (("CATEGORY",), _category),
    (("LOOKUP", "TABLE"), _lookup),
    (("FUNCTION",), _function),
    (("TABLE",), _table),
)
