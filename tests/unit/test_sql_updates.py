"""A table of updates is not read as a table of events: each of its rows replaces the earlier row of its key."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from penstock.ops.shell.command_line.main import app
from penstock.processors.sql import SqlApp, SqlText, compile_app
from penstock.processors.sql.errors import SqlRefused
from penstock.processors.sql.relations import Updates
from penstock.testing import Driver

INPUTS = """CREATE CATEGORY views (seen bigint, customer text, page text NOT NULL, n bigint) WITH (key = 'customer', time = 'seen');
"""
TABLES = (
    INPUTS
    + """CREATE CATEGORY users (at bigint, name text, country text) WITH (key = 'name', time = 'at', compacted = true);
CREATE LOOKUP TABLE pages (page text, title text) WITH (csv = 'pages.csv', key = 'page');
CREATE TABLE counts AS SELECT page, count(*) AS c FROM views GROUP BY page;
CREATE TABLE hourly AS SELECT page, window_start, count(*) AS c FROM views GROUP BY page, tumble(seen, interval '1 hour');
CREATE TABLE early AS SELECT page, window_start, count(*) AS c FROM views GROUP BY page, tumble(seen, interval '1 hour') EMIT EVERY interval '1 second';
CREATE TABLE late WITH (late = 'into window') AS SELECT page, window_start, count(*) AS c FROM views GROUP BY page, tumble(seen, interval '1 hour') EMIT ON WINDOW CLOSE;
CREATE TABLE final AS SELECT page, window_start, count(*) AS c FROM views GROUP BY page, tumble(seen, interval '1 hour') EMIT ON WINDOW CLOSE;
CREATE TABLE pairs AS SELECT DISTINCT customer, page FROM views;
CREATE TABLE shown AS SELECT seen, page AS shown, c FROM counts;
CREATE TABLE enriched AS SELECT k.seen, k.page, k.c, p.title FROM counts k LEFT JOIN pages p ON k.page = p.page;
CREATE TABLE latest WITH (compacted = true) AS SELECT seen, customer, page FROM views;
CREATE TABLE ranks WITH (late = 'into window') AS SELECT page, topk(n) AS sold FROM views GROUP BY tumble(seen, interval '1 hour');
"""
)


def compiled(query: str, tables: str = TABLES) -> SqlApp:
    return compile_app(SqlText("shop.sql", tables + query), "shop")


REFUSED = [
    "SELECT sum(c) AS total FROM counts",
    "SELECT sum(c) AS total FROM shown",
    "SELECT sum(c) AS total FROM enriched",
    "SELECT sum(c) AS total FROM hourly GROUP BY tumble(window_start, interval '1 hour')",
    "SELECT sum(c) AS total FROM early GROUP BY tumble(window_start, interval '1 hour') EMIT ON WINDOW CLOSE",
    "SELECT sum(c) AS total FROM late GROUP BY tumble(window_start, interval '1 hour') EMIT ON WINDOW CLOSE",
    "SELECT country, count(*) AS users FROM users GROUP BY country",
    "SELECT count(*) AS c FROM latest",
    "SELECT c, count(*) AS pages FROM counts GROUP BY c HAVING count(*) > 1",
    "SELECT DISTINCT c FROM counts",
    "SELECT DISTINCT country FROM users [1 hour]",
    "SELECT seen, page, c FROM counts WHERE c < 3",
    "SELECT at, name FROM users WHERE country = 'DE'",
    "SELECT page, topk(c) AS c FROM counts GROUP BY tumble(seen, interval '1 hour')",
    "SELECT page, count(*) AS c FROM ranks GROUP BY page, tumble(window_start, interval '1 hour')",
    "SELECT page, max(c) AS c FROM counts GROUP BY page, tumble(seen, interval '1 hour') ORDER BY c LIMIT 3",
    "WITH q AS (SELECT seen, page, c FROM counts) SELECT sum(c) AS total FROM q",
    "SELECT sum(c) AS total FROM (SELECT seen, c FROM shown) AS q",
    "SELECT seen, page, c FROM counts UNION ALL SELECT window_start, page, c FROM final",
    "SELECT window_start AS seen, page, c FROM final UNION ALL SELECT seen, page, c FROM counts",
    "WITH q AS (SELECT seen, c FROM counts UNION ALL SELECT seen, n FROM views) SELECT sum(c) AS c FROM q",
    "SELECT v.seen, v.page, h.c FROM views v JOIN hourly h ON v.page = h.page AND v.seen BETWEEN h.window_start AND h.window_start + interval '1 hour'",
    "SELECT h.window_start, h.page, v.n FROM hourly h LEFT JOIN views v ON v.page = h.page AND v.seen BETWEEN h.window_start AND h.window_start + interval '1 hour'",
    "SELECT v.seen, u.country FROM views v JOIN users u ON v.customer = u.name AND u.at BETWEEN v.seen AND v.seen + interval '1 hour'",
    "SELECT k.seen, k.page, p.title FROM counts k JOIN pages p ON k.page = p.page",
    "SELECT k.seen, k.page, u.country FROM counts k JOIN users FOR SYSTEM_TIME AS OF k.seen AS u ON k.page = u.name",
    "SELECT seen, page FROM counts WHERE page IN (SELECT page FROM pages)",
    "SELECT seen, page FROM counts WHERE page NOT IN (SELECT page FROM pages)",
]


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_that_would_count_updates_is_refused(query: str) -> None:
    """Its result would depend on checkpoints."""
    with pytest.raises(
        SqlRefused, match=r"replaces the earlier row of its key, and .*(EMIT ON WINDOW CLOSE|FOR SYSTEM_TIME)"
    ) as caught:
        compiled(f"CREATE TABLE found AS {query};")

    assert caught.value.excerpt


def test_another_key_than_the_one_of_the_updates_is_refused() -> None:
    """The earlier row would stay under its earlier key."""
    with pytest.raises(SqlRefused, match="the earlier row would stay under another key, c"):
        compiled("CREATE TABLE found WITH (key = 'c') AS SELECT seen, page, c FROM counts;")


@pytest.mark.parametrize(
    ("query", "updates"),
    [
        ("SELECT seen, page, c * 2 AS double FROM counts", Updates.RESULTS),
        ("SELECT * FROM users", Updates.LATEST_ROWS),
        (
            "SELECT sum(c) AS total FROM final GROUP BY tumble(window_start, interval '1 hour') EMIT ON WINDOW CLOSE",
            None,
        ),
        ("SELECT page, max(c) AS c FROM final GROUP BY page", Updates.RESULTS),
        ("SELECT count(*) AS pairs FROM pairs GROUP BY tumble(seen, interval '1 hour') EMIT ON WINDOW CLOSE", None),
        (
            "SELECT v.seen, v.page, k.c FROM views v JOIN counts FOR SYSTEM_TIME AS OF v.seen AS k ON v.page = k.page",
            None,
        ),
        (
            """SELECT u.country, count(*) AS c FROM views v JOIN users FOR SYSTEM_TIME AS OF v.seen AS u ON v.customer = u.name
            WHERE u.country <> 'DE' GROUP BY u.country, tumble(v.seen, interval '1 hour') EMIT ON WINDOW CLOSE""",
            None,
        ),
        ("SELECT seen, page FROM views WHERE page IN (SELECT page FROM counts FOR SYSTEM_TIME AS OF views.seen)", None),
        ("SELECT window_start, page, c FROM final WHERE c > 1 UNION ALL SELECT seen, page, n FROM views", None),
        ("SELECT page, count(*) AS c FROM views GROUP BY page, session(seen, interval '1 minute')", None),
    ],
)
def test_whether_a_table_contains_updates_is_known(query: str, updates: Updates | None) -> None:
    """Rows of results that are written once, and of joins with the latest row of a table, are events."""
    assert compiled(f"CREATE TABLE found AS {query};").relations["found"].updates is updates


EVENTS = st.lists(
    st.lists(st.tuples(st.integers(0, 3 * 3_600_000), st.sampled_from(["/", "/a", "/b"])), max_size=4), max_size=4
)


@settings(max_examples=20, deadline=None)
@given(batches=EVENTS)
def test_an_aggregate_of_final_results_does_not_depend_on_batches(batches: list[list[tuple[int, str]]]) -> None:
    """The refusals advise such a query: each event counts once, however the events are split."""
    query = """CREATE TABLE hours WITH (out_of_orderness = '10 hours') AS SELECT page, window_start, count(*) AS c FROM views
        GROUP BY page, tumble(seen, interval '1 hour') EMIT ON WINDOW CLOSE;
    CREATE TABLE found AS SELECT window_start, sum(c) AS total, count(*) AS pages FROM hours
        GROUP BY tumble(window_start, interval '1 hour') EMIT ON WINDOW CLOSE;"""
    found = compiled(query, INPUTS)
    views = found.relations["views"].category
    driver = Driver(found.processors)
    for batch in batches:
        driver.send(views, [views.record(seen=seen, customer="ann", page=page) for seen, page in batch])
    for hour in (100, 200):  # ends the windows of all events, and then its own
        driver.send(views, [views.record(seen=hour * 3_600_000, customer="ann", page="/")])
        driver.advance(600)
    read: list[Any] = list(driver.read(found.relations["found"].category))
    written = [row for row in read if row.window_start < 100 * 3_600_000]
    events = [event for batch in batches for event in batch]
    totals = Counter(seen // 3_600_000 * 3_600_000 for seen, _ in events)
    pages = Counter(hour for hour, _ in {(seen // 3_600_000 * 3_600_000, page) for seen, page in events})
    expected = {hour: (total, pages[hour]) for hour, total in totals.items()}

    assert {row.window_start: (row.total, row.pages) for row in written} == expected
    assert len(written) == len(expected)


def test_explain_marks_the_tables_of_updates(tmp_path: Path) -> None:
    """It does so before anything runs."""
    file = tmp_path / "shop.sql"
    file.write_text(TABLES)
    (tmp_path / "pages.csv").write_text("page,title\n/,home\n")
    printed = CliRunner().invoke(app, ["sql", "explain", str(file)], catch_exceptions=False).output
    lines = " ".join(printed.split())

    assert "counts by page, 8 buckets, updates" in lines
    assert "final by page, 8 buckets, updates" not in lines
