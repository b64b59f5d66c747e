"""Queries of SQL files over streams have the results that DuckDB computes over the same events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import duckdb
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.processors.sql import SqlApp, SqlText, compile_app
from penstock.testing import Crash, Driver

VIEWS = """
CREATE CATEGORY views (
    seen bigint, customer text, page text, milliseconds double precision, weight bigint
) WITH (key = 'customer', time = 'seen', buckets = 2);
"""
MINUTE_MS = 60_000
COLUMNS = ("seen", "customer", "page", "milliseconds", "weight")


class Case(NamedTuple):
    """A query for Penstock, and the same one for DuckDB over a table `views`."""

    query: str
    oracle: str
    updates_of: tuple[str, ...] | None = None
    """The columns that identify a result: of several results, the last one counts. None if results are no updates."""


CASES = {
    "filter and project": Case(
        "SELECT seen, customer, upper(page) AS page, weight * 2 + 1 AS twice FROM views WHERE milliseconds > 5 AND page LIKE '%a%'",
        "SELECT seen, customer, upper(page) AS page, weight * 2 + 1 AS twice FROM views WHERE milliseconds > 5 AND page LIKE '%a%'",
    ),
    "all columns": Case("SELECT * FROM views", "SELECT * FROM views"),
    "group by the key": Case(
        "SELECT customer, count(*) AS views, count(page) AS pages, sum(weight) AS weight FROM views GROUP BY customer",
        "SELECT customer, count(*) AS views, count(page) AS pages, sum(weight)::bigint AS weight, max(seen) AS seen FROM views GROUP BY customer",
        ("customer",),
    ),
    "windows by another column": Case(
        "SELECT page, window_start, count(*) AS views, min(milliseconds) AS least, max(page) AS last_page, "
        "count(*) FILTER (WHERE weight > 3) AS heavy FROM views GROUP BY page, tumble(seen, interval '1 minute')",
        "SELECT page, seen // 60000 * 60000 AS window_start, count(*) AS views, min(milliseconds) AS least, max(page) AS last_page, "
        "count(*) FILTER (WHERE weight > 3) AS heavy FROM views GROUP BY page, seen // 60000 * 60000",
        ("page", "window_start"),
    ),
    "an expression as the group, with HAVING": Case(
        "SELECT length(page) AS size, customer, sum(weight) + 1 AS total, window_end FROM views WHERE page IS NOT NULL "
        "GROUP BY 1, customer, hop(seen, interval '30 seconds', interval '1 minute') HAVING sum(weight) IS NOT NULL",
        "SELECT length(page) AS size, customer, sum(weight)::bigint + 1 AS total, start + 60000 AS window_end, start AS window_start "
        "FROM (SELECT *, unnest([seen // 30000 * 30000, seen // 30000 * 30000 - 30000]) AS start FROM views) "
        "WHERE page IS NOT NULL GROUP BY 1, 2, start HAVING sum(weight) IS NOT NULL",
        ("size", "customer", "window_start"),
    ),
    "a named query": Case(
        "WITH heavy AS (SELECT seen, customer, weight * 2 AS twice FROM views WHERE weight > 0), rich AS (SELECT * FROM heavy WHERE twice > 4) "
        "SELECT customer, sum(rich.twice) AS total FROM rich GROUP BY customer",
        "SELECT customer, sum(weight * 2)::bigint AS total, max(seen) AS seen FROM views WHERE weight > 2 GROUP BY customer",
        ("customer",),
    ),
    "a query in FROM": Case(
        "SELECT page, count(*) AS views, window_start FROM (SELECT seen, upper(page) AS page FROM views WHERE page IS NOT NULL) AS upper_pages "
        "GROUP BY page, tumble(seen, interval '1 minute')",
        "SELECT upper(page) AS page, count(*) AS views, seen // 60000 * 60000 AS window_start FROM views WHERE page IS NOT NULL "
        "GROUP BY upper(page), seen // 60000 * 60000",
        ("page", "window_start"),
    ),
    "branches": Case(
        "SELECT seen, customer, weight FROM views WHERE weight > 3 UNION ALL SELECT seen, page, 0 FROM views WHERE page IS NOT NULL "
        "UNION ALL (SELECT seen, 'none', weight FROM views WHERE weight IS NULL)",
        "SELECT seen, customer, weight FROM views WHERE weight > 3 UNION ALL SELECT seen, page, 0 FROM views WHERE page IS NOT NULL "
        "UNION ALL SELECT seen, 'none', weight FROM views WHERE weight IS NULL",
    ),
    "aggregates of branches": Case(
        "WITH all_texts AS (SELECT seen, customer AS name FROM views UNION ALL SELECT seen, page FROM views WHERE page IS NOT NULL) "
        "SELECT name, count(*) AS found FROM all_texts GROUP BY name",
        "SELECT name, count(*) AS found, max(seen) AS seen FROM (SELECT seen, customer AS name FROM views "
        "UNION ALL SELECT seen, page FROM views WHERE page IS NOT NULL) GROUP BY name",
        ("name",),
    ),
    "spreads and conditions, with default names": Case(
        "SELECT customer, count(*), var_pop(weight), stddev(weight), min(milliseconds) FILTER (WHERE weight > 0), bool_and(weight > 0) AS all_heavy, "
        "bool_or(weight > 0) AS some_heavy FROM views GROUP BY customer",
        "SELECT customer, count(*) AS count, var_pop(weight) AS var_pop, stddev(weight) AS stddev, min(milliseconds) FILTER (WHERE weight > 0) AS min, "
        "bool_and(weight > 0) AS all_heavy, bool_or(weight > 0) AS some_heavy, max(seen) AS seen FROM views GROUP BY customer",
        ("customer",),
    ),
    "distinct values": Case(
        "SELECT page, window_start, count(DISTINCT customer) AS customers, count(DISTINCT milliseconds) FILTER (WHERE weight > 0) AS durations, "
        "count(DISTINCT cast(weight AS numeric)) AS weights FROM views GROUP BY page, tumble(seen, interval '1 minute')",
        "SELECT page, seen // 60000 * 60000 AS window_start, count(DISTINCT customer) AS customers, "
        "count(DISTINCT milliseconds) FILTER (WHERE weight > 0) AS durations, count(DISTINCT weight) AS weights "
        "FROM views GROUP BY page, seen // 60000 * 60000",
        ("page", "window_start"),
    ),
    "no group": Case(
        "SELECT count(*) AS views, avg(milliseconds) AS mean, max(weight) IS NULL AS light FROM views WHERE customer = 'ann'",
        "SELECT count(*) AS views, avg(milliseconds) AS mean, max(weight) IS NULL AS light, max(seen) AS seen FROM views WHERE customer = 'ann' "
        "HAVING count(*) > 0",
        (),
    ),
}
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "seen": st.integers(0, 5 * MINUTE_MS),
            "customer": st.sampled_from(["ann", "bob", "eve"]),
            "page": st.none() | st.sampled_from(["/", "/a", "/ab", ""]),
            "milliseconds": st.none() | st.integers(0, 80).map(lambda each: each / 4),
            "weight": st.none() | st.integers(-5, 9),
        }
    ),
    max_size=30,
)


def compiled(query: str) -> SqlApp:
    return compile_app(SqlText("app.sql", f"{VIEWS}\nCREATE TABLE found AS {query};"), __name__)


def results(query: str, events: list[dict[str, Any]], crashes: bool) -> list[dict[str, Any]]:
    """Return the records that the processors of a query write."""
    app = compiled(query)
    driver = Driver(app.processors, start_ms=10 * MINUTE_MS)
    views = app.relations["views"].category
    items: list[Any] = [msgspec.convert(event, views.record) for event in events]
    if crashes:
        items.insert(len(items) // 2, Crash())
    driver.send(views, items)
    for processor in app.processors:
        assert driver.dead_letters(processor) == []
    return [msgspec.to_builtins(each) for each in driver.read(app.relations["found"].category)]


def of_duckdb(query: str, events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE views (seen bigint, customer text, page text, milliseconds double, weight bigint)")
    for event in events:
        connection.execute("INSERT INTO views VALUES (?, ?, ?, ?, ?)", [event[name] for name in COLUMNS])
    found = connection.execute(query)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def as_list(records: Iterable[dict[str, Any]]) -> list[tuple[tuple[str, str], ...]]:
    """Return comparable records. The last digits of a variance depend on the order of additions."""
    return sorted(tuple(sorted((name, _shown(value)) for name, value in record.items())) for record in records)


def _shown(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else repr(value)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
@settings(max_examples=12, deadline=None)
@given(events=EVENTS, crashes=st.booleans())
def test_results_are_those_of_duckdb(case: Case, events: list[dict[str, Any]], crashes: bool) -> None:
    """A crash at a checkpoint changes nothing. Of the updates of one result, the last counts."""
    written = results(case.query, events, crashes)
    if case.updates_of is not None:
        latest = {tuple(record[name] for name in case.updates_of): record for record in written}
        written = list(latest.values())
    expected = of_duckdb(case.oracle, events)
    if case.updates_of is None and crashes:  # each result is written at least once
        assert set(as_list(written)) == set(as_list(expected))
        assert not Counter(as_list(expected)) - Counter(as_list(written))
    else:
        assert as_list(written) == as_list(expected)


DOCUMENTS = """
CREATE CATEGORY orders (at bigint, id text, document jsonb) WITH (key = 'id', time = 'at');
CREATE TABLE items AS
SELECT at, id, document ->> 'color' AS color, (document -> 'n')::bigint + 1 AS more, document #>> '{tags,0}' AS tag, document -> 'tags' AS tags
FROM orders WHERE jsonb_typeof(document -> 'n') = 'number';
CREATE TABLE colors AS SELECT document ->> 'color' AS color, count(*) FROM orders GROUP BY 1;
"""


def test_queries_read_documents_in_json() -> None:
    """They read fields, elements and whole values. Documents that are missing, null or of another shape count as NULL."""
    app = compile_app(SqlText("app.sql", DOCUMENTS), __name__)
    orders = app.relations["orders"].category
    driver = Driver(app.processors, start_ms=MINUTE_MS)
    messages: list[dict[str, Any]] = [
        {"at": 1, "id": "a", "document": {"color": "red", "n": 4, "tags": ["x", {"y": None}]}},
        {"at": 2, "id": "b", "document": {"color": "red", "n": "4"}},
        {"at": 3, "id": "c", "document": None},
        {"at": 4, "id": "d"},
        {"at": 5, "id": "e", "document": [1, 2]},
    ]
    driver.send(orders, [msgspec.convert(message, orders.record) for message in messages])

    assert [msgspec.to_builtins(each) for each in driver.read(app.relations["items"].category)] == [
        {"at": 1, "id": "a", "color": "red", "more": 5, "tag": "x", "tags": ["x", {"y": None}]}
    ]
    assert {each.color: each.count for each in driver.read(app.relations["colors"].category)} == {"red": 2, None: 3}


HOUR_MS = 60 * MINUTE_MS
TOP = {
    "of Puma": ("SELECT page, customer, topk(weight, 2) AS weight FROM views [1 minutes]", ("page",), ("customer",)),
    "of a group": (
        "SELECT customer, page, topk(weight, 2) AS weight FROM views GROUP BY customer, tumble(seen, interval '1 minute')",
        ("customer",),
        ("page",),
    ),
    "of all": ("SELECT page, topk(weight, 2) AS weight FROM views [1 minutes]", (), ("page",)),
    "of pairs": (
        "SELECT page, topk(weight, 2) AS weight, customer FROM views GROUP BY tumble(seen, interval '1 minute')",
        ("page",),
        ("customer",),
    ),
}


@pytest.mark.parametrize(("query", "group", "item"), TOP.values(), ids=list(TOP))
@settings(max_examples=12, deadline=None)
@given(events=EVENTS)
def test_topk_ranks_the_items_of_each_group(
    query: str, group: tuple[str, ...], item: tuple[str, ...], events: list[dict[str, Any]]
) -> None:
    """Items are ranked by their sums of weights, which are recomputed from the events. The item decides between equal sums."""
    app = compile_app(
        SqlText("app.sql", f"{VIEWS}\nCREATE TABLE found WITH (out_of_orderness = '30 minutes') AS {query};"), __name__
    )
    views = app.relations["views"].category
    driver = Driver(app.processors, start_ms=2 * HOUR_MS)
    driver.send(views, [msgspec.convert(event, views.record) for event in events])
    end = {"page": None, "milliseconds": None, "weight": None}
    closing = [{"seen": HOUR_MS, "customer": f"closing{number}", **end} for number in range(20)]
    driver.send(views, [msgspec.convert(event, views.record) for event in closing])
    driver.advance(300)

    sums: dict[tuple[Any, ...], dict[tuple[Any, ...], int]] = {}
    for event in events:
        if event["weight"] is not None:
            place = (event["seen"] // MINUTE_MS * MINUTE_MS, *(event[name] for name in group))
            of_place = sums.setdefault(place, {})
            key = tuple(event[name] for name in item)
            of_place[key] = of_place.get(key, 0) + event["weight"]
    expected = [
        {
            "window_start": start,
            **dict(zip(group, names, strict=True)),
            **dict(zip(item, key, strict=True)),
            "weight": total,
        }
        for (start, *names), totals in sums.items()
        for key, total in sorted(totals.items(), key=lambda one: (-one[1], msgspec.json.encode(one[0])))[:2]
    ]
    written = [msgspec.to_builtins(each) for each in driver.read(app.relations["found"].category)]
    assert as_list(written) == as_list(expected)
