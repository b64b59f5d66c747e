"""PostgreSQL and Redis as lookup sources: time limits, hidden passwords, and errors that say what to do."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.databases import PASSWORD, Postgres, Redis
from support.lookup_tables import Airport, InPostgres, InRedis
from support.proxy import Proxy
from support.stores import Place, unique_name

import penstock as ps
from penstock.processors import DeclarationError

LIMIT = timedelta(seconds=3)  # a busy machine answers within it


@pytest.fixture
def source(place: Place) -> Any:
    """Each store, with one airport and a short time limit."""
    server: Any = place.server
    table = InPostgres(server) if isinstance(server, Postgres) else InRedis(server)
    table.put({"JFK": {"name": "Kennedy", "feet": 13}})
    return replace(table.source(), time_limit=LIMIT)  # type: ignore[type-var]  # a frozen value


def test_a_request_to_a_store_that_hangs_times_out(place: Place, source: Any, proxy: Proxy) -> None:
    """The connection may be in any state. When the store answers again, the next request succeeds."""
    with closing(replace(source, at=place.through(proxy)).open()) as rows:
        assert list(rows.fetch(["JFK"])) == ["JFK"]
        proxy.fall_silent()
        for _ in range(2):
            with pytest.raises(ps.lookups.LookupUnreachable, match=r"within 3 s|[Tt]imeout|timed out") as unanswered:
                rows.fetch(["JFK"])
            assert PASSWORD not in str(unanswered.value)
        proxy.resume()

        assert list(rows.fetch(["JFK"])) == ["JFK"]


def test_a_request_to_an_unavailable_store_can_be_retried(place: Place, source: Any, proxy: Proxy) -> None:
    """The error says that a later attempt may succeed."""
    with closing(replace(source, at=place.through(proxy)).open()) as rows:
        rows.fetch(["JFK"])
        proxy.refuse()
        for _ in range(2):
            with pytest.raises(ps.lookups.LookupUnreachable, match=r"did not answer"):
                rows.fetch(["JFK"])
        proxy.resume()

        assert list(rows.fetch(["JFK"])) == ["JFK"]


def test_an_address_can_come_from_an_environment_variable(
    place: Place, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The declaration names the variable; an error reports a missing variable and the expected format."""
    named, other = replace(source, at="AIRPORTS_STORE"), "https://user:s3cret@host/"
    monkeypatch.delenv("AIRPORTS_STORE", raising=False)
    with pytest.raises(ps.lookups.LookupRefused, match=r"environment variable AIRPORTS_STORE, which is not set"):
        named.open()
    monkeypatch.setenv("AIRPORTS_STORE", other)
    with pytest.raises(ps.lookups.LookupRefused, match=r"starts with (postgresql|redis)://") as refused:
        named.open()
    assert "s3cret" not in str(refused.value)
    monkeypatch.setenv("AIRPORTS_STORE", place.url)

    with closing(named.open()) as rows:
        assert list(rows.fetch(["JFK"])) == ["JFK"]
    assert "://" not in repr(replace(source, at=other))


def test_a_store_that_denies_access_shows_no_password(place: Place, source: Any) -> None:
    """The error is permanent: a retry would not help."""
    wrong = place.url.replace(PASSWORD, "wr0ng") if PASSWORD in place.url else place.url.replace("/0", "/99")
    with (
        closing(replace(source, at=wrong).open()) as rows,
        pytest.raises(ps.lookups.LookupRefused, match="refuses") as refused,
    ):
        rows.fetch([])

    assert "wr0ng" not in str(refused.value)


@pytest.mark.parametrize("limit", [timedelta(), timedelta(seconds=-1)])
def test_a_time_limit_of_zero_is_refused(source: Any, limit: timedelta) -> None:
    """The declaration fails."""
    with pytest.raises(DeclarationError, match="time limit"):
        replace(source, time_limit=limit)


@pytest.mark.parametrize("row", [int, dict, list[int], "Airport"])
def test_row_types_are_structs(source: Any, row: Any) -> None:
    """Other types are refused at declaration."""
    with pytest.raises(DeclarationError, match=r"Declare a type that is derived from penstock.Record"):
        replace(source, row=row)


class City(msgspec.Struct, frozen=True):
    """A city's row."""

    name: str


def table_of(postgres: Postgres, kind: str, *rows: tuple[Any, ...]) -> str:
    """Create a table of cities whose codes have the given type."""
    name = unique_name("cities")
    with postgres.session() as session:
        session.execute(f"CREATE TABLE {name} (code {kind}, name text)")
        for row in rows:
            session.execute(f"INSERT INTO {name} VALUES (%s, %s)", row)
    return name


