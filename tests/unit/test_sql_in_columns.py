"""SQL in columns equals SQL event by event: values, errors, messages, states and dead letters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.column_traces import START_MS, traces_of_both
from support.sql_expressions import COLUMNS, EXPRESSIONS, ROWS, Columns, booleans

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.processors.declare import plan_of
from penstock.processors.sql import SqlApp, SqlText, SqlType, compile_app
from penstock.processors.sql.columns import ARROW_TYPES, as_array, named_column
from penstock.processors.sql.cursor import parsed_sql, statements_of
from penstock.processors.sql.expression_compiler import Compiled
from penstock.processors.sql.expressions import StatementProgram

LETTER = ps.ErrorPolicy.DEAD_LETTER
NO_VALUE = (ValueError, ArithmeticError)
FLAT = [name for name, (kind, _) in COLUMNS.items() if kind in ARROW_TYPES]
OTHER = {
    "n": "cast(a as numeric)",
    "ts": "to_timestamp(b % 100000)",
    "d": "cast(to_timestamp(b % 100000) as date)",
    "j": """cast('{"a": 5, "b": {"c": "x"}, "l": [1, true]}' as jsonb)""",
}
"""Values of the types that columns do not have, made of columns."""


def of_flat_columns(expressions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return expressions over columns that Arrow has without a change."""
    return expressions.map(lambda text: re.sub(r"\b(n|ts|d|j)\b", lambda name: OTHER[name[0]], text))


ODD_ROWS = ROWS.flatmap(
    lambda row: st.fixed_dictionaries(
        {
            **{name: st.just(value) for name, value in row.items()},
            "x": st.sampled_from([row["x"], 0.0, -0.0, float("nan"), 0.5, -2.5, 1e308, 1e-308]),
            "a": st.sampled_from([row["a"], 0, 2**53 + 1, -(2**63)]),
        }
    )
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expression=of_flat_columns(EXPRESSIONS), rows=st.lists(ODD_ROWS, max_size=4))
def test_columns_have_the_values_of_the_rows(expression: str, rows: list[dict[str, Any]]) -> None:
    """Every bit is equal. A column lacks values only if a row may lack them."""
    program = StatementProgram(SqlText("test.sql", expression), Columns())
    [cursor] = statements_of(program.text)
    compiled = program.compile(parsed_sql(program.text, cursor.tokens, 0))
    evaluate = program.function("evaluate", "event", [f"return {compiled.code}"])
    arrays = [pa.array([row[name] for row in rows], ARROW_TYPES[COLUMNS[name][0]]) for name in FLAT]
    batch = pa.RecordBatch.from_arrays(arrays, names=FLAT)
    assert (compiled.columns is not None) is (compiled.type in ARROW_TYPES)
    if compiled.columns is None:
        return
    try:
        found = as_array(compiled.columns(batch), len(rows)).to_pylist()
    except NO_VALUE:
        return

    assert repr(found) == repr([evaluate(SimpleNamespace(**row)) for row in rows])


@pytest.mark.parametrize(
    "expression",
    [
        "case when b = 0 then null else a / b end",
        "b <> 0 and a / b > 2",
        "b = 0 or a % b = 1",
        "coalesce(t, cast(1 / b as text))",
        "y in (0, 'NaN')",
        "round(y)",
        "sign(y)",
        "ceil(y)",
        "t like '%\u00e9%'",
        "t not like 'a%'",
        "t like 'A_'",
        "length(t)",
        "a + 0.5 = 9007199254740993",
        "nullif(t, 'a')",
        "s || t",
        "md5('x')",
        "1 = 1",
        "t in ('a', '\u00e9')",
        "s not in ('a', '')",
    ],
)
def test_columns_have_values_where_the_rows_have_them(expression: str) -> None:
    """Operands without a value are not needed in the rows in which the code does not need them."""
    rows = [
        {"a": a, "b": b, "s": s, "t": t, "x": None, "y": y, "f": None, "g": True}
        for a, b, s, t, y in [
            (7, 0, "a", "a", -0.0),
            (None, 2, None, "\u00e9\u00df", 0.0),
            (2**53 + 1, -3, "", "A%", -0.5),
            (1, 2, "b", "", float("nan")),
        ]
    ]
    program = StatementProgram(SqlText("test.sql", expression), Columns())
    [cursor] = statements_of(program.text)
    compiled = program.compile(parsed_sql(program.text, cursor.tokens, 0))
    evaluate = program.function("evaluate", "event", [f"return {compiled.code}"])
    arrays = [pa.array([row[name] for row in rows], ARROW_TYPES[COLUMNS[name][0]]) for name in FLAT]
    assert compiled.columns is not None
    found = as_array(compiled.columns(pa.RecordBatch.from_arrays(arrays, names=FLAT)), len(rows)).to_pylist()

    assert repr(found) == repr([evaluate(SimpleNamespace(**row)) for row in rows])


