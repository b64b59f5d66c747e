"""`penstock sql shell` on a real Kafka, beside DuckDB on the same rows."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import duckdb
import pytest
from support.cli import Cli

APP = """
CREATE APPLICATION shop;

CREATE CATEGORY views (seen bigint, customer text, page text, ms double precision)
WITH (category = '{prefix}.views', key = 'customer', time = 'seen', buckets = 3);

CREATE CATEGORY orders (placed bigint, customer text, amount double precision, category text)
WITH (category = '{prefix}.orders', key = 'customer', time = 'placed', buckets = 3);

CREATE TABLE "{prefix}.slow" AS SELECT seen, customer FROM views WHERE ms > 800;
CREATE TABLE "{prefix}.large" AS SELECT placed, customer FROM orders WHERE amount > 80;
"""
MINUTE = 60_000
Row = dict[str, Any]


class Shop:
    """Tables with events of the last hour, in Kafka and in DuckDB."""

    def __init__(self, cli: Cli, prefix: str) -> None:
        self._cli = cli
        self.file = cli.folder / "shop.sql"
        self.file.write_text(APP.replace("{prefix}", prefix))
        cli.ok("category", "create", str(self.file))
        dice, now = random.Random(11), time.time_ns() // 1_000_000 // MINUTE * MINUTE
        times = sorted(now - dice.randrange(3_600_000) for _ in range(2_000))
        self.views: list[Row] = [
            {
                "seen": at,
                "customer": f"c{dice.randrange(20)}",
                "page": f"/p{dice.randrange(9)}",
                "ms": None if dice.random() < 0.1 else float(dice.randrange(900)),
            }
            for at in times
        ]
        self.orders: list[Row] = [
            {
                "placed": at + 1,
                "customer": f"c{dice.randrange(20)}",
                "amount": float(dice.randrange(90)),
                "category": f"k{at % 3}",
            }
            for at in times[::10]
        ]
        for name, rows in (("views", self.views), ("orders", self.orders)):
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            cli.ok("category", "send", f"{prefix}.{name}", "--app", str(self.file), stdin=lines)
        self._oracle = duckdb.connect()
        self._oracle.execute("CREATE TABLE views (seen bigint, customer text, page text, ms double)")
        self._oracle.execute("CREATE TABLE orders (placed bigint, customer text, amount double, category text)")
        self._oracle.executemany("INSERT INTO views VALUES (?, ?, ?, ?)", [list(row.values()) for row in self.views])
        self._oracle.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", [list(row.values()) for row in self.orders])

    def tried(self, query: str) -> list[Row]:
        """Return the rows that the shell prints."""
        printed = self._cli.ok("sql", "shell", str(self.file), "--last", "1h", "--query", query, "--json")
        return [json.loads(line) for line in printed.splitlines()]

    def expected(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of DuckDB."""
        return self._oracle.execute(query).fetchall()


@pytest.fixture
def shop(cli: Cli, prefix: str) -> Shop:
    """Tables with events."""
    return Shop(cli, prefix)


def test_a_tried_query_returns_the_rows_of_another_database(shop: Shop) -> None:
    """The queries are a filter, groups with and without windows in the order of the query, and a join of two categories."""
    slow = shop.tried("SELECT seen, customer, page FROM views WHERE ms >= 600")
    windows = shop.tried(
        "SELECT page, window_start, count(*) AS n, sum(ms) AS total FROM views GROUP BY page, tumble(seen, interval '5 minutes')"
    )
    top = shop.tried("SELECT page, count(*) AS n FROM views GROUP BY page ORDER BY n DESC, page LIMIT 4")
    joined = shop.tried(
        "SELECT v.seen, v.customer, o.amount FROM views v JOIN orders o ON v.customer = o.customer "
        "AND o.placed BETWEEN v.seen AND v.seen + interval '1 minute'"
    )

    assert sorted(map(values, slow)) == sorted(shop.expected("SELECT seen, customer, page FROM views WHERE ms >= 600"))
    assert sorted(map(values, windows)) == sorted(
        shop.expected("SELECT page, seen // 300000 * 300000 AS start, count(*), sum(ms) FROM views GROUP BY ALL")
    )
    assert [(row["page"], row["n"]) for row in top] == shop.expected(
        "SELECT page, count(*) AS n FROM views GROUP BY page ORDER BY n DESC, page LIMIT 4"
    )
    assert sorted((row["seen"], row["customer"], row["amount"]) for row in joined) == sorted(
        shop.expected(
            "SELECT v.seen, v.customer, o.amount FROM views v JOIN orders o ON v.customer = o.customer "
            "AND o.placed BETWEEN v.seen AND v.seen + 60000"
        )
    )


def test_the_shell_runs_one_statement_after_the_other(shop: Shop, cli: Cli) -> None:
    """A mistake is shown with its place, and the next statement runs. Nothing is written to Kafka."""
    before = cli.ok("category", "show")
    done = cli(
        "sql",
        "shell",
        str(shop.file),
        stdin="\\d\nSELECT nothing\nFROM views;\n\\last 1h\nSELECT customer, count(*) AS n FROM orders\nGROUP BY customer ORDER BY n DESC LIMIT 1;\n",
    )
    [(customer, count)] = shop.expected(
        "SELECT customer, count(*) AS n FROM orders GROUP BY ALL ORDER BY n DESC, max(placed) LIMIT 1"
    )

    limited = cli("sql", "shell", str(shop.file), "--limit", "50", "--query", "SELECT placed, customer FROM orders")

    assert "50 rows" in limited.stderr
    assert "increase --limit" in limited.stderr
    assert "--limit" not in done.stderr
    assert done.returncode == 1
    assert "seen, customer, page, ms" in done.stdout
    assert "query, line 1, column 8: There is no column 'nothing'" in done.stderr
    assert str(count) in done.stdout.splitlines()[-1].split()
    assert customer
    assert "Traceback" not in done.stderr
    assert cli.ok("category", "show") == before


def test_the_archive_is_queried_with_duckdb(shop: Shop, cli: Cli, prefix: str) -> None:
    """A record's column named as a folder keeps its values; anything but a SELECT is refused."""
    cli.ok("archive", "run", str(shop.file), "--until-end")
    groups = 'SELECT category, count(*) AS n, sum(amount) AS total FROM "{}" GROUP BY ALL ORDER BY ALL'
    days = "SELECT count(*) AS n FROM \"{}\" WHERE ds >= '2020-01-01'"

    def tried(query: str) -> list[Row]:
        printed = cli.ok("sql", "shell", "--source", "warehouse", "--query", query, "--json")
        return [json.loads(line) for line in printed.splitlines()]

    refused = cli("sql", "shell", "--source", "warehouse", "--query", "CREATE TABLE t (a int)")
    unknown = cli("sql", "shell", "--source", "warehouse", "--query", "SELECT 1 FROM nothing")

    assert list(map(values, tried(groups.format(f"{prefix}.orders")))) == shop.expected(groups.format("orders"))
    assert tried(days.format(f"{prefix}.views")) == [{"n": len(shop.views)}]
    assert tried(days.format(f"{prefix}.orders")) == [{"n": len(shop.orders)}]
    assert "one SELECT" in refused.stderr
    assert f"{prefix}.views" in unknown.stderr.replace("\n", "")
    assert "Traceback" not in refused.stderr + unknown.stderr


def values(row: Row) -> tuple[Any, ...]:
    return tuple(row.values())