@pytest.mark.parametrize("kind", ["smallint", "integer", "bigint", "varchar(9)", "char(9)"])
def test_a_key_column_may_contain_text_or_integers(postgres: Postgres, kind: str) -> None:
    """A key of another form has no row; a key matches only its exact spelling."""
    source = ps.lookups.PostgresTable(
        table_of(postgres, kind, ("7", "Rome"), ("-8", "Bern")), City, "code", at=postgres.url
    )
    keys = (
        ["7", "-8", "9", "07", "x", "", "\u0667", "7 ", "1" * 30] if "char" not in kind else ["7", "-8", "9", "07", "x"]
    )
    with closing(source.open()) as rows:
        assert rows.fetch(keys) == {"7": City("Rome"), "-8": City("Bern")}


def test_key_columns_of_other_types_need_a_query(postgres: Postgres) -> None:
    """The query converts the list of keys to the column's type."""
    key = "3f333df6-90a4-4fda-8dd3-9485d27cee36"
    name = table_of(postgres, "uuid", (key, "Rome"))
    with (
        closing(ps.lookups.PostgresTable(name, City, "code", at=postgres.url).open()) as rows,
        pytest.raises(ps.lookups.LookupRefused, match=r"neither strings nor integers.* Declare a PostgresQuery"),
    ):
        rows.fetch([])

    query = f"SELECT code, upper(name) AS name FROM {name} WHERE code = ANY(%s::uuid[])"
    with closing(ps.lookups.PostgresQuery(query, City, "code", at=postgres.url).open()) as rows:
        assert rows.fetch([key]) == {key: City("ROME")}


@pytest.mark.parametrize("query", ["SELECT 1 AS code", "SELECT %s = ANY(%s)"])
def test_a_query_takes_one_parameter(query: str) -> None:
    """Its parameter is the list of keys."""
    with pytest.raises(DeclarationError, match="parameters instead of one"):
        ps.lookups.PostgresQuery(query, City, "code")


def test_several_rows_for_one_key_are_an_error(postgres: Postgres) -> None:
    """The right one is unknown; events of other keys continue."""
    name = table_of(postgres, "text", ("a", "Rome"), ("a", "Bern"), ("b", "Oslo"))
    with closing(ps.lookups.PostgresTable(name, City, "code", at=postgres.url).open()) as rows:
        found = rows.fetch(["a", "b"])

    assert found["b"] == City("Oslo")
    assert "has several rows" in str(found["a"])


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"key": "iata"}, "has no column 'iata', which the key needs. It has: code, name"),
        ({"row": Airport}, "has no column 'feet', which Airport needs"),
        ({"table": "nowhere"}, '"nowhere" does not exist'),
    ],
)
def test_a_missing_table_or_column_is_reported_before_the_first_key(
    postgres: Postgres, attributes: dict[str, Any], expected: str
) -> None:
    """The error lists the existing ones."""
    source = replace(ps.lookups.PostgresTable(table_of(postgres, "text"), City, "code", at=postgres.url), **attributes)
    with closing(source.open()) as rows, pytest.raises(ps.lookups.LookupRefused, match=expected):
        rows.fetch([])


def test_a_table_without_read_permission_is_named(postgres: Postgres) -> None:
    """The error names the table."""
    guest, name = unique_name("reader"), table_of(postgres, "text")
    with postgres.session() as session:
        session.execute(f"CREATE USER {guest} PASSWORD '{PASSWORD}'")
    source = ps.lookups.PostgresTable(name, City, "code", at=postgres.url.replace("penstock:", f"{guest}:"))

    with (
        closing(source.open()) as rows,
        pytest.raises(ps.lookups.LookupRefused, match=f"it reads table {name} of PostgreSQL"),
    ):
        rows.fetch([])


def test_a_value_that_is_not_a_hash_affects_no_other_row(redis_server: Redis) -> None:
    """The same applies to a field that is not text."""
    prefix = f"{unique_name('city')}:"
    with redis_server.session() as client:
        client.set(f"{prefix}a", "Rome")
        client.hset(f"{prefix}b", mapping={"name": b"\xff"})
        client.hset(f"{prefix}c", mapping={"name": "Oslo"})
    with closing(ps.lookups.RedisTable(prefix, City, at=redis_server.url).open()) as rows:
        found = rows.fetch(["a", "b", "c"])

    assert found["c"] == City("Oslo")
    assert "is not a hash" in str(found["a"])
    assert "is not in UTF-8" in str(found["b"])
