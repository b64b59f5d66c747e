"""The same SQL file on the stream and in Spark: both have the results of DuckDB over the events."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from penstock.backfill.archive import Archiver
from penstock.backfill.compare import Comparison, compare
from penstock.backfill.run import NodeResult, run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import DAY_MS, open_warehouse
from penstock.processors.apps import AppName
from penstock.testing import Driver
from penstock.transport import Bucket

MASTER = "local[2]"
FIRST, LAST = date(2026, 3, 2), date(2026, 3, 4)
START_MS = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1_000)
EVENTS = 3_000
FILE = """
CREATE CATEGORY visits (seen bigint, visitor text, page text, spent double precision) WITH (key = 'visitor', time = 'seen', buckets = 2);
CREATE CATEGORY sales (seen bigint, visitor text, cents bigint) WITH (key = 'visitor', time = 'seen', buckets = 2);

CREATE TABLE long_visits WITH (buckets = 2) AS
SELECT seen, visitor, upper(page) AS page, spent * 60 AS seconds FROM visits WHERE spent > 1 AND page IS NOT NULL;

CREATE TABLE visits_per_page WITH (buckets = 2) AS
SELECT page, window_start, count(*) AS visits, max(spent) AS longest, count(*) FILTER (WHERE spent > 1) AS long
FROM visits GROUP BY page, tumble(seen, interval '6 hours');

CREATE TABLE first_and_last WITH (buckets = 2) AS
SELECT page, window_start, first(visitor) AS first, last(visitor) AS last, last(spent) FILTER (WHERE spent > 1) AS spent
FROM visits GROUP BY page, tumble(seen, interval '6 hours');

CREATE TABLE last_in_phases WITH (buckets = 2, two_phase = true) AS
SELECT page, window_start, first(spent) AS first, last(visitor) AS last FROM visits GROUP BY page, tumble(seen, interval '6 hours');

CREATE TABLE visits_in_phases WITH (buckets = 2, two_phase = true) AS
SELECT page, window_start, count(*) AS visits, max(spent) AS longest FROM visits WHERE spent < 5
GROUP BY page, hop(seen, interval '1 day', interval '2 days') EMIT ON WINDOW CLOSE;

