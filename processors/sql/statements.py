"""Statements of SQL files.

    text --tokens--> statements, split at semicolons --a parser for each kind--> frozen values; sqlglot parses queries and column lists

Clauses that no SQL dialect has (SCRIBE, TIME, EMIT, a window in brackets) are removed from the tokens before sqlglot parses the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from sqlglot import ParseError, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ..validation import did_you_mean
from .errors import SqlRefused, SqlText
from .expressions import interval_of, position_of
from .types import SqlType, declared_type

_STATEMENTS = "CREATE APPLICATION, CREATE CATEGORY, CREATE INPUT TABLE and CREATE TABLE … AS SELECT"
_DIALECT = Postgres()


class Emit(Enum):
    """When a windowed query writes its results."""

    CHANGES = "EMIT CHANGES"
    ON_WINDOW_CLOSE = "EMIT ON WINDOW CLOSE"


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
class CreateTable:
    """CREATE TABLE … AS SELECT: a query and the category of its results.

    Args:
        name: the name in queries; without another setting, also the name of the category.
        query: the parsed query.
        window: the length of the window in brackets after the input; None without one.
        emit: when to write results; None for the default.
        settings: the values of its WITH clause.
        position: its position in the file.
    """

    name: str
    query: exp.Query
    window: timedelta | None
    emit: Emit | None
    settings: Settings
    position: int


Statement = CreateApplication | CreateInput | CreateTable


def parse_statements(text: SqlText) -> list[Statement]:
    """Return the statements of a file.

    Raises:
        SqlRefused: a statement is invalid or unsupported.
    """
    try:
        tokens = _DIALECT.tokenize(text.text)
    except TokenError as error:
        raise text.refusal(
            len(text.text), f"The text cannot be split into words: {error}.", "Close all quotes and comments."
        ) from error
    return [_parser_of(text, statement) for statement in _split(tokens)]


def _split(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    statement: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            if statement:
                yield statement
            statement = []
        else:
            statement.append(token)
    if statement:
        yield statement


def _parser_of(text: SqlText, tokens: list[Token]) -> Statement:
    cursor = _Cursor(text, tokens)
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


@dataclass
class _Cursor:
    """The tokens of a statement and a place among them."""

    text: SqlText
    tokens: list[Token]
    index: int = field(default=0)

    @property
    def position(self) -> int:
        """Return the offset of the next token in the file; after the last one, the end of that."""
        return self.tokens[self.index].start if self.index < len(self.tokens) else self.tokens[-1].end + 1

    def word(self) -> str:
        """Return the text of the next token; empty after the last one."""
        return self.tokens[self.index].text if self.index < len(self.tokens) else ""

    def at(self, *words: str) -> bool:
        """Return whether the next tokens are these words."""
        following = self.tokens[self.index : self.index + len(words)]
        return [token.text.upper() for token in following if token.token_type is not TokenType.STRING] == list(words)

    def accepts(self, *words: str) -> bool:
        """Move behind these words if they come next, and return whether they did."""
        found = self.at(*words)
        self.index += len(words) * found
        return found

    def expect(self, word: str, example: str) -> None:
        """Move behind a word.

        Raises:
            SqlRefused: another word comes next.
        """
        if not self.accepts(word):
            raise self.refused(f"{word} is expected here.", f"Write: {example}")

    def name(self, example: str) -> str:
        """Return the next token as a name and move behind it. Unquoted names are in lower case, as in PostgreSQL."""
        if self.index >= len(self.tokens) or not (
            self.word()[:1].isalpha() or self.word()[:1] == "_" or self._quoted()
        ):
            raise self.refused("A name is expected here.", f"Write: {example}")
        name = self.word() if self._quoted() else self.word().lower()
        self.index += 1
        return name

    def quoted(self, example: str) -> str:
        """Return the next token as a text in single or double quotes, and move behind it."""
        if self.index >= len(self.tokens) or not self._quoted():
            raise self.refused("A text in quotes is expected here.", f"Write: {example}")
        self.index += 1
        return self.tokens[self.index - 1].text

    def _quoted(self) -> bool:
        return self.tokens[self.index].token_type in (TokenType.STRING, TokenType.IDENTIFIER)

    def parentheses(self, example: str) -> list[Token]:
        """Return the tokens of a group in parentheses, these included, and move behind it."""
        start, depth = self.index, 0
        while self.index < len(self.tokens):
            kind = self.tokens[self.index].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            self.index += 1
            if depth == 0:
                break
        if depth or self.index - start < 2:
            self.index = start
            raise self.refused("A list in parentheses is expected here.", f"Write: {example}")
        return self.tokens[start : self.index]

    def end(self, example: str) -> None:
        """Raise SqlRefused if tokens are left."""
        if self.index < len(self.tokens):
            raise self.refused(f"{self.word()!r} is not expected here.", f"Write: {example}")

    def refused(self, problem: str, advice: str) -> SqlRefused:
        """Return the error of the next token."""
        return self.text.refusal(self.position, problem, advice)


_APPLICATION = "CREATE APPLICATION top_events;"
_INPUT = 'CREATE INPUT TABLE clicks (at bigint, page text) FROM SCRIBE("clicks") TIME at;'
_CATEGORY = "CREATE CATEGORY clicks (at bigint, page text) WITH (key = 'page', time = 'at');"
_TABLE = (
    "CREATE TABLE pages AS SELECT page, count(*) AS clicks FROM clicks GROUP BY page, tumble(at, interval '5 minutes');"
)


def _application(cursor: _Cursor) -> CreateApplication:
    position = cursor.position
    statement = CreateApplication(cursor.name(_APPLICATION), position)
    cursor.end(_APPLICATION)
    return statement


def _input(cursor: _Cursor) -> CreateInput:
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


def _category(cursor: _Cursor) -> CreateInput:
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


def _columns(cursor: _Cursor, example: str) -> tuple[ColumnDefinition, ...]:
    start = cursor.position
    tokens = cursor.parentheses(example)
    prefix = [_keyword(TokenType.CREATE, "CREATE"), _keyword(TokenType.TABLE, "TABLE"), _keyword(TokenType.VAR, "t")]
    created = _parsed(cursor.text, [*prefix, *tokens], start)
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
            f"The types are {', '.join(each.value for each in SqlType if each not in (SqlType.NULL, SqlType.INTERVAL))}.",
        )
    nullable = True
    for constraint in column.args.get("constraints") or ():
        if not isinstance(constraint.kind, exp.NotNullColumnConstraint) or constraint.kind.args.get("allow_null"):
            raise text.refusal(position_of(column), f"{constraint.sql()} is not supported.", "Only NOT NULL is.")
        nullable = False
    return ColumnDefinition(column.name, kind, nullable, position_of(column))


def _settings(cursor: _Cursor, example: str) -> Settings:
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


def _value(cursor: _Cursor, example: str) -> str | int | bool:
    word, kind = cursor.word(), cursor.tokens[min(cursor.index, len(cursor.tokens) - 1)].token_type
    if kind is TokenType.NUMBER and word.isdigit():
        cursor.index += 1
        return int(word)
    if kind in (TokenType.TRUE, TokenType.FALSE):
        cursor.index += 1
        return kind is TokenType.TRUE
    return cursor.quoted(example)


def _table(cursor: _Cursor) -> CreateTable:
    position, name = cursor.position, cursor.name(_TABLE)
    settings = _settings(cursor, _TABLE)
    cursor.expect("AS", _TABLE)
    start = cursor.position
    tokens = cursor.tokens[cursor.index :]
    tokens, emit = _without_emit(cursor.text, tokens)
    tokens, window = _without_window(cursor.text, tokens)
    query = _parsed(cursor.text, tokens, start) if tokens else None
    if not isinstance(query, exp.Query):
        raise cursor.text.refusal(start, "A query is expected after AS.", f"Write: {_TABLE}")
    return CreateTable(name, query, window, emit, settings, position)


def _without_emit(text: SqlText, tokens: list[Token]) -> tuple[list[Token], Emit | None]:
    """Return the tokens of a query without its EMIT clause."""
    places = [
        index
        for index, token in enumerate(tokens)
        if token.text.upper() == "EMIT" and token.token_type is TokenType.VAR
    ]
    if not places or _depth(tokens[: places[-1]]):
        return tokens, None
    clause = " ".join(token.text.upper() for token in tokens[places[-1] :])
    for emit in Emit:
        if clause == emit.value:
            return tokens[: places[-1]], emit
    raise text.refusal(
        tokens[places[-1]].start, f"{clause} is not supported.", f"Write {' or '.join(emit.value for emit in Emit)}."
    )


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
            return tokens[:index] + tokens[index + 4 :], interval_of(text, interval)
    return tokens, None


def _keyword(kind: TokenType, text: str) -> Token:
    return Token(kind, text)


def _parsed(text: SqlText, tokens: list[Token], start: int) -> exp.Expr:
    """Parse tokens with sqlglot; the nodes keep positions in the file.

    Raises:
        SqlRefused: they are not valid SQL.
    """
    renamed = [_as_name(token, following) for token, following in zip(tokens, [*tokens[1:], None], strict=True)]
    try:
        [parsed] = _DIALECT.parser().parse(renamed, text.text)
    except ParseError as error:
        details = error.errors[0] if error.errors else {}
        line, column = details.get("line") or 1, details.get("col") or 1
        offset = (
            sum(len(each) + 1 for each in text.text.split("\n")[: line - 1])
            + column
            - len(details.get("highlight") or " ")
        )
        raise text.refusal(max(offset, start), f"{_problem(str(details.get('description') or ''))}.") from error
    if parsed is None or isinstance(parsed, exp.Command):
        raise text.refusal(start, "This statement is not supported.", f"The statements are {_STATEMENTS}.")
    return parsed


def _problem(description: str) -> str:
    """Return what sqlglot found, without the names of its classes."""
    if "<" in description or not description:
        return "Something is missing here, or this is not valid SQL"
    return description.rstrip(".")


def _as_name(token: Token, following: Token | None) -> Token:
    """Return the keyword SESSION as a name if it is called: `session(at, interval '30 seconds')` is a window."""
    if token.token_type is TokenType.SESSION and following is not None and following.token_type is TokenType.L_PAREN:
        return Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)
    return token


_PARSERS = (
    (("APPLICATION",), _application),
    (("INPUT", "TABLE"), _input),
    (("CATEGORY",), _category),
    (("TABLE",), _table),
)
