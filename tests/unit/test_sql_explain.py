"""`penstock sql explain` shows the processors of a file, as they are declared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.ops.shell.command_line.main import app
from penstock.processors import AppFileError

FILE = """
CREATE CATEGORY views (seen bigint, customer text, page text) WITH (key = 'customer', time = 'seen', buckets = 2);
CREATE TABLE home AS SELECT * FROM views WHERE page = '/';
CREATE TABLE pages WITH (buckets = 3, semantics = 'exactly once') AS
SELECT page, approx_count_distinct(customer) AS customers -- of each page
FROM views GROUP BY page, hop(seen, interval '1 minute', interval '5 minutes') EMIT ON WINDOW CLOSE;
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sql"
    path.write_text(FILE)
    return path


def category(name: str, key: str | None, buckets: int, *, internal: bool = False) -> dict[str, Any]:
    return {"name": name, "key": key, "buckets": buckets, "internal": internal, "updates": False}


def test_each_processor_is_one_json_object(file: Path) -> None:
    """It has the categories, windows, emission and semantics of the processor, and marks the internal category."""
    done = CliRunner().invoke(app, ["sql", "explain", str(file), "--json"])
    home, grouped, pages = [json.loads(line) for line in done.output.splitlines()]

    assert (home["name"], home["kind"], home["state"], home["window"]) == ("home", "stateless", None, None)
    assert home["processing"] == grouped["processing"] == "in columns"
    assert pages["processing"] == "event by event: approx_count_distinct takes one value after the other"
    assert home["query"] == "SELECT * FROM views WHERE page = '/'"
    assert grouped["reads"] == [category("views", "customer", 2)]
    assert grouped["writes"] == pages["reads"] == [category("pages.grouped", "group_key", 3, internal=True)]
    assert pages["writes"] == [category("pages", "page", 3)]
    assert (pages["kind"], pages["window"]) == ("aggregator", "hopping, 5 min every 60 s")
    assert (pages["emission"], pages["late"]) == ("at the end of the window", "dropped and counted")
    assert (pages["state"], pages["output"]) == ("exactly once", "exactly once")
    assert pages["query"] == grouped["query"]
    assert pages["query"] == FILE.rpartition("AS\nSELECT page")[1][3:] + FILE.rpartition("AS\nSELECT page")[2].rstrip(
        ";\n"
    )


def test_people_read_one_block_for_each_processor(file: Path) -> None:
    """Facts that a processor does not have are left out."""
    done = CliRunner().invoke(app, ["sql", "explain", str(file)])
    home, _, pages = done.output.split("\n\n")

    assert home.splitlines()[0] == "home  stateless"
    assert "window" not in home
    assert "  key          group_key, the values of GROUP BY\n" in pages
    assert "pages.grouped by group_key, 3 buckets, internal\n" in pages


def test_queries_with_large_groups_are_advised_to_have_two_phases(tmp_path: Path) -> None:
    """The query must allow them. With two phases, the first processor reads the table itself."""
    file = tmp_path / "shop.sql"
    file.write_text(
        FILE
        + "CREATE TABLE own AS SELECT customer, count(*) AS n FROM views GROUP BY customer;"
        + "CREATE TABLE phased WITH (two_phase = true) AS SELECT page, count(*) AS n FROM views GROUP BY page;"
    )
    done = CliRunner().invoke(app, ["sql", "explain", str(file), "--json"])
    plans = {plan["name"]: plan for plan in map(json.loads, done.output.splitlines())}

    assert [name for name, plan in plans.items() if plan["advice"]] == ["pages"]
    assert "two_phase = true" in plans["pages"]["advice"]
    assert plans["phased_partials"]["reads"] == [category("views", "customer", 2)]
    assert plans["phased_partials"]["key"] == "group_key, the values of GROUP BY"
    assert plans["phased"]["reads"] == [category("phased.partials", "key", 8, internal=True)]


def test_a_query_without_columns_says_why(tmp_path: Path) -> None:
    """The reason is in the query or in the messages."""
    file = tmp_path / "shop.sql"
    file.write_text(
        "CREATE CATEGORY visits (at bigint, moment timestamp, page text) WITH (time = 'at');"
        "CREATE TABLE pages AS SELECT at, upper(page) AS page FROM visits;"
        "CREATE TABLE moments AS SELECT at, moment FROM visits;"
    )
    done = CliRunner().invoke(app, ["sql", "explain", str(file), "--json"])
    pages, moments = [json.loads(line)["processing"] for line in done.output.splitlines()]

    assert pages.startswith("event by event: visits has fields of other types than")
    assert moments == "event by event: moment is of type timestamp with time zone"


def test_a_file_without_a_query_is_an_error(tmp_path: Path) -> None:
    """The command does not succeed silently, and gives no advice for Python."""
    path = tmp_path / "empty.sql"
    path.write_text("-- nothing yet\n")
    done = CliRunner().invoke(app, ["sql", "explain", str(path)])

    assert isinstance(done.exception, AppFileError)
    assert "declares no processor. Add a query: CREATE TABLE" in str(done.exception)
