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
from support.sql_expressions import COLUMNS, EXPRESSIONS, FORMATTED, ROWS, Columns
from support.sql_suite import Fact, cases

from penstock.processors.sql.cursor import parsed_sql, statements_of
from penstock.processors.sql.errors import SqlDataError, SqlText
from penstock.processors.sql.expressions import Program
from penstock.processors.sql.types import SqlType


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
    program = Program(SqlText("test.sql", expression), Columns())
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


FACTS = [fact for case in cases() for fact in case.facts]


@pytest.mark.parametrize("fact", FACTS, ids=[fact.expression for fact in FACTS])
def test_values_of_the_query_suite_are_those_of_postgres(session: psycopg.Connection, fact: Fact) -> None:
    """The suite compares queries with DuckDB; it names the values that PostgreSQL defines otherwise."""
    [text] = session.execute(f"select cast(({fact.expression}) as text)".replace("%", "%%"), []).fetchone() or [None]

    assert text == fact.text
