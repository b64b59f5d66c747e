"""SQL expressions have the values that PostgreSQL computes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from functools import cache
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb
from support.databases import Postgres
from support.sql_suite import Fact, cases

from penstock.processors.sql.cursor import parsed_sql, statements_of
from penstock.processors.sql.errors import SqlDataError, SqlText
from penstock.processors.sql.expression_compiler import Compiled
from penstock.processors.sql.expressions import Program
from penstock.processors.sql.types import SqlType

COLUMNS = {
    "a": (SqlType.BIGINT, True),
    "b": (SqlType.BIGINT, False),
    "x": (SqlType.DOUBLE, True),
    "y": (SqlType.DOUBLE, False),
    "n": (SqlType.NUMERIC, True),
    "s": (SqlType.TEXT, True),
    "t": (SqlType.TEXT, False),
    "f": (SqlType.BOOLEAN, True),
    "g": (SqlType.BOOLEAN, False),
    "ts": (SqlType.TIMESTAMP, True),
    "d": (SqlType.DATE, True),
    "j": (SqlType.JSON, True),
}
INTEGERS = st.integers(-20, 20) | st.sampled_from([2**63 - 1, -(2**63), 10**12])
DOUBLES = st.integers(-40, 40).map(lambda each: each / 4) | st.sampled_from([1e300, -1e-300, 1e15, 123456.789])
TEXTS = st.text("abAB %_,\\.1", max_size=6)
TIMES = st.integers(0, 4 * 10**15).map(
    lambda each: datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=each)
)
SCALARS = st.integers(-9, 9) | st.integers(-9, 9).map(lambda each: each / 4) | st.booleans() | TEXTS
# Without JSON's null, which PostgreSQL distinguishes from NULL.
DOCUMENTS = st.fixed_dictionaries(
    {"a": SCALARS, "b": st.fixed_dictionaries({"c": SCALARS}), "l": st.lists(SCALARS, max_size=3)}
)
ROWS = st.fixed_dictionaries(
    {
        "a": st.none() | INTEGERS,
        "b": INTEGERS,
        "x": st.none() | DOUBLES,
        "y": DOUBLES,
        "n": st.none() | st.decimals(-1000, 1000, places=3),
        "s": st.none() | TEXTS,
        "t": TEXTS,
        "f": st.none() | st.booleans(),
        "g": st.booleans(),
        "ts": st.none() | TIMES,
        "d": st.none() | st.dates(date(1970, 1, 1), date(2100, 1, 1)),
        "j": st.none() | DOCUMENTS,
    }
)


class Columns:
    """The columns of the test's rows."""

    def column(self, table: str | None, name: str) -> Compiled | None:
        kind = COLUMNS.get(name)
        return kind and Compiled(f"event.{name}", kind[0], kind[1])

    def names(self) -> Sequence[str]:
        return list(COLUMNS)


def _binary(operators: Sequence[str], operand: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds("({} {} {})".format, operand, st.sampled_from(operators), operand)


def _called(form: str, *operands: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(form.format, *operands)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


TIME_FORMATS = (
    st.lists(
        st.builds(
            "{}{}{}".format,
            st.sampled_from(["", "", "FM"]),
            st.sampled_from(
                [
                    "YYYY",
                    "YYY",
                    "YY",
                    "IYYY",
                    "MM",
                    "DDD",
                    "DD",
                    "D",
                    "ID",
                    "IW",
                    "WW",
                    "Q",
                    "HH24",
                    "HH12",
                    "HH",
                    "MI",
                    "SS",
                    "MS",
                    "US",
                    "Month",
                    "MONTH",
                    "month",
                    "Mon",
                    "MON",
                    "mon",
                    "Day",
                    "DAY",
                    "day",
                    "Dy",
                    "DY",
                    "dy",
                    "AM",
                    "pm",
                    "yyyy",
                    "hh24",
                    "mi",
                ]
            ),
            st.sampled_from(["", " ", "-", ":", '"T"', '"no pattern: YYYY"', "/", "."]),
        ),
        min_size=1,
        max_size=5,
    )
    .map(lambda parts: _quoted("".join(parts)))
    .filter(lambda quoted: re.search("SSSS|IDDD", quoted) is None)
)
NUMBER_FORMATS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "FM"]),
    st.text("990,G", min_size=1, max_size=7),
    st.sampled_from(["", ".", "D"]),
    st.text("90", max_size=4),
).map(_quoted)
PARTS_OF_JSON = st.sampled_from(
    ["j", "(j -> 'a')", "(j -> 'l')", "(j -> 'l' -> 0)", "(j #> '{b,c}')", "(j #> '{l,-1}')"]
)


