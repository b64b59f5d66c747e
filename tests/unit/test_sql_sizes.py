"""Expressions of generated SQL are long: they compile in time that grows with their length, and keep their values."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from support.sql_expressions import COLUMNS, Columns

from penstock.processors.sql import SqlText, compile_app, compile_condition
from penstock.processors.sql.cursor import parsed_sql, statements_of
from penstock.processors.sql.errors import SqlRefused
from penstock.processors.sql.expressions import StatementProgram
from penstock.testing import Driver

ROW = SimpleNamespace(**{**dict.fromkeys(COLUMNS), "a": 3, "b": 2, "y": 1.5, "s": "x7", "t": "t", "g": True})
SCHEMA = {
    "a": "int64",
    "b": "int64",
    "x": "double",
    "y": "double",
    "s": "string",
    "t": "string",
    "f": "bool",
    "g": "bool",
}


def repeated(part: str, separator: str, count: int) -> str:
    return separator.join(part.replace("#", str(number)) for number in range(count))


FORMS: dict[str, tuple[Callable[[int], str], Callable[[int], Any]]] = {
    "sum": (lambda n: repeated("a", " + ", n), lambda n: 3 * n),
    "sum without NULL": (lambda n: repeated("b", " + ", n), lambda n: 2 * n),
    "sum of two types": (lambda n: repeated("a + y", " - ", n // 2), lambda n: 4.5 + (n // 2 - 1) * -1.5),
    "product": (lambda n: repeated("(a - b)", " * ", n), lambda _: 1),
    "sum with NULL": (lambda n: repeated("a", " + ", n) + " + x", lambda _: None),
    "texts": (lambda n: repeated("s", " || ", n), lambda n: "x7" * n),
    "texts with NULL": (lambda n: repeated("s", " || ", n) + " || cast(x AS text)", lambda _: None),
    "concat": (lambda n: f"concat({repeated('s', ', ', n)})", lambda n: "x7" * n),
    "and": (lambda n: repeated("a <> -1 - #", " AND ", n), lambda _: True),
    "and with NULL": (lambda n: repeated("a <> -1 - #", " AND ", n) + " AND x > 1", lambda _: None),
    "or": (lambda n: repeated("a = -1 - #", " OR ", n), lambda _: False),
    "or with NULL": (lambda n: "x > 1 OR " + repeated("b = -1 - #", " OR ", n), lambda _: None),
    "or at the end": (lambda n: repeated("a = -1 - #", " OR ", n) + " OR b = 2", lambda _: True),
    "case": (
        lambda n: f"CASE {repeated('WHEN a = -1 - # THEN #', ' ', n)} WHEN g THEN -5 ELSE x END",
        lambda _: -5,
    ),
    "case of a value": (lambda n: f"CASE a * 2 {repeated('WHEN # THEN # + 1', ' ', n)} END", lambda _: 7),
    "coalesce": (lambda n: f"coalesce({repeated('x + #', ', ', n)}, y)", lambda _: 1.5),
    "in": (lambda n: f"a + 0 IN ({repeated('b - 2 - #', ', ', n)})", lambda _: False),
    "in with constants and NULL": (lambda n: f"a IN ({repeated('- #', ', ', n)}, NULL)", lambda _: None),
    "in with a member": (lambda n: f"a IN ({repeated('b + #', ', ', n)}, NULL)", lambda _: True),
    "greatest": (lambda n: f"greatest({repeated('a + #', ', ', n)})", lambda n: 2 + n),
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("(-b) IN (x, 3, NULL)", None),
        ("(-b) IN (x, -2)", True),
        ("(a + b) BETWEEN x AND 4", False),
        ("(a + b) BETWEEN x AND 9", None),
        ("CASE a + b WHEN x THEN 1 WHEN b + 3 THEN 2 ELSE 3 END", 2),
    ],
)
def test_a_value_before_several_comparisons_is_computed_before_the_first(expression: str, expected: Any) -> None:
    """The first comparison may be with NULL, which does not need the value."""
    assert set(values_of(expression)) == {expected}


def compiled(expression: str) -> tuple[StatementProgram, Any]:
    program = StatementProgram(SqlText("test.sql", expression), Columns())
    [cursor] = statements_of(program.text)
    return program, program.compile(parsed_sql(program.text, cursor.tokens, 0))


def values_of(expression: str) -> list[Any]:
    """Return the value for a row, and for two rows in columns."""
    program, found = compiled(expression)
    values = [program.function("evaluate", "event", [f"return {found.code}"])(ROW)]
    if found.columns is not None:
        batch = pa.RecordBatch.from_pydict(
            {name: pa.array([getattr(ROW, name)] * 2, kind) for name, kind in SCHEMA.items()}
        )
        column = found.columns(batch)
        values += [column.as_py()] if isinstance(column, pa.Scalar) else column.to_pylist()
    return values


@pytest.mark.parametrize("count", [7, 1000])
@pytest.mark.parametrize("form", FORMS)
def test_long_expressions_have_their_values(form: str, count: int) -> None:
    """They are computed for one row, and for many at once."""
    expression, expected = FORMS[form]

    assert set(values_of(expression(count))) == {expected(count)}


def test_the_time_of_compiling_grows_with_the_length() -> None:
    """Each operand is compiled once: twice the operands take about twice the processor time, and not its square or more."""

    def once(count: int) -> float:
        before = time.thread_time()
        compiled(repeated("a", " + ", count))
        return time.thread_time() - before

    def seconds(count: int) -> float:
        return min(once(count) for _ in range(3))  # a collection of garbage may be part of one

    seconds(100)
    assert seconds(1600) < 40 * max(seconds(200), 0.002)


NESTED = {
    "parentheses": lambda n: "(" * n + "a" + ")" * n,
    "calls": lambda n: "abs(" * n + "a" + ")" * n,
    "calls of a type that converts": lambda n: "round(" * n + "n" + ", 1)" * n,
    "conditions": lambda n: "coalesce(x > 1 OR " * n + "g" + ", g)" * n,
    "cases": lambda n: "CASE WHEN a > 1 THEN " * n + "a" + " END" * n,
    "cases of a case": lambda n: "CASE " * n + "a" + " WHEN 3 THEN 3 WHEN 2 THEN 2 END" * n,
    "ranges": lambda n: "(" * n + "g" + " BETWEEN false AND true)" * n,
    "lists": lambda n: "(" * n + "g" + " IN (f, g))" * n,
    "times": lambda n: "date_trunc('day', " * n + "ts" + ")" * n,
}


@pytest.mark.parametrize("form", NESTED)
def test_nested_expressions_compile_up_to_the_named_depth(form: str) -> None:
    """Each level takes the time of one, also where an operand is needed twice."""
    depth = 30 if form != "lists" else 29
    values_of(NESTED[form](depth))


@pytest.mark.parametrize("form", NESTED)
@pytest.mark.parametrize("depth", [31, 100, 2000])
def test_deeper_expressions_are_refused_at_their_place(form: str, depth: int) -> None:
    """The error replaces a RecursionError of Python."""
    with pytest.raises(SqlRefused, match="nested too deeply here: at most 30 levels") as caught:
        compiled(NESTED[form](depth))

    assert caught.value.excerpt


@pytest.mark.parametrize(
    "expression", ["NOT " * 3000 + "g", "- " * 3000 + "a", "a" + "::text::bigint" * 2000, "j" + " -> 'a'" * 3000]
)
def test_chains_that_python_cannot_follow_are_refused(expression: str) -> None:
    """Their nodes are one in the other without parentheses."""
    text = f"CREATE CATEGORY v (t bigint, a bigint, g boolean, j jsonb) WITH (time = 't');\nCREATE TABLE o AS SELECT t, {expression} AS r FROM v;"
    with pytest.raises(SqlRefused, match="nested too deeply"):
        compile_app(SqlText("x.sql", text), "x")


def test_a_long_filter_of_a_command_is_compiled() -> None:
    """`penstock replay --when` has such a filter."""
    condition = compile_condition("--when", repeated("value <> #", " AND ", 1000), int, "value")

    assert condition(-1) is True
    assert condition(999) is False


def test_long_clauses_of_an_app_run() -> None:
    """They are in results, WHERE, HAVING, aggregates, joins and UNION ALL."""
    text = f"""CREATE CATEGORY v (t bigint, k text NOT NULL, n bigint NOT NULL) WITH (time = 't', key = 'k', buckets = 1);
    CREATE CATEGORY w (t bigint, k text NOT NULL, n bigint NOT NULL) WITH (time = 't', key = 'k', buckets = 1);
    CREATE TABLE o WITH (buckets = 1) AS SELECT k, sum({repeated("n", " + ", 1000)}) + {repeated("count(*)", " + ", 500)} AS r FROM v
        WHERE {repeated("n <> -1 - #", " AND ", 1000)} GROUP BY k HAVING {repeated("sum(n) <> -1 - #", " AND ", 300)};
    CREATE TABLE p WITH (buckets = 1) AS SELECT a.t, left(a.k, 1) AS l FROM v a JOIN w b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 10
        AND {repeated("a.n + b.n <> -1 - #", " AND ", 300)} AND left(a.k, 1) = right(b.k, 1);
    CREATE TABLE q AS {repeated("SELECT t, k, n FROM v WHERE n = #", " UNION ALL ", 300)};"""
    app = compile_app(SqlText("x.sql", text), "x")
    v, w = app.relations["v"].category, app.relations["w"].category
    driver = Driver([each for each in app.processors if not each.name.startswith("q")])
    driver.send(v, [v.record(t=1, k="a", n=2)])
    driver.send(w, [w.record(t=2, k="a", n=2)])

    assert [row.r for row in driver.read(app.relations["o"].category)] == [2500]
    assert [row.l for row in driver.read(app.relations["p"].category)] == ["a"]