CREATE TABLE bought WITH (buckets = 2, out_of_orderness = '1 hour') AS
SELECT v.seen, v.visitor, v.page, s.cents FROM visits v JOIN sales s
ON v.visitor = s.visitor AND s.seen BETWEEN v.seen AND v.seen + interval '30 minutes';
"""
WITHIN = f"BETWEEN {START_MS + DAY_MS} AND {START_MS + 4 * DAY_MS - 1}"
ORACLES = {
    "long_visits": f"SELECT seen, visitor, upper(page) AS page, spent * 60 AS seconds FROM visits WHERE spent > 1 AND page IS NOT NULL AND seen {WITHIN}",
    "visits_per_page": "SELECT page, seen // 21600000 * 21600000 AS window_start, count(*) AS visits, max(spent) AS longest, "
    f"count(*) FILTER (WHERE spent > 1) AS long FROM visits WHERE seen {WITHIN} GROUP BY ALL",
    "first_and_last": "SELECT page, seen // 21600000 * 21600000 AS window_start, first(visitor ORDER BY seen, visitor) AS first, "
    "last(visitor ORDER BY seen, visitor) AS last, last(spent ORDER BY seen, spent) FILTER (WHERE spent > 1) AS spent "
    f"FROM visits WHERE seen {WITHIN} GROUP BY ALL",
    "last_in_phases": "SELECT page, seen // 21600000 * 21600000 AS window_start, first(spent ORDER BY seen, spent) AS first, "
    f"last(visitor ORDER BY seen, visitor) AS last FROM visits WHERE seen {WITHIN} GROUP BY ALL",
    "visits_in_phases": "SELECT page, window_start, count(*) AS visits, max(spent) AS longest FROM (SELECT *, unnest([seen // 86400000 * 86400000, "
    f"seen // 86400000 * 86400000 - 86400000]) AS window_start FROM visits) WHERE spent < 5 AND window_start {WITHIN} GROUP BY ALL",
    "bought": "SELECT v.seen, v.visitor, v.page, s.cents FROM visits v JOIN sales s ON v.visitor = s.visitor AND s.seen BETWEEN v.seen AND "
    f"v.seen + 1800000 WHERE v.seen {WITHIN}",
}


class Batch(NamedTuple):
    """A backfill of some days of an app in SQL, and its comparison with the stream."""

    folder: Path
    visits: list[tuple[Any, ...]]
    sales: list[tuple[Any, ...]]
    results: dict[str, NodeResult]
    comparisons: dict[str, Comparison]


def made_up() -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return visits and sales over six days, in order of event time."""
    dice = random.Random(4)
    visits, sales = [], []
    for number in range(EVENTS):
        seen = START_MS + number * 6 * DAY_MS // EVENTS
        visits.append((seen, f"v{dice.randrange(200)}", dice.choice([None, "/", "/cart", "/pay"]), dice.expovariate(1)))
        if dice.random() < 0.4:
            sales.append((seen + dice.randrange(60_000), f"v{dice.randrange(200)}", dice.randrange(99)))
    # Sales of visitors who were there a moment before, so that many match.
    sales += [(seen + 60_000, visitor, 100) for seen, visitor, *_ in visits[::3]]
    return visits, sorted(sales)


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    """One stream, one archive, one backfill, in one Spark session."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: nothing of the backfill is tested")
    folder = tmp_path_factory.mktemp("sql_backfill")
    (folder / "shop.sql").write_text(FILE)
    app = AppName(folder / "shop.sql")
    loaded = app.load()
    categories = {category.name: category for category in loaded.categories()}
    driver = Driver(loaded.processors)
    visits, sales = made_up()
    for start in range(6):
        for name, columns, rows in (
            ("visits", ("seen", "visitor", "page", "spent"), visits),
            ("sales", ("seen", "visitor", "cents"), sales),
        ):
            record = categories[name].record
            part = [row for row in rows if START_MS + start * DAY_MS <= row[0] < START_MS + (start + 1) * DAY_MS]
            driver.send(categories[name], [record(**dict(zip(columns, row, strict=True))) for row in part])
    warehouse = open_warehouse(folder / "warehouse")
    ends = {Bucket(name, number): end for name in categories for number, end in driver.bus.describe(name).ends.items()}
    Archiver(driver.bus, list(categories.values()), warehouse, segment_events=500).run(lambda it: it.has_reached(ends))
    with spark_session(MASTER):
        output = str(folder / "batch")
        results = run_backfill(app, warehouse, first=FIRST, last=LAST, output=open_warehouse(output), master=MASTER)
        compared = compare(app, warehouse, output, FIRST, LAST, master=MASTER)
        yield Batch(
            folder, visits, sales, {one.processor: one for one in results}, {one.category: one for one in compared}
        )


def rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(query).fetchall(), key=repr)


@pytest.mark.parametrize("table", ORACLES)
def test_a_backfill_of_sql_has_the_results_of_duckdb(batch: Batch, table: str) -> None:
    """They are a stateless query, aggregates by another key in one phase and in two, and a join. The stream has the same results."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE visits (seen bigint, visitor text, page text, spent double)")
    connection.execute("CREATE TABLE sales (seen bigint, visitor text, cents bigint)")
    connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", batch.visits)
    connection.executemany("INSERT INTO sales VALUES (?, ?, ?)", batch.sales)
    expected = rows(connection, ORACLES[table])
    names = [column[0] for column in connection.execute(ORACLES[table]).description or ()]
    files = f"{batch.folder}/batch/category={table}/**/*.parquet"
    found = rows(connection, f"SELECT {', '.join(names)} FROM read_parquet('{files}')")

    assert len(expected) > 8
    assert found == expected
    assert batch.comparisons[table].agrees, batch.comparisons[table]
