"""Explorations in Scuba become apps in SQL with the same answers."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from typer.testing import CliRunner

from penstock.ops.serve.rows.from_query import UnreadableQuery
from penstock.ops.shell.command_line.main import app
from penstock.testing import Driver, load_app

SHOP = """
import penstock as ps


class Device(ps.Record, frozen=True):
    os: str
    cores: int


class View(ps.Record, frozen=True):
    page: str
    at: ps.EventTime
    ms: float
    device: Device
    order: str | None = None
    tags: list[str] = []


views = ps.Category("views", View, key="page", event_time="at", buckets=2)


class Any_(ps.Stateless):
    reads, writes = views, ps.Category("slow", View, key="page", event_time="at", buckets=2)

    def process(self, event: View) -> list[View]:
        return []
"""
VIEWS: list[dict[str, Any]] = [
    {
        "page": f"/{number % 3}",
        "at": number * 7_000,
        "ms": number % 40 / 2,
        "device": {"os": "ab"[number % 2], "cores": number % 5},
        "order": [None, "it's", "b"][number % 3],
    }
    for number in range(60)
]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(SHOP)
    return file


def answers(shop: Path, query: str) -> list[dict[str, Any]]:
    """Return the rows that the app of a query writes for all views."""
    done = CliRunner().invoke(app, ["sql", "from-query", query, "--app", str(shop), "--name", "found"])
    if done.exception is not None:
        raise done.exception
    file = shop.with_name("found.sql")
    file.write_text(done.output)
    loaded = load_app(file)
    categories = {category.name: category for category in loaded.categories()}
    driver = Driver(loaded.processors)
    driver.send(categories["views"], [json.dumps(view).encode() for view in VIEWS])
    last = {}
    for record in driver.read(categories["found"]):
        row = {name: getattr(record, name) for name in record.__struct_fields__}
        last[tuple(value for name, value in row.items() if name in {"window_start", "page", "device_os", "order"})] = (
            row
        )
    return list(last.values())


def test_the_address_of_the_page_becomes_an_app(shop: Path) -> None:
    """The app has the groups, nested fields, filters and the interval. Its rows equal a recount."""
    parts = [("table", "views"), ("f", "avg"), ("of", "ms"), ("by", "device.os"), ("every", "1m"), ("last", "1h")]
    parts += [("c", "ms"), ("o", ">="), ("v", "2.5"), ("c", "page"), ("o", "in"), ("v", "/0, /1")]
    found = answers(shop, f"http://localhost:8094/#{urlencode(parts)}")

    slots = defaultdict[tuple[int, str], list[float]](list)
    for view in VIEWS:
        if view["ms"] >= 2.5 and view["page"] in {"/0", "/1"}:
            slots[view["at"] // 60_000 * 60_000, view["device"]["os"]].append(view["ms"])
    assert {(row["window_start"], row["device_os"]): round(row["avg_ms"], 9) for row in found} == {
        slot: round(sum(values) / len(values), 9) for slot, values in slots.items()
    }


def test_a_share_becomes_an_average(shop: Path) -> None:
    """It is the average of the events for which the condition holds."""
    parts = [("table", "views"), ("f", "share"), ("of", "ms"), ("is", ">="), ("than", "2.5"), ("by", "page")]
    found = answers(shop, f"http://localhost:8094/#{urlencode([*parts, ('every', '1d')])}")

    pages = defaultdict[str, list[bool]](list)
    for view in VIEWS:
        pages[view["page"]].append(view["ms"] >= 2.5)
    assert {row["page"]: row["share_ms_2_5"] for row in found} == {
        page: pytest.approx(sum(held) / len(held)) for page, held in pages.items()
    }


def test_json_of_a_query_becomes_an_app(shop: Path) -> None:
    """The query has several aggregates, and texts with quotes. Without an interval, windows have a minute."""
    query = {
        "table": "views",
        "aggregates": [{"function": "count"}, {"function": "max", "column": "device.cores"}],
        "group_by": ["order"],
        "filters": [
            {"column": "order", "op": "contains", "value": "'"},
            {"column": "device.cores", "op": "!=", "value": 4},
        ],
    }
    found = answers(shop, json.dumps(query))

    chosen = [view for view in VIEWS if view["order"] == "it's" and view["device"]["cores"] != 4]
    assert {row["order"] for row in found} == {"it's"}
    assert sum(row["count"] for row in found) == len(chosen) > 3
    assert max(row["max_device_cores"] for row in found) == 3


def test_groups_other_than_the_key_have_two_phases(shop: Path) -> None:
    """A page shows few groups, so their events are combined in the buckets of the category."""
    printed = [
        CliRunner().invoke(app, ["sql", "from-query", f"#table=views&by={by}", "--app", str(shop)]).output
        for by in ("order", "page")
    ]

    assert ["two_phase = true" in text for text in printed] == [True, False]


@pytest.mark.parametrize(("every", "written"), [("1m", "1 minute"), ("90s", "90 seconds"), ("2d", "2 days")])
def test_an_interval_is_written_as_people_write_it(shop: Path, every: str, written: str) -> None:
    """It is in the largest unit that divides it."""
    done = CliRunner().invoke(app, ["sql", "from-query", f"#table=views&by=page&every={every}", "--app", str(shop)])

    assert f"interval '{written}'" in done.output


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("http://localhost:8094/", "names no table"),
        ("#table=vews", "Did you mean `views`?"),
        ("#table=views&by=pag", "Did you mean `page`?"),
        ("#table=views&by=tags", "Column tags is a list"),
        ("#table=views&time=arrival", "windows are over the event time"),
        ("#table=views&chart=histogram&of=ms", "Switch the page to a time series"),
        ("#table=views&f=p42", "is damaged"),
        ("#table=views&c=ms&o=>&v=x", "'x' is none"),
        ('{"tables": "views"}', "no JSON of POST /query"),
    ],
)
def test_what_cannot_become_an_app_is_refused(shop: Path, query: str, reason: str) -> None:
    """The error contains the reason, and what to change."""
    with pytest.raises(UnreadableQuery, match=reason.replace("?", r"\?")):
        answers(shop, query)
