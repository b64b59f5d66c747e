"""SQL expressions have the values that PostgreSQL computes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from psycopg.types.json import Jsonb
from support.databases import Postgres
from support.sql_expressions import COLUMNS, EXPRESSIONS, EXTREMES, FORMATTED, ROWS, Columns
from support.sql_suite import Fact, cases

from penstock.processors.sql import SqlText, SqlType
from penstock.processors.sql.cursor import parsed_sql, statements_of
from penstock.processors.sql.errors import SqlDataError
from penstock.processors.sql.expressions import StatementProgram


@pytest.fixture(scope="module")
def session(postgres: Postgres) -> Iterator[psycopg.Connection]:
    with postgres.session() as connection:
        connection.execute("set time zone 'UTC'")
        collation = {SqlType.TEXT: 'collate "C"'}
        columns = ", ".join(f"{name} {kind.value} {collation.get(kind, '')}" for name, (kind, _) in COLUMNS.items())
        connection.execute(f"create temporary table events ({columns})")
        yield connection


def of_postgres(session: psycopg.Connection, expression: str, row: dict[str, Any]) -> Any:
    """Return the value of an expression in PostgreSQL, or the error that it raises."""
    session.execute("truncate events")
    places = ", ".join("%s" for _ in COLUMNS)
    session.execute(
        f"insert into events values ({places})",
        [Jsonb(row[name]) if name == "j" and row[name] else row[name] for name in COLUMNS],
    )
    try:
        found = session.execute(f"select {expression} from events".replace("%", "%%"), []).fetchone()
    except psycopg.DataError as error:
        return error
    assert found is not None
    return found[0]


def of_penstock(expression: str, row: dict[str, Any]) -> Any:
    """Return the value of an expression, or the error that it raises."""
    program = StatementProgram(SqlText("test.sql", expression), Columns())
    [cursor] = statements_of(program.text)
    compiled = program.compile(parsed_sql(program.text, cursor.tokens, 0))
    try:
        value = program.function("evaluate", "event", [f"return {compiled.code}"])(SimpleNamespace(**row))
    except SqlDataError as error:
        return error
    assert value is not None or compiled.nullable
    return value


def alike(left: Any, right: Any) -> bool:
    """Return whether two values are the same to a user."""
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-300)
    return left == right and isinstance(left, type(right))


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(expression=EXPRESSIONS, row=ROWS)
def test_expressions_have_the_values_of_postgres(
    session: psycopg.Connection, expression: str, row: dict[str, Any]
) -> None:
    """Values, NULL and errors are the same. PostgreSQL may skip or evaluate the branches that contain an error."""
    ours, theirs = of_penstock(expression, row), of_postgres(session, expression, row)

    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        chooses = any(word in expression for word in ("case", "coalesce", " and ", " or ", "between", "nullif"))
        # PostgreSQL evaluates no operand beside a constant NULL.
        folds = theirs is None and "cast(null as" in expression
        # PostgreSQL evaluates all operands; Penstock stops at the first NULL.
        assert ours is None or chooses or folds or (isinstance(theirs, Exception) and isinstance(ours, Exception)), (
            ours,
            theirs,
        )
    else:
        assert alike(ours, theirs), (ours, theirs)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(expression=FORMATTED, row=ROWS)
def test_formatted_values_are_those_of_postgres(
    session: psycopg.Connection, expression: str, row: dict[str, Any]
) -> None:
    """Texts of times and numbers are the same in every supported format."""
    assert of_penstock(expression, row) == of_postgres(session, expression, row)


TEXTS = {
    "date": [
        "2024-01-05",
        "20240105",
        "2024-01-05 10:20",
        "2024-01-05 23:59:59.9999995",
        " 2024-01-05 ",
        "2024-02-30",
        "2024-W01-1",
        "2024-01",
        "\u0662\u0660\u0662\u0664-01-05",
        "12024-01-05",
    ],
    "timestamp with time zone": [
        "2024-01-05T10:20:30Z",
        "2024-01-05 10:20:30+02:30:15",
        "20240105T102030-0230",
        "2024-01-05  10:20 +02",
        "2024-01-05t10:20z",
        "2024-01-05 10:20:30.",
        "2024-01-05 10:20:30.12345",
        "2024-01-05 10:20:30.99999951",
        "2024-01-05T10",
        "2024-01-05 10:20:30,5",
        "2024-01-05 10:20:30+20",
        "2024-01-05 25:00",
        "2024-01-05 1\u0660:20",
    ],
    "uuid": [
        "550e8400-e29b-41d4-a716-446655440000",
        "{550E8400E29B41D4A716446655440000}",
        "550e-8400e29b-41d4a716446655440000",
        "{550e8400-e29b-41d4-a716-446655440000",
        "urn:uuid:550e8400-e29b-41d4-a716-446655440000",
        "5-50e8400e29b41d4a716446655440000",
        " 550e8400-e29b-41d4-a716-446655440000",
        "550e8400-e29b-41d4-a716-44665544000\uff10",
    ],
    "bigint": [" +5\n", "\uff11\uff12", "\u00a05", "5.0", "1e5", ""],
    "double precision": [" -.5e-3 ", "1\uff12.5", "1e400", "+Infinity", "1e", "1.5d", ""],
    "numeric": ["1.", " +.5e-3", "\uff11\uff12.5", "1.5 5", ""],
    "boolean": [" TRUE ", "tru", "of", "o", "\u3000true", "\uff54"],
}
"""Texts that Python's own conversions accept, or PostgreSQL's, by type."""


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in TEXTS.items() for text in texts])
def test_a_text_has_a_value_of_a_type_where_it_has_one_in_postgres(
    session: psycopg.Connection, kind: str, text: str
) -> None:
    """Python's own conversions accept more: digits of all alphabets, weeks of the year, and any braces around an id."""
    row = {**dict.fromkeys(COLUMNS), "b": 0, "y": 0.0, "g": True, "t": text}
    ours, theirs = of_penstock(f"t::{kind}", row), of_postgres(session, f"t::{kind}", row)

    assert (isinstance(ours, Exception) and isinstance(theirs, Exception)) or alike(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("value", [0.1 + 0.2, 100 / 3, 123456789.123456789, 1.7976931348623157e308, -2.5e-300, 1e22])
def test_a_double_has_the_digits_of_postgres_as_a_numeric(session: psycopg.Connection, value: float) -> None:
    """15 digits are certain: sums of prices that were doubles are those of PostgreSQL."""
    row = {**dict.fromkeys(COLUMNS), "b": 0, "y": value, "g": True, "t": ""}

    assert of_penstock("y::numeric", row) == of_postgres(session, "y::numeric", row)


@pytest.mark.parametrize("replacement", ["\\0", "\\1", "\\&", "\\\\", "\\2", "\\x"])
def test_a_replacement_has_the_groups_of_postgres(session: psycopg.Connection, replacement: str) -> None:
    """Groups are numbered from 1."""
    row = {**dict.fromkeys(COLUMNS), "b": 0, "y": 0.0, "g": True, "t": "abc"}
    expression = f"regexp_replace(t, '(b)', '[{replacement}]')"

    assert of_penstock(expression, row) == of_postgres(session, expression, row)


@pytest.mark.parametrize(("expression", "expected"), EXTREMES.items())
def test_doubles_under_and_overflow_where_penstock_expects_it(
    session: psycopg.Connection, expression: str, expected: float | str
) -> None:
    """The unit tests expect the same of Penstock."""
    found = of_postgres(session, expression, {**dict.fromkeys(COLUMNS), "b": 0, "y": 0.0, "g": True, "t": ""})

    if isinstance(expected, str):
        assert expected.replace("'", '"') in str(found)
    else:
        assert found == pytest.approx(expected)


FACTS = [fact for case in cases() for fact in case.facts]


@pytest.mark.parametrize("fact", FACTS, ids=[fact.expression for fact in FACTS])
def test_values_of_the_query_suite_are_those_of_postgres(session: psycopg.Connection, fact: Fact) -> None:
    """The suite compares queries with DuckDB; it names the values that PostgreSQL defines otherwise."""
    [text] = session.execute(f"select cast(({fact.expression}) as text)".replace("%", "%%"), []).fetchone() or [None]

    assert text == fact.text