@cache
def _integers(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["a", "b", "cast(null as bigint)"]) | st.integers(0, 9).map(str)
    if not depth:
        return leaf
    inner, condition = _integers(depth - 1), _booleans(depth - 1)
    return st.one_of(
        leaf,
        _binary(["+", "-", "*", "/", "%"], inner),
        _called("(-{})", inner),
        _called("abs({})", inner),
        _called("coalesce({}, {})", inner, inner),
        _called("nullif({}, {})", inner, inner),
        _called("greatest({}, {})", inner, inner),
        _called("least({}, {})", inner, inner),
        _called("case when {} then {} else {} end", condition, inner, inner),
        _called("case {} when {} then {} end", inner, inner, inner),
        _called("cast(length({}) as bigint)", _texts(depth - 1)),
        _called("cast(ascii({}) as bigint)", _texts(depth - 1)),
        _called("cast(strpos({}, {}) as bigint)", _texts(depth - 1), _texts(0)),
        _called("cast({} as bigint)", _doubles(depth - 1)),
        _called("cast({} as bigint)", _numerics(depth - 1)),
        _called("cast(jsonb_array_length({}) as bigint)", PARTS_OF_JSON),
        _called("cast({} as bigint)", PARTS_OF_JSON),
        _called("cast(cast({} as integer) as bigint)", condition),
    )


@cache
def _doubles(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["x", "y", "cast(null as double precision)"])
    if not depth:
        return leaf
    inner = _doubles(depth - 1)
    return st.one_of(
        leaf,
        _binary(["+", "-", "*", "/"], inner),
        _called("({} + {})", inner, _integers(depth - 1)),
        _called("cast({} as double precision)", PARTS_OF_JSON),
        _called("(-{})", inner),
        _called("abs({})", inner),
        _called("round({})", inner),
        _called("floor({})", inner),
        _called("ceil({})", inner),
        _called("sign({})", inner),
        _called("cbrt({})", inner),
        _called("coalesce({}, {})", inner, inner),
        _called("cast({} as double precision)", _integers(depth - 1)),
        _called("cast(extract({} from {}) as double precision)", st.sampled_from(PARTS), _times(depth - 1)),
        _called(
            "cast(extract({} from {} at time zone 'Europe/Berlin') as double precision)",
            st.sampled_from(PARTS),
            _times(0),
        ),
        _called("trunc({})", inner),
    )


PARTS = ["hour", "minute", "day", "month", "year", "dow", "isodow", "doy", "week", "quarter", "epoch", "second"]


@cache
def _numerics(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["n", "cast('1.5' as numeric)", "cast(null as numeric)"])
    if not depth:
        return leaf
    inner = _numerics(depth - 1)
    return st.one_of(
        leaf,
        _binary(["+", "-", "*", "%"], inner),
        _called("round({}, 1)", inner),
        _called("trunc({})", inner),
        _called("trunc({}, 1)", inner),
        _called("round({})", inner),
        _called("floor({})", inner),
        _called("cast({} as numeric(9, 2))", inner),
        _called("coalesce({}, {})", inner, _integers(0).map(lambda each: f"cast({each} as numeric)")),
    )


@cache
def _texts(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["s", "t", "cast(null as text)"]) | TEXTS.map(_quoted)
    if not depth:
        return leaf
    inner, number = _texts(depth - 1), st.integers(-3, 5).map(str)
    return st.one_of(
        leaf,
        _called("({} || {})", inner, inner),
        _called("concat({}, {}, {})", inner, _integers(0), inner),
        _called("concat_ws('-', {}, {})", inner, inner),
        _called("lower({})", inner),
        _called("upper({})", inner),
        _called("reverse({})", inner),
        _called("initcap({})", inner),
        _called("repeat({}, {})", inner, number),
        _called("translate({}, 'abA', {})", inner, st.sampled_from(["''", "'x'", "'xyzw'"])),
        _called("md5({})", inner),
        _called("cast(({} at time zone 'Europe/Berlin') as text)", st.just("date_trunc('second', ts)")),
        _called("cast(cast({} at time zone 'America/New_York' as date) as text)", st.just("ts")),
        _called("left({}, {})", inner, number),
        _called("right({}, {})", inner, number),
        _called("substring({} from {} for {})", inner, number, st.sampled_from("01234")),
        _called("substring({} from {})", inner, number),
        _called("replace({}, {}, {})", inner, st.just("'a'"), st.just("'bb'")),
        _called("trim(both ' a' from {})", inner),
        _called("ltrim({})", inner),
        _called("lpad({}, 5, 'xy')", inner),
        _called("rpad({}, 5)", inner),
        _called("split_part({}, ',', {})", inner, st.sampled_from("123")),
        _called("regexp_replace({}, 'a+', '<\\&>', 'g')", inner),
        _called("cast({} as text)", _integers(depth - 1)),
        _called("cast({} as text)", _booleans(depth - 1)),
        _called("cast({} as text)", _numerics(depth - 1)),
        _called("cast({} as text)", st.sampled_from(["d", "ts", "(ts at time zone 'Asia/Kolkata')"])),
        _called("regexp_substr({}, {})", inner, st.sampled_from(["'a.'", "'[ab]+'"])),
        _called("case when {} then {} else {} end", _booleans(depth - 1), inner, inner),
        st.sampled_from(
            ["(j ->> 'a')", "(j -> 'b' ->> 'c')", "(j #>> '{l,1}')", "(j -> 'l' ->> -1)", "(j ->> 'none')"]
        ),
        _called("jsonb_typeof({})", PARTS_OF_JSON),
        _called("to_char({}, {})", _times(0), TIME_FORMATS),
        _called("to_char({}, {})", st.sampled_from(["a", "b % 1000", "n", "n * 7", "x", "y / 3"]), NUMBER_FORMATS),
        _called("cast(cast({} as jsonb) as text)", _integers(0).map(lambda each: f"cast({each} as text)")),
    )


