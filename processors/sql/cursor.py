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

from ..validation import did_you_mean
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
    _expect_shallow(text, tokens)
    tokens = [_with_signs(text, token, before) for before, token in zip([None, *tokens], tokens, strict=False)]
    renamed = [_as_name(token, following) for token, following in zip(tokens, [*tokens[1:], None], strict=True)]
    try:
        [parsed] = _DIALECT.parser().parse(renamed, text.text)
    except ParseError as error:
        raise _refusal(text, renamed, error) from error
    except RecursionError as error:  # such as NOT a thousand times
        raise too_deep(text, start) from error
    except ValueError as error:  # such as an empty name of a unit
        raise text.refusal(
            start, "This statement is not valid SQL: a name or a text in it is not valid here."
        ) from error
    if parsed is None or isinstance(parsed, exp.Command):
        raise text.refusal(start, "This statement is not supported.")
    for function in list(parsed.find_all(exp.Lambda)):
        _replace_by_json(function)
    return parsed


_DEEPEST = 30
"""The most levels of parentheses and CASE, one in the other."""


def _expect_shallow(text: SqlText, tokens: list[Token]) -> None:
    """Raise SqlRefused for parentheses that are nested more deeply than the parser can follow."""
    depth = 0
    for token in tokens:
        depth += token.token_type in (TokenType.L_PAREN, TokenType.CASE)
        depth -= token.token_type in (TokenType.R_PAREN, TokenType.END)
        if depth > _DEEPEST:
            raise too_deep(text, token.start)


def too_deep(text: SqlText, place: int) -> SqlRefused:
    """Return the error of an expression with too many others in it, one in the other."""
    return text.refusal(
        place,
        f"Expressions are nested too deeply here: at most {_DEEPEST} levels of parentheses and CASE are supported.",
        "Compute a part in an inner query: WITH name AS (SELECT … AS part FROM …). A list of conditions needs no parentheses around each pair.",
    )


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


_CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT")
_EXPECTED = re.compile(r"Expect(?:ing|ed) (?P<what>\S+)(?: or comma)?(?: after (?P<after>\w+))?")
_TOO_MANY = re.compile(
    r"The number of provided arguments \((\d+)\) is greater than the maximum number of supported arguments \((\d+)\)"
)


def _refusal(text: SqlText, tokens: Sequence[Token], error: ParseError) -> SqlRefused:
    """Return what is wrong, in words of SQL: those of sqlglot name its classes."""
    details = error.errors[0] if error.errors else {}
    description = str(details.get("description") or "")
    at = next(
        (at for at, token in enumerate(tokens) if (token.line, token.col) == (details.get("line"), details.get("col"))),
        0,
    )
    before, found = tokens[max(at - 1, 0)], tokens[at]
    is_last = at == len(tokens) - 1
    place, nearby = (found.end + 1, f"after `{found.text}`") if is_last else (found.start, f"before `{found.text}`")
    if many := _TOO_MANY.match(description):
        return text.refusal(found.start, f"The function has {many[1]} arguments here, and takes {many[2]} at most.")
    if expected := _EXPECTED.match(description):
        what, of = expected["what"], expected["after"]
        missing = f"A {what.lower()}" if what.lower() in ("table", "type") else f"`{what}`"
        return text.refusal(
            place, f"{missing} of {of} is missing at `{found.text}`." if of else f"{missing} is missing {nearby}."
        )
    if "<" in description or not description:
        return text.refusal(place, f"An expression, such as a column, is missing {nearby}.")
    if before.text.upper() in ("GROUP", "ORDER"):
        return text.refusal(before.end + 1, f"`BY` is missing after `{before.text}`.")
    words = [clause.split()[0] for clause in _CLAUSES]
    misspelled = "" if before.text.upper() in words else did_you_mean(before.text, words)
    return text.refusal(
        found.start,
        f"`{found.text}` does not fit here, after `{before.text}`.{misspelled}",
        f"A comma, an operator or a keyword may be missing before it. The clauses are {', '.join(_CLAUSES)}, in this order.",
    )


def _with_signs(text: SqlText, token: Token, before: Token | None) -> Token:
    """Return the text of an interval in the form whose signs and fractions the parser keeps: `- .5 hours` is `-0.5 hours`.

    Raises:
        SqlRefused: the parser would ignore a part of it.
    """
    if before is None or before.token_type is not TokenType.INTERVAL or token.token_type is not TokenType.STRING:
        return token
    plain = re.sub(r"([-+])\s+(?=[\d.])", r"\1", token.text)
    plain = re.sub(r"(?<!\d)\.(?=\d)", "0.", plain).replace("+", " ")
    if re.fullmatch(r"\s*(-?\d+(\.\d+)?\s*[A-Za-z]*\s*)+", plain) is None:
        raise text.refusal(
            token.start, f"The interval {token.text!r} is not supported.", "Write numbers and units: '-5 minutes'."
        )
    return Token(TokenType.STRING, plain.strip(), token.line, token.col, token.start, token.end)


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