WHOLE = [None, 0, 1, -1, 7, -7, 2**53 + 1, 2**63 - 1, -(2**63)]
REAL = [None, 0.0, -0.0, 0.5, 1.5, -2.5, 1e308, -1e308, 1e-308, -5e-324, float("nan"), float("inf")]
TEXT = [None, "", "a", "A", "\u00e9", "a%b", "aa"]
OF_TWO = [
    *(f"{{0}} {operator} {{1}}" for operator in ("=", "<>", "<", "<=", ">", ">=", "is distinct from")),
    "nullif({0}, {1})",
    "coalesce({0}, {1})",
    "{0} in ({1}, {0})",
    "case when {0} > {1} then {0} else {1} end",
    "{0} is null or {1} is not null",
    "greatest({0}, {1})",
]
OF_NUMBERS = ["{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "-{0}", "abs({0})", "{0} in (0, 1)", "sqrt({0})"]


@pytest.mark.parametrize(
    ("form", "values"),
    [
        *((form, WHOLE) for form in [*OF_TWO, *OF_NUMBERS, "cast({0} as text)", "cast({0} as boolean)"]),
        ("{0} % {1}", WHOLE[:-1]),  # with the last value, the quotient overflows
        *((form, REAL) for form in [*OF_TWO, *OF_NUMBERS, "round({0})", "cast({0} as bigint)"]),
        *((form, TEXT) for form in [*OF_TWO, "{0} || {1}", "length({0})", "{0} like 'a%'", "{0} not like '%a%'"]),
        *((form, [None, True, False]) for form in [*OF_TWO, "{0} and {1}", "{0} or {1}", "not {0}", "{0} is not true"]),
    ],
)
def test_kernels_have_the_values_of_the_code(form: str, values: list[Any]) -> None:
    """All pairs of values at the limits are computed. Columns lack a value exactly where the code does."""
    kind = next(kind for name, kind in KINDS.items() if isinstance(values[1], name))
    program = StatementProgram(SqlText("test.sql", form.format("p", "q")), Pairs(kind))
    [cursor] = statements_of(program.text)
    expression = program.compile(parsed_sql(program.text, cursor.tokens, 0))
    evaluate = program.function("evaluate", "event", [f"return {expression.code}"])
    in_columns = expression.columns
    assert in_columns is not None
    for p, q in product(values, values):
        batch = pa.RecordBatch.from_arrays([pa.array([each], ARROW_TYPES[kind]) for each in (p, q)], names=["p", "q"])
        found = value_or_error(lambda batch=batch: as_array(in_columns(batch), 1)[0].as_py())  # type: ignore[misc]
        expected = value_or_error(lambda p=p, q=q: evaluate(SimpleNamespace(p=p, q=q)))  # type: ignore[misc]
        assert found == expected, (p, q)


KINDS = {bool: SqlType.BOOLEAN, int: SqlType.BIGINT, float: SqlType.DOUBLE, str: SqlType.TEXT}


@dataclass(frozen=True)
class Pairs:
    """Two columns of one type."""

    kind: SqlType

    def column(self, table: str | None, name: str) -> Compiled | None:
        del table
        return Compiled(f"event.{name}", self.kind, nullable=True, columns=named_column(name))

    def names(self) -> list[str]:
        return ["p", "q"]


def value_or_error(compute: Callable[[], Any]) -> str:
    """Return a value as text, which shows its type and the sign of a zero, or that there is none."""
    try:
        return repr(compute())
    except NO_VALUE:
        return "no value"


TABLE = """CREATE CATEGORY readings (
    k text, at bigint, a bigint, b bigint NOT NULL, x double precision, y double precision NOT NULL,
    s text, t text NOT NULL, f boolean, g boolean NOT NULL
) WITH (key = 'k', time = 'at', buckets = 2);
"""


def compiled(query: str, table: str = TABLE) -> SqlApp:
    """Return the app of a table and a query, whose errors become dead letters."""
    app = compile_app(SqlText("test.sql", f"{table}CREATE TABLE results AS {query};"), __name__)
    for processor in app.processors:
        processor.on_error = processor.on_undecodable = processor.on_missing_event_time = LETTER
        processor.on_future_event = LETTER
        processor.dead_letter_limit = None
        plan_of(processor).check()
    return app


READINGS = st.builds(
    lambda row, key, second: {
        "k": key,
        "at": START_MS + second * 1000,
        **{name: row[name] for name in ("a", "b", "x", "y", "s", "t", "f", "g")},
    },
    ROWS,
    st.sampled_from(["a", "b", "c", '\u00e9"\n', ""]),
    st.integers(0, 40),
)
MESSAGES = READINGS.map(
    lambda row: json.dumps({**row, "a": row["a"] and row["a"] % 10**17, "b": row["b"] % 10**17}).encode()
)
ODD_MESSAGES = st.one_of(
    READINGS.map(lambda row: json.dumps(row).encode()),
    READINGS.map(lambda row: json.dumps({**row, "t": None}).encode()),
    READINGS.map(lambda row: json.dumps({name: row[name] for name in row if name != "a"}).encode()),
    READINGS.map(lambda row: json.dumps({**row, "a": 2**64}).encode()),
    READINGS.map(lambda row: json.dumps({**row, "x": float("nan")}).encode()),
    st.sampled_from([b"{", b"", b'{"k":"a"}']),
)
CHUNKS = st.lists(
    st.lists(MESSAGES, max_size=12) | st.lists(MESSAGES | ODD_MESSAGES, max_size=6), min_size=1, max_size=3
)
STREAMS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@STREAMS
@given(
    condition=of_flat_columns(booleans(2)),
    values=st.lists(of_flat_columns(EXPRESSIONS), min_size=1, max_size=3),
    chunks=CHUNKS,
)
def test_a_filter_in_columns_equals_the_filter_event_by_event(
    condition: str, values: list[str], chunks: list[list[bytes]]
) -> None:
    """Messages, dead letters and counts are equal, byte for byte."""
    selected = ", ".join(f"({value}) AS v{number}" for number, value in enumerate(values))
    [processor] = compiled(f"SELECT k, at, {selected} FROM readings WHERE {condition}").processors
    in_columns, one_by_one = traces_of_both(processor, chunks)

    assert in_columns == one_by_one


def test_a_large_batch_needs_no_code_of_single_rows() -> None:
    """Only the first events are computed in both ways, and compared."""
    app = compiled("SELECT k, at, a + b AS c FROM readings WHERE t LIKE 'x%' AND y > 0")
    [processor] = app.processors
    stream = app.relations["readings"].category
    rows = [stream.record(k="k", at=START_MS + n, b=n, y=1.0, t="xy", g=True, a=n) for n in range(300)]
    driver = Driver(processor, start_ms=START_MS + 60_000)
    driver.send(stream, rows)
    with patch.object(processor, "process", side_effect=AssertionError):
        driver.send(stream, rows)

    assert [row.c for row in driver.read(app.relations["results"].category)] == [2 * n for n in range(300)] * 2


AGGREGATES = st.sampled_from(
    [
        "count(*)",
        "count(a)",
        "count(s || t)",
        "sum(a)",
        "sum(x)",
        "sum(b / 2)",
        "sum(100 / a)",
        "avg(b)",
        "avg(x)",
        "min(a)",
        "max(b)",
        "min(t)",
        "max(s)",
        "max(x)",
        "bool_and(f)",
        "first(t)",
        "last(s)",
    ]
)
DISTINCT = st.sampled_from(
    [
        f"count(DISTINCT {value}){condition}"
        for value in ("a", "b % 5", "x", "y", "s", "t", "f", "100 / a")
        for condition in ("", " FILTER (WHERE f)")
    ]
)
CALLS = st.builds(
    "{}{}".format, AGGREGATES, st.sampled_from(["", "", " FILTER (WHERE f)", " FILTER (WHERE a <> 0 AND t > 'a')"])
)
WINDOWS = ["tumble(at, interval '10 seconds')", "hop(at, interval '4 seconds', interval '10 seconds')"]


@STREAMS
@given(
    calls=st.lists(CALLS, min_size=1, max_size=4, unique=True),
    distinct=st.lists(DISTINCT, max_size=2, unique=True),
    condition=st.just("true") | of_flat_columns(booleans(1)),
    window=st.sampled_from([None, *WINDOWS]),
    emit=st.sampled_from(["", " EMIT ON WINDOW CLOSE"]),
    chunks=CHUNKS,
)
def test_aggregates_in_columns_equal_aggregates_event_by_event(
    calls: list[str],
    distinct: list[str],
    condition: str,
    window: str | None,
    emit: str,
    chunks: list[list[bytes]],
) -> None:
    """Results, states, dead letters and counts are equal with several aggregates, windows, NULL, FILTER and WHERE."""
    chosen = [*calls, *([] if window is None else distinct)]
    selected = ", ".join(f"{call} AS v{number}" for number, call in enumerate(chosen))
    groups = "k" if window is None else f"k, {window}"
    query = f"SELECT k, {selected} FROM readings WHERE {condition} GROUP BY {groups}{emit if window else ''}"
    [processor] = compiled(query).processors
    assert processor.sql_by_event == ""
    in_columns, one_by_one = traces_of_both(processor, chunks)

    assert in_columns == one_by_one


@STREAMS
@given(
    keys=st.lists(st.sampled_from(["s", "t", "b % 3", "y", "f", "upper(t)", "x - 1"]), max_size=3, unique=True),
    call=CALLS,
    chunks=CHUNKS,
)
def test_groups_in_columns_equal_groups_event_by_event(keys: list[str], call: str, chunks: list[list[bytes]]) -> None:
    """The records under the keys of the groups are equal, byte for byte."""
    selected = "".join(f"{key} AS k{number}, " for number, key in enumerate(keys))
    groups = ", ".join([*keys, WINDOWS[0]])
    [regrouped, _] = compiled(f"SELECT {selected}{call} AS v FROM readings GROUP BY {groups}").processors
    assert regrouped.sql_by_event == ""
    in_columns, one_by_one = traces_of_both(regrouped, chunks)

    assert in_columns == one_by_one


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT k, at, cast(a AS numeric) AS n FROM readings", "n is of type numeric"),
        ("SELECT k, sum(cast(a AS numeric)) AS n FROM readings GROUP BY k", "is of type numeric"),
        ("SELECT k, approx_count_distinct(s) AS n FROM readings GROUP BY k", "takes one value after the other"),
        (
            "SELECT k, count(*) AS n FROM readings GROUP BY k, session(at, interval '1 second')",
            "sessions take one event after the other",
        ),
        ("SELECT DISTINCT k FROM readings [1 hour]", "there is no aggregate"),
        (
            "SELECT a.k, a.at, a.t FROM readings a JOIN readings b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + interval '1 second'",
            "a join has no columns",
        ),
    ],
)
def test_other_queries_are_computed_event_by_event(query: str, reason: str) -> None:
    """Each states its reason."""
    assert reason in compiled(query).processors[-1].sql_by_event


def test_aggregates_with_equal_beginnings_are_different() -> None:
    """Their texts may be long, or differ in upper case only."""
    long = "coalesce(a, 0) + coalesce(a, 0) + coalesce(a, 0) + coalesce(a, 0) + coalesce(a, 0)"
    query = f"SELECT k, sum({long} + 1) AS v, sum({long} + 2) AS w, max(t || 'a') AS x, max(t || 'A') AS y FROM readings GROUP BY k"
    [processor] = compiled(query).processors
    row = {"k": "a", "at": START_MS, "a": 1, "b": 1, "y": 0.5, "t": "t", "g": True}
    in_columns, one_by_one = traces_of_both(processor, [[json.dumps(row).encode()] * 3])

    assert in_columns == one_by_one
    assert b'"v":18,"w":21,"x":"ta","y":"tA"' in in_columns[0][-1][3]
