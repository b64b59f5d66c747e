"""Contract of every lookup source, for any kind of table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from support.lookup_tables import (
    Airport,
    InCsv,
    InMemory,
    InParquet,
    InPostgres,
    InPostgresQuery,
    InRedis,
    InRedisJson,
    Table,
)

import penstock as ps
from penstock.processors.lookups import LookupClient

KENNEDY: dict[str, Any] = {
    "name": "Kennedy, John F.",
    "feet": 13,
    "zone": "America/New_York",
    "open": False,
    "degrees": -73.75,
}
ORLY: dict[str, Any] = {"name": "Orly «Ørly»", "feet": -1, "zone": None, "open": True, "degrees": 2.5}


def _of(fixture: str, kind: type[Any]) -> Callable[[pytest.FixtureRequest], Table]:
    return lambda request: kind(request.getfixturevalue(fixture))


def _file(name: str, kind: type[Any]) -> Callable[[pytest.FixtureRequest], Table]:
    return lambda request: kind(request.getfixturevalue("tmp_path") / name)


TABLES: dict[str, Callable[[pytest.FixtureRequest], Table]] = {
    "memory": lambda _: InMemory(),
    "csv": _file("airports.csv", InCsv),
    "parquet": _file("airports.parquet", InParquet),
    "postgres": _of("postgres", InPostgres),
    "postgres query": _of("postgres", InPostgresQuery),
    "redis": _of("redis_server", InRedis),
    "redis json": _of("redis_server", InRedisJson),
    "redis cluster": _of("redis_cluster", InRedis),
    "redis cluster json": _of("redis_cluster", InRedisJson),
}


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest) -> Table:
    """A table of each kind."""
    return TABLES[request.param](request)


@pytest.fixture
def rows(table: Table) -> Iterator[LookupClient]:
    """The lookup source, with two airports."""
    table.put({"JFK": KENNEDY, "ORY": ORLY})
    with closing(table.source().open()) as rows:
        yield rows


def test_each_key_gets_its_row(rows: LookupClient) -> None:
    """Rows have the declared type and unchanged values. Keys without a row are missing, and other columns do not matter."""
    assert rows.fetch(["JFK", "XXX", "ORY", "", "jfk"]) == {"JFK": Airport(**KENNEDY), "ORY": Airport(**ORLY)}
    assert rows.fetch(["JFK"]) == {"JFK": Airport(**KENNEDY)}


def test_a_request_without_keys_returns_nothing(rows: LookupClient) -> None:
    """The source answers later requests."""
    assert rows.fetch([]) == {}
    assert list(rows.fetch(["ORY"])) == ["ORY"]


def test_a_column_with_a_default_may_be_missing(table: Table) -> None:
    """A missing column or value has the field's default, as in messages."""
    table.put({"JFK": {"name": "Kennedy", "feet": 13}, "ORY": ORLY})
    with closing(table.source().open()) as rows:
        assert rows.fetch(["JFK"]) == {"JFK": Airport("Kennedy", 13)}


def test_a_table_may_be_empty(table: Table) -> None:
    """No key has a row."""
    table.put({})
    with closing(table.source().open()) as rows:
        assert rows.fetch(["JFK"]) == {}


def test_the_next_request_returns_changed_rows(table: Table, rows: LookupClient) -> None:
    """Rows may be added, changed or deleted."""
    table.put({"JFK": {**KENNEDY, "feet": 14}, "LGA": {"name": "La Guardia", "feet": 22}})

    found = rows.fetch(["JFK", "ORY", "LGA"])
    assert {key: row.feet for key, row in found.items()} == {"JFK": 14, "LGA": 22}


def test_a_thousand_keys_are_one_request(table: Table) -> None:
    """One request may ask for any number of keys."""
    table.put({f"K{number}": {"name": "x", "feet": number} for number in range(0, 1000, 2)})
    with closing(table.source().open()) as rows:
        found = rows.fetch([f"K{number}" for number in range(1000)])

    assert {key: row.feet for key, row in found.items()} == {f"K{number}": number for number in range(0, 1000, 2)}


def test_a_source_may_be_closed_twice(rows: LookupClient) -> None:
    """A later request opens it again."""
    rows.close()
    rows.close()
    assert list(rows.fetch(["ORY"])) == ["ORY"]


@pytest.fixture(params=["postgres", "postgres query", "redis", "redis json", "redis cluster"])
def store(request: pytest.FixtureRequest) -> Any:
    """A table of each kind that is queried per row."""
    return TABLES[request.param](request)


def test_an_invalid_row_in_a_store_affects_no_other_row(store: Table) -> None:
    """The source returns it as an error with the reason and the row's location."""
    wrong: dict[str, Any] = (
        {"name": None, "feet": 13} if isinstance(store, InPostgres) else {"name": "Kennedy", "feet": "high"}
    )
    store.put({"JFK": wrong, "ORY": ORLY})
    with closing(store.source().open()) as rows:
        found = rows.fetch(["JFK", "ORY"])

    assert found["ORY"] == Airport(**ORLY)
    assert isinstance(found["JFK"], ps.lookups.InvalidRow)
    assert str(found["JFK"]).startswith("the row of 'JFK' in ")
    assert "is not a valid Airport: " in str(found["JFK"])


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_a_file_with_an_invalid_row_is_refused(name: str, request: pytest.FixtureRequest) -> None:
    """The source refuses the whole file before the first event, with the row's location."""
    table = TABLES[name](request)
    table.put({"ORY": {"name": "Orly", "feet": "1"}, "JFK": {"name": "Kennedy", "feet": "high"}})

    with pytest.raises(
        ps.lookups.LookupRefused, match=r"(line 3|row 0).* is not a valid Airport: Expected `int`.*feet"
    ):
        table.source().open()
