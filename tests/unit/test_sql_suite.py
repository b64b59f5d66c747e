"""A suite of queries has the results of DuckDB over the same rows, and the values that PostgreSQL defines."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import duckdb
import pytest
from support.sql_suite import (
    Case,
    Fact,
    Rows,
    cases,
    compiled,
    compiled_in_two_phases,
    connected_oracle,
    made_up_batches,
    of_oracle,
    streamed,
    text_of,
)

CASES = list(cases())
FACTS = [fact for case in CASES for fact in case.facts]

GROUPED = [case for case in CASES if case.theme in ("groups", "windows", "distinct")]


@pytest.fixture(scope="module")
def batches() -> list[Rows]:
    return made_up_batches()


@pytest.fixture(scope="module")
def oracle(batches: list[Rows]) -> Iterator[duckdb.DuckDBPyConnection]:
    with connected_oracle(batches) as connection:
        yield connection


@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_results_are_those_of_duckdb(case: Case, oracle: duckdb.DuckDBPyConnection, batches: list[Rows]) -> None:
    """Each result is written exactly once or replaced, although events arrive in any order and workers crash after each batch."""
    app = compiled(case.query)
    expected = of_oracle(oracle, case.oracle, app.relations["found"])
    found = streamed(app, batches)

    assert found.columns == expected.columns
    assert (expected.rows - found.rows, found.rows - expected.rows) == ({}, {})
    assert expected.rows or "never" in case.name, "a query without results proves nothing"


@pytest.mark.parametrize("case", GROUPED, ids=map(str, GROUPED))
def test_results_in_two_phases_are_those_of_duckdb(
    case: Case, oracle: duckdb.DuckDBPyConnection, batches: list[Rows]
) -> None:
    """Two phases may be refused, because partials cannot be combined or the groups would not be spread."""
    app = compiled_in_two_phases(case.query)
    if app is not None:
        expected = of_oracle(oracle, case.oracle, app.relations["found"])

        assert streamed(app, batches).rows == expected.rows


@pytest.mark.parametrize("fact", FACTS, ids=[fact.expression for fact in FACTS])
def test_values_are_those_of_postgres_where_duckdb_has_others(fact: Fact) -> None:
    """The values are beside the queries; a contract test asks PostgreSQL for them."""
    assert text_of(fact.expression) == fact.text


def test_constants_compile_without_a_warning() -> None:
    """Python warns about `1 is None`, which is correct here, and users of the app would see the warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        assert text_of("1 IS NULL") == "false"
