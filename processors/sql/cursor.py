"""Tokens of SQL files: statements split at semicolons, a cursor over the tokens of one, and parsing of their SQL by sqlglot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import ParseError, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import TokenError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

from .errors import SqlRefused, SqlText


class _Dialect(Postgres):
    """PostgreSQL's dialect, in which to_char keeps its format: sqlglot would convert it to Python's and lose patterns."""

    class Parser(PostgresParser):
        """The parser."""

        FUNCTIONS = {name: build for name, build in PostgresParser.FUNCTIONS.items() if name != "TO_CHAR"}  # noqa: RUF012 - as sqlglot declares it


_DIALECT = _Dialect()


def statements_of(text: SqlText) -> Iterator[Cursor]:
    """Yield a cursor at the beginning of each statement of a file.

    Raises:
        SqlRefused: a quote or a comment has no end.
    """
    try:
        tokens = _DIALECT.tokenize(text.text)
    except TokenError as error:
        raise text.refusal(_open_quote(text.text), "This quote or comment has no end.", "Close it.") from error
    for statement in _split(tokens):
        yield Cursor(text, statement)


_CLOSED = re.compile(r"'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|[^'\"/-]+|[/-](?!\*)", re.DOTALL)


def _open_quote(text: str) -> int:
    """Return the offset of the first quote or comment without an end."""
    end = 0
    while (part := _CLOSED.match(text, end)) is not None:
        end = part.end()
    return end


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


@dataclass
class Cursor:
    """The tokens of a statement and a place among them."""

    text: SqlText
    tokens: list[Token]
    index: int = field(default=0)

    @property
    def position(self) -> int:
        """Return the offset of the next token in the file; after the last one, the end of that."""
        return self.tokens[self.index].start if self.index < len(self.tokens) else self.tokens[-1].end + 1

    @property
    def line(self) -> int:
        """Return the line of the next token in the file."""
        return self.text.text.count("\n", 0, self.position) + 1

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


def keyword(kind: TokenType, text: str) -> Token:
    """Return a token that the file does not contain."""
    return Token(kind, text)


def parsed_sql(text: SqlText, tokens: list[Token], start: int) -> exp.Expr:
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
        raise text.refusal(start, "This statement is not supported.")
    for function in list(parsed.find_all(exp.Lambda)):
        _replace_by_json(function)
    return parsed


def _replace_by_json(function: exp.Lambda) -> None:
    """Replace an anonymous function by the part of a JSON value: `upper(document -> 'a' ->> 'b')`. SQL has no anonymous functions."""
    step = function.this
    while isinstance(step, exp.Binary):
        step = step.this
    [document, *others] = function.expressions
    if others or not isinstance(step, exp.Literal):
        return
    part = exp.JSONExtract(this=exp.column(document), expression=_path_of(step))
    if step is function.this:
        function.replace(part)
    else:
        step.replace(part)
        function.replace(function.this)


def _path_of(step: exp.Literal) -> exp.JSONPath:
    name = exp.JSONPathKey(this=step.this) if step.is_string else exp.JSONPathSubscript(this=int(step.this))
    return exp.JSONPath(expressions=[exp.JSONPathRoot(), name])


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


def is_builtin(name: str) -> bool:
    """Return whether the parser knows a function of this name."""
    parser = _DIALECT.parser()
    return any(
        name.upper() in known for known in (parser.FUNCTIONS, parser.FUNCTION_PARSERS, parser.NO_PAREN_FUNCTION_PARSERS)
    )