@cache
def _times(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["ts", "cast(d as timestamp with time zone)", "timestamptz '2013-01-31 10:00:00+01'"])
    if not depth:
        return leaf
    inner = _times(depth - 1)
    units = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"]
    return st.one_of(
        leaf,
        _called("({} + interval '90 minutes')", inner),
        _called("({} - interval '1 day')", inner),
        _called("date_trunc('{}', {})", st.sampled_from(units), inner),
        _called("date_trunc('{}', {}, 'Europe/Berlin')", st.sampled_from(units), inner),
        _called(
            "(date_trunc('{}', {} at time zone 'Asia/Kolkata') at time zone 'America/New_York')",
            st.sampled_from(units),
            inner,
        ),
        # The origin is before all times: before it, PostgreSQL 16.2 moves the beginning of a bin to the previous bin.
        _called(
            "date_bin('{}', {}, timestamptz '0001-01-01 10:00:00+00')", st.sampled_from(["7 minutes", "3 days"]), inner
        ),
        _called("coalesce({}, {})", inner, inner),
    )


@cache
def _booleans(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["f", "g", "true", "false", "cast(null as boolean)"])
    if not depth:
        return leaf
    inner = _booleans(depth - 1)
    comparisons = ["=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"]
    return st.one_of(
        leaf,
        *(_binary(comparisons, kind(depth - 1)) for kind in (_integers, _doubles, _numerics, _texts, _times)),
        _called("({} > {})", _integers(depth - 1), _doubles(depth - 1)),
        _binary(["and", "or"], inner),
        _called("(not {})", inner),
        _called("({} is null)", _texts(depth - 1)),
        _called("({} is null)", PARTS_OF_JSON),
        _called("cast({} as boolean)", PARTS_OF_JSON),
        _called("({} is not null)", _integers(depth - 1)),
        _called("({} is true)", inner),
        _called("({} is not false)", inner),
        _called("({} in (1, 2, 3))", _integers(depth - 1)),
        _called("({} not in ('a', 'b'))", _texts(depth - 1)),
        _called("({} in (b, {}))", _integers(depth - 1), st.just("7")),
        _called("({} in (a, 3, {}))", _integers(depth - 1), st.sampled_from(["null", "b"])),
        _called("({} not in ('a', null))", _texts(depth - 1)),
        _called("({} between {} and {})", *[_integers(depth - 1)] * 3),
        _called("({} like {})", _texts(depth - 1), st.sampled_from(["'a%'", "'_b%'", "'%\\%%'", "'%'"])),
        _called("({} ilike 'A%')", _texts(depth - 1)),
        _called("({} not like {})", _texts(depth - 1), _texts(0)),
        _called("({} not like {} escape '!')", _texts(depth - 1), st.sampled_from(["'a!%%'", "'!_'"])),
        _called("({} not between {} and {})", *[_integers(depth - 1)] * 3),
        _called("({} ~ '^a.b?')", _texts(depth - 1)),
        _called("({} !~* 'B')", _texts(depth - 1)),
        _called("starts_with({}, {})", _texts(depth - 1), _texts(0)),
    )


EXPRESSIONS = st.one_of(_integers(3), _doubles(3), _numerics(2), _texts(3), _times(2), _booleans(3), PARTS_OF_JSON)


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
        # PostgreSQL evaluates all operands; Penstock stops at the first NULL.
        assert ours is None or chooses or (isinstance(theirs, Exception) and isinstance(ours, Exception)), (
            ours,
            theirs,
        )
    else:
        assert alike(ours, theirs), (ours, theirs)


FORMATTED = st.one_of(
    _called("to_char({}, {})", _times(1), TIME_FORMATS),
    _called(
        "to_char({}, {})",
        st.sampled_from(["a", "b", "b % 1000", "n", "n * 7", "n / 100", "x", "y", "y / 3", "y / 1000", "0", "-1"]),
        NUMBER_FORMATS,
    ),
)


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
