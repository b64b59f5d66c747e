"""Values that an expression does not have: SQL has a setting and a conversion for them, and its errors advise these."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.sql_expressions import COLUMNS, EXTREMES, Columns

from penstock.processors import ProcessorFailed
from penstock.processors.apps import AppName
from penstock.processors.shard import EventRejected
from penstock.processors.sql import SqlText
from penstock.processors.sql.cursor import parsed_sql, statements_of
from penstock.processors.sql.errors import SqlDataError, SqlRefused
from penstock.processors.sql.expressions import StatementProgram
from penstock.testing import Driver

HEAD = "CREATE CATEGORY v (t bigint, k text NOT NULL, n bigint) WITH (key = 'k', time = 't', buckets = 1);\n"


def value_of(expression: str, **row: Any) -> Any:
    program = StatementProgram(SqlText("test.sql", expression), Columns())
    [cursor] = statements_of(program.text)
    compiled = program.compile(parsed_sql(program.text, cursor.tokens, 0))
    evaluate = program.function("evaluate", "event", [f"return {compiled.code}"])
    return evaluate(SimpleNamespace(**{**dict.fromkeys(COLUMNS), **row}))


def app_of(tmp_path: Path, statements: str) -> Any:
    file = tmp_path / "x.sql"
    file.write_text(HEAD + statements)
    return AppName.parse(str(file)).load()


QUERIES = [
    "SELECT t, k, 10 / n AS r FROM v",
    "SELECT k, sum(10 / n) AS r FROM v GROUP BY k",
    "SELECT n, sum(10 / n) AS r FROM v GROUP BY n",
    "WITH q AS (SELECT t, k, 10 / n AS r FROM v) SELECT r, count(*) AS c FROM q GROUP BY r",
    "SELECT t, k, -(n * 9223372036854775807 - 1) / (n - n) AS r FROM v",
]


@pytest.mark.parametrize("query", QUERIES)
def test_on_error_sends_bad_events_to_dead_letters(tmp_path: Path, query: str) -> None:
    """Each processor of the query sends them, also before internal categories. The other events count."""
    app = app_of(tmp_path, f"CREATE TABLE o WITH (on_error = 'dead_letter', buckets = 1) AS {query};")
    driver = Driver(list(app.processors))
    [views] = [category for category in app.categories() if category.name == "v"]
    driver.send(views, [b'{"t": 1, "k": "a", "n": 0}'])
    driver.send(views, [b'{"t": 2, "k": "a", "n": 2}'])
    letters = sum(len(driver.dead_letters(processor)) for processor in app.processors)
    [output] = [category for category in app.categories() if category.name == "o"]

    assert letters == (2 if "n - n" in query else 1)
    assert len(list(driver.read(output))) == (0 if "n - n" in query else 1)


def test_an_event_without_a_value_stops_the_worker_with_advice_for_sql(tmp_path: Path) -> None:
    """The worker stops by default. The advice is a setting of the statement."""
    app = app_of(tmp_path, "CREATE TABLE o WITH (on_error = 'stop') AS SELECT t, k, 10 / n AS r FROM v;")
    [views] = [category for category in app.categories() if category.name == "v"]

    with pytest.raises(EventRejected, match=r"WITH \(on_error = 'dead_letter'\)") as caught:
        Driver(list(app.processors)).send(views, [b'{"t": 1, "k": "a", "n": 0}'])

    assert "ErrorPolicy" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "advice"), [("sum(n)", "sum(n::numeric)"), ("sum(n) / (count(*) - 2)", "nullif(b, 0)")]
)
def test_a_result_without_a_value_stops_the_worker_with_advice_for_sql(tmp_path: Path, value: str, advice: str) -> None:
    """No single event causes it, so the message advises another query instead of dead letters."""
    app = app_of(
        tmp_path, f"CREATE TABLE o WITH (on_error = 'dead_letter') AS SELECT k, {value} AS r FROM v GROUP BY k;"
    )
    [views] = [category for category in app.categories() if category.name == "v"]
    largest = b'{"t": 1, "k": "a", "n": 9223372036854775807}'

    with pytest.raises(ProcessorFailed, match="none can become a dead letter") as caught:
        Driver(list(app.processors)).send(views, [largest, largest])

    assert advice in str(caught.value)
    assert "ErrorPolicy" not in str(caught.value)


def test_another_policy_is_refused_at_its_place(tmp_path: Path) -> None:
    """The error contains the known policies."""
    with pytest.raises(SqlRefused, match="Write 'dead_letter' or 'stop'"):
        app_of(tmp_path, "CREATE TABLE o WITH (on_error = 'skip') AS SELECT t, k FROM v;")


@pytest.mark.parametrize(
    ("expression", "row", "expected"),
    [
        ("try_cast(s AS bigint)", {"s": "n/a"}, None),
        ("try_cast(s AS bigint)", {"s": "99999999999999999999"}, None),
        ("try_cast(s AS bigint)", {"s": " 12 "}, 12),
        ("try_cast(s AS bigint)", {}, None),
        ("try_cast(s AS boolean)", {"s": "yes"}, True),
        ("try_cast(s AS numeric(3, 1))", {"s": "1234"}, None),
        ("try_cast(s AS date)", {"s": "2026-02-30"}, None),
        ("try_cast(y AS bigint)", {"y": 1e300}, None),
        ("try_cast(a AS double precision)", {"a": 3}, 3.0),
        ("try_cast(j ->> 'n' AS bigint)", {"j": {"n": "x"}}, None),
        ("try_cast(j AS bigint)", {"j": "x"}, None),
        ("try_cast('x' AS bigint)", {}, None),
        ("coalesce(try_cast(s AS bigint), -1) + a", {"s": "x", "a": 3}, 2),
    ],
)
def test_try_cast_is_null_where_a_cast_has_no_value(expression: str, row: dict[str, Any], expected: Any) -> None:
    """Flink and DuckDB return NULL, too."""
    assert value_of(expression, **row) == expected


def test_try_cast_keeps_the_error_of_its_operand() -> None:
    """Only the conversion is attempted."""
    with pytest.raises(SqlDataError, match="division by zero"):
        value_of("try_cast(a / 0 AS text)", a=1)


@pytest.mark.parametrize(
    "expression",
    ["-('-9223372036854775808'::bigint)", "cast(s AS double precision)", "abs('-9223372036854775808'::bigint)"],
)
def test_what_does_not_fit_its_type_is_an_error_of_the_event(expression: str) -> None:
    """It is not an error of the batch, when the record is written."""
    with pytest.raises(SqlDataError, match="out of range"):
        value_of(expression, s="10e400")


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [
        ("'- 5 minutes'", -300),
        ("'-5 minutes'", -300),
        ("'+ 5 minutes'", 300),
        ("'1 hour - 30 minutes'", 1800),
        ("'.5 hours'", 1800),
        ("'-.5 hours'", -1800),
        ("'1.5 hours'", 5400),
        ("'- 1 day 2 hours'", -79200),
        ("'5' minute", 300),
        ("'5minutes'", 300),
    ],
)
def test_intervals_keep_signs_and_fractions(expression: str, seconds: int) -> None:
    """PostgreSQL has the same results."""
    assert value_of(f"extract(epoch FROM interval {expression})") == seconds


@pytest.mark.parametrize("text", ["5 minutes ago", "@ 5 minutes", "abc 5 minutes", "5 -minutes", "5:30"])
def test_an_interval_of_which_a_part_would_be_ignored_is_refused(text: str) -> None:
    """The interval would otherwise have another length."""
    with pytest.raises(SqlRefused, match="is not supported"):
        value_of(f"extract(epoch FROM interval '{text}')")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'\u0131stanbul' ILIKE 'istanbul'", False),
        ("'\u017fet' ILIKE 'SET'", False),
        ("'GRÖSSE' ILIKE 'größe'", False),
        ("'GRÖßE' ILIKE 'grö_e'", True),
        ("'5%a' ILIKE '5A%AA' ESCAPE 'A'", True),
        ("power(2, 'inf') = 'inf'::double precision", True),
        ("power('-inf', 3) = '-inf'::double precision", True),
        ("('nan'::double precision / 0)::text", "NaN"),
        ("('inf'::double precision / 2)::text", "Infinity"),
        ("cbrt(64)::text", "4"),
        ("cbrt(-1e300)::text", "-1e+100"),
        ("floor(cbrt(1000000))::text", "100"),
        ("cbrt('-inf')::text", "-Infinity"),
        ("cbrt('nan')::text", "NaN"),
        ("cbrt(0)::text", "0"),
    ],
)
def test_letters_and_numbers_at_the_edges_are_those_of_postgres(expression: str, expected: bool | str) -> None:
    """They are letters beyond ASCII, infinity and NaN."""
    assert value_of(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("regexp_substr('https://x?a=1&channel_id=77', '(&|^)channel_id=[^&]*')", "&channel_id=77"),
        ("regexp_substr('abc', '(x)?b')", "b"),
        ("regexp_substr('abc', '(x)')", None),
    ],
)
def test_regexp_substr_is_the_whole_match(expression: str, expected: str | None) -> None:
    """Groups of the pattern do not matter, as in PostgreSQL."""
    assert value_of(expression) == expected


@pytest.mark.parametrize(("expression", "expected"), EXTREMES.items())
def test_doubles_under_and_overflow_where_those_of_postgres_do(expression: str, expected: float | str) -> None:
    """A result that is too small is no zero: products and quotients of it would be silently wrong."""
    if isinstance(expected, str):
        with pytest.raises(SqlDataError) as caught:
            value_of(expression, y=0.0, t="")

        assert expected in str(caught.value)
    else:
        assert value_of(expression, y=0.0, t="") == pytest.approx(expected)


@pytest.mark.parametrize("operation", ["x + x", "-x - x", "x * x"])
def test_a_double_out_of_range_is_an_error_of_the_event(operation: str) -> None:
    """The operands are finite. Infinite ones have infinite results."""
    with pytest.raises(SqlDataError, match="out of range"):
        value_of(operation, x=1e308)

    assert abs(value_of(operation, x=float("inf"))) == float("inf")
