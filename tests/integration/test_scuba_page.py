"""The page of Scuba in a real browser."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.browser import Browser
from support.scuba_site import SAVING, START_MS, Hit, hits, new_bus, random_hits, scuba_on, send

import penstock as ps
from penstock.backfill.warehouse import ArchivedFile
from penstock.ops.http import Access, http_server
from penstock.ops.serve.commands.server_options import SCUBA
from penstock.ops.serve.rows.explorer import Explorer
from penstock.ops.serve.rows.queries import PREFIX
from penstock.ops.serve.rows.site import create_site
from penstock.ops.serve.rows.warehouse_tables import WarehouseTables
from penstock.ops.shell import SteeredClock
from penstock.transport import CategorySpec, Outgoing

PICTURES = Path(__file__).parents[2] / "artifacts" / "scuba"
SIZES = {"desktop": (1400, 900), "tablet": (820, 1100), "phone": (400, 844)}
BAD = "<img src=x onerror='document.title=1'>"
Wait = Callable[[Callable[[], bool]], None]
HOUR_MS = 3_600_000
NOW_MS = START_MS + 600_000
EARLIER = [msgspec.structs.replace(hit, at=hit.at - HOUR_MS) for hit in random_hits(1_000, seed=31)]
DAYS = ("2026-09-19", "2026-09-20", "2026-09-21")
COUNTRIES = {"DE": 5, "United States": 9, "SGP": 2, "RUS": 3, "Narnia": 1}


LARGE = 2**60
"""From here on, a browser rounds whole numbers to multiples of 256."""


class Visit(ps.Record, frozen=True):
    """A visit from a place."""

    country: str
    at: ps.EventTime
    latitude: float
    longitude: float
    number: int


visits = ps.Category("visits", Visit, key="country", event_time="at", buckets=1)
VISITS = [
    Visit(country, START_MS + number, 40.0 + number, -80.0 - number, LARGE + number)
    for country, count in COUNTRIES.items()
    for number in range(count)
]
RECORDS = [*random_hits(3_000, seed=30), Hit(BAD, START_MS, 1.0, 0), *EARLIER]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with all records."""
    clock = SteeredClock(START_MS)
    bus = new_bus(clock)
    send(bus, [*RECORDS, b"no JSON"])
    bus.catalog.create(CategorySpec.of(visits))
    for visit in VISITS:
        bus.append(visits.name, Outgoing(b"k", msgspec.json.encode(visit), 0))
    root = tmp_path_factory.mktemp("warehouse")
    for number, day in enumerate(DAYS):
        archive(root, day, (number + 1) * 10)
    with (
        scuba_on(bus, clock, categories=(hits, visits)) as scuba,
        closing(WarehouseTables(root, prefix=PREFIX)) as archived,
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
    ):
        scuba.read()
        clock.advance((NOW_MS - clock.now_ms()) / 1000)
        yield from _served(Explorer([scuba.source, archived], clock=clock), listener)


def archive(root: Path, day: str, count: int) -> None:
    """Write a file of archived hits: one an hour."""
    start_ms = int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)
    times = [start_ms + number % 24 * HOUR_MS for number in range(count)]
    marks = {"_bucket": [0] * count, "_offset": list(range(count)), "_event_time": times, "_arrived": times}
    path = root / ArchivedFile(hits.name, day, 0, 0, -1, 1).path
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"page": [f"/{number % 2}" for number in range(count)], **marks}), path)


def _served(explorer: Explorer, listener: socket.socket) -> Iterator[str]:
    server = http_server(create_site(explorer, Access(SCUBA), SAVING), None)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


def choose(browser: Browser, *choices: str) -> None:
    """Choose values of controls, as the keyboard does, one directly after the other.

    A control that the page has not drawn yet is waited for: the address changes before the controls do.

    Args:
        browser: shows the page.
        choices: a control's label and value, and those of further ones.
    """
    browser.run(
        """
        const choices = arguments[0]
        const limit = performance.now() + 120000
        const frame = () => new Promise((drawn) => setTimeout(drawn, 10))
        const found = (label) => document.querySelector(`[aria-label="${label}"]`)
        return (async () => {
            for (const [label, value] of choices) {
                while (!found(label) && performance.now() < limit) await frame()
                const box = found(label)
                if (!box) throw new Error(`no control "${label}"`)
                box.focus()
                box.value = value
                box.dispatchEvent(new Event('change', { bubbles: true }))
            }
        })()
        """,
        list(zip(choices[::2], choices[1::2], strict=True)),
    )


def rows(browser: Browser, label: str) -> list[list[str]]:
    """Return the cells of a table."""
    found: list[list[str]] = browser.run(
        f"return [...document.querySelectorAll('table[aria-label=\"{label}\"] tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    return found


def test_a_question_is_asked_step_by_step_and_has_an_address(browser: Browser, address: str, wait_until: Wait) -> None:
    """The steps are group, filter and aggregate. Groups, time series and sample rows equal the events, and markup is text."""
    pages = Counter(hit.page for hit in RECORDS)
    browser.show(address)
    wait_until(lambda: rows(browser, "Groups") == [["all", f"{len(RECORDS):,}", ""]])
    choose(browser, "Group by 1", "page")
    wait_until(lambda: len(rows(browser, "Groups")) == 7)

    assert {row[0]: int(row[1].replace(",", "")) for row in rows(browser, "Groups")} == dict(pages.most_common(7))
    assert "7 of " in browser.text(".figures")
    assert browser.run("return document.activeElement.getAttribute('aria-label')") == "Group by 1"
    # Lines are drawn once the browser knows the size of the chart.
    wait_until(lambda: bool(browser.run("return document.querySelectorAll('.series polyline').length >= 7")))

    look_at_all(browser, "groups")
    choose(browser, "Aggregate", "p95")
    wait_until(lambda: "p95(" in browser.text("table[aria-label='Groups'] thead"))
    choose(browser, "Column of the aggregate", "ms")
    wait_until(lambda: "p95(ms)" in browser.text("table[aria-label='Groups'] thead"))
    choose(browser, "Aggregate", "max")
    wait_until(lambda: "max(ms)" in browser.text("table[aria-label='Groups'] thead"))
    top = max(RECORDS, key=lambda hit: hit.ms)
    assert rows(browser, "Groups")[0][:2] == [top.page, f"{top.ms:,.6g}"]

    view = browser.run("return location.href")
    browser.run("document.querySelector('table[aria-label=\"Groups\"] a').click()")
    wait_until(lambda: {row[0] for row in rows(browser, "Newest rows")} == {top.page})
    assert len(rows(browser, "Groups")) == 1
    assert f"{pages[top.page]:,}" in browser.text(".figures")
    newest_ms = max(hit.at for hit in RECORDS if hit.page == top.page)
    assert rows(browser, "Newest rows")[0][1] == f"{datetime.fromtimestamp(newest_ms // 1000, UTC):%Y-%m-%d %H:%M:%S}"
    browser.show("about:blank")
    browser.show(str(view))
    wait_until(lambda: "max(ms)" in browser.text("table[aria-label='Groups'] thead"))
    assert rows(browser, "Groups")[0][0] == top.page
    browser.show(f"{address}#table={hits.name}&c=page&o=contains&v=img")
    wait_until(lambda: BAD in browser.text("table[aria-label='Newest rows']"))

    assert browser.run("return [document.title, document.querySelectorAll('main img').length]") == ["Scuba", 0]
    assert "no JSON" in browser.text("table[aria-label='Rejected events']") or rows(browser, "Rejected events")
    assert browser.complaints() == []


def test_a_range_of_the_chart_leads_to_its_events(browser: Browser, address: str, wait_until: Wait) -> None:
    """The interval depends on the events' own times, although all arrived within seconds. A drag or a link in the table chooses times."""
    browser.show(f"{address}#table={hits.name}")
    wait_until(lambda: rows(browser, "Groups") == [["all", f"{len(RECORDS):,}", ""]])
    assert "count every 1m" in browser.text("main")
    # A chart has no times before the browser knows its size, and draws it.
    wait_until(lambda: bool(browser.run("return document.querySelectorAll('.series polyline').length")))
    browser.run(
        "const chart = document.querySelector('.series svg'), box = chart.getBoundingClientRect();"
        "for (const [name, share] of [['down', 0.95], ['move', 0.97], ['up', 0.98]])"
        "chart.dispatchEvent(new PointerEvent(`pointer${name}`, { bubbles: true, clientX: box.left + share * box.width }))"
    )
    wait_until(lambda: "between" in str(browser.run("return location.hash")))
    # The page draws the form of the new address after it has changed.
    wait_until(lambda: bool(browser.run("return !!document.querySelector('[aria-label=\"To\"]')")))
    begin, end = (
        browser.run(f"return Date.parse(document.querySelector('[aria-label=\"{name}\"]').value + 'Z')")
        for name in ("From", "To")
    )
    inside = sum(begin <= hit.at < end for hit in RECORDS)
    wait_until(lambda: rows(browser, "Groups") == [["all", f"{inside:,}", ""]])
    assert 0 < inside < len(RECORDS) - len(EARLIER)

    first = browser.run(
        "return document.querySelector('table[aria-label=\"Time series\"] tbody tr').cells[2].textContent"
    )
    browser.run("document.querySelector('table[aria-label=\"Time series\"] a').click()")
    wait_until(lambda: rows(browser, "Groups") == [["all", first, ""]])
    assert f"penstock category tail {hits.name} --bucket " in browser.text("code")
    assert browser.complaints() == []


def test_charts_compare_times_and_distributions(browser: Browser, address: str, wait_until: Wait) -> None:
    """Bars, a histogram and the earlier time equal the events. Each view has an address, and files have the same rows."""
    browser.show(f"{address}#table={hits.name}&by=g0&of=ms&last=5m&compare=1h&chart=bars")
    wait_until(lambda: len(rows(browser, "Groups")) == 5)
    recent = Counter(hit.g0 for hit in RECORDS if hit.at >= NOW_MS - 300_000)
    before = Counter(hit.g0 for hit in EARLIER if NOW_MS - 3_900_000 <= hit.at <= NOW_MS - 3_600_000)
    found = rows(browser, "Groups")
    assert {int(row[0]): (int(row[1]), int(row[2])) for row in found} == {g0: (recent[g0], before[g0]) for g0 in recent}
    assert all(row[3].endswith(" %") for row in found)
    assert browser.run("return document.querySelectorAll('.bars li').length") == 5
    look_at_all(browser, "bars")
    choose(browser, "Chart", "")
    wait_until(lambda: bool(browser.run("return document.querySelectorAll('.series polyline.before').length")))
    look_at_all(browser, "compared")
    choose(browser, "Chart", "histogram")
    wait_until(lambda: "Distribution of ms" in browser.text("main"))
    bins = browser.run(
        "return [...document.querySelectorAll('table[aria-label=\"Histogram\"] tbody tr')].map((row) => row.cells[2].textContent)"
    )
    assert sum(int(each.replace(",", "")) for each in bins) == sum(recent.values())
    wait_until(lambda: browser.run("return document.querySelectorAll('.series rect').length") == len(bins))
    look_at_all(browser, "histogram")
    size = browser.run(
        "return fetch('samples?format=csv', {method: 'POST', headers: {'Content-Type': 'application/json'},"
        f" body: JSON.stringify({{table: '{hits.name}', last: '5m', limit: 5000}})}}).then((answer) => answer.text())"
        ".then((text) => text.trim().split('\\n').length)"
    )
    browser.run("[...document.querySelectorAll('.downloads button')].at(-1).click()")

    assert size == sum(recent.values()) + 1
    assert browser.text("#banner") == ""
    assert browser.complaints() == []


def test_a_map_shows_countries_by_codes_and_names(browser: Browser, address: str, wait_until: Wait) -> None:
    """A country without an outline is shown, too. A place can be reached by keyboard, shows its value, and leads to its events."""
    browser.show(f"{address}#table=visits")
    wait_until(lambda: bool(rows(browser, "Groups")))
    choose(browser, "Chart", "map")
    wait_until(lambda: "latitude" in browser.run("return location.hash"))
    choose(browser, "Latitude", "", "Group by 1", "country")
    wait_until(lambda: browser.run("return document.querySelectorAll('.map a').length") == 4)
    labels = browser.run(
        "return [...document.querySelectorAll('.map a')].map((each) => each.getAttribute('aria-label'))"
    )
    shapes = browser.run("return [...document.querySelectorAll('.map a > :first-child')].map((each) => each.tagName)")
    look_at_all(browser, "countries")

    assert sorted(labels) == ["Only Germany: 5", "Only Russia: 3", "Only Singapore: 2", "Only United States: 9"]
    assert sorted(shapes) == ["circle", "path", "path", "path"]
    assert "No country: Narnia" in browser.text("main")
    browser.run("document.querySelector('.map a').focus()")
    assert browser.text(".told") in {label.removeprefix("Only ") for label in labels}
    browser.run("document.activeElement.dispatchEvent(new MouseEvent('click', { bubbles: true }))")
    wait_until(lambda: len(rows(browser, "Newest rows")) < len(VISITS))
    assert browser.complaints() == []


def test_values_of_groups_are_exact(browser: Browser, address: str, wait_until: Wait) -> None:
    """Large ids keep their digits and lead to their own events; years have no separators, and event times are times."""
    browser.show(f"{address}#table=visits&by=number&by=at&chart=bars")
    wait_until(lambda: len(rows(browser, "Groups")) == max(COUNTRIES.values()))
    wanted = Counter((str(visit.number), visit.at) for visit in VISITS)
    texts = {
        (number, f"{datetime.fromtimestamp(at // 1000, UTC):%Y-%m-%d %H:%M:%S}"): count
        for (number, at), count in wanted.items()
    }
    assert {(row[0], row[1]): int(row[2]) for row in rows(browser, "Groups")} == texts
    look_at_all(browser, "ids")
    browser.show(f"{address}#table=visits&by=number&chart=bars")
    numbers = {str(visit.number) for visit in VISITS}
    wait_until(lambda: {len(row) for row in rows(browser, "Groups")} == {3})  # without the column of times
    assert {row[0] for row in rows(browser, "Groups")} == numbers
    last = rows(browser, "Groups")[-1]
    browser.run("[...document.querySelectorAll('table[aria-label=\"Groups\"] a')].at(-1).click()")
    wait_until(lambda: rows(browser, "Groups")[0][0] == "all")

    assert rows(browser, "Groups") == [["all", last[1], ""]]
    assert {row[-6] for row in rows(browser, "Newest rows")} == {last[0]}
    assert browser.complaints() == []


def test_a_map_shows_latitudes_and_longitudes(browser: Browser, address: str, wait_until: Wait) -> None:
    """Each area appears once, and leads to the events in it."""
    browser.show(f"{address}#table=visits&chart=map&latitude=latitude&longitude=longitude")
    wait_until(lambda: bool(browser.run("return document.querySelectorAll('.map circle').length")))
    areas = Counter((visit.latitude // 2, visit.longitude // 2) for visit in VISITS)
    values = browser.run("return [...document.querySelectorAll('.map circle title')].map((each) => each.textContent)")
    look_at_all(browser, "places")

    assert Counter(int(text.rpartition(": ")[2]) for text in values) == Counter(areas.values())
    browser.run("location.hash = document.querySelector('.map a').getAttribute('href')")
    wait_until(lambda: len(rows(browser, "Newest rows")) == max(areas.values()))
    assert browser.complaints() == []


def test_archived_days_are_explored_as_the_newest_events(browser: Browser, address: str, wait_until: Wait) -> None:
    """The page begins with the last day. A longer time range opens the files of its days only, and the query becomes an app."""
    browser.show(address)
    wait_until(lambda: bool(rows(browser, "Groups")))
    choose(browser, "Table", f"warehouse/{hits.name}")
    wait_until(lambda: rows(browser, "Groups") == [["all", "30", ""]])
    assert "1 of 3" in browser.text(".figures")
    choose(browser, "Group by 1", "page")
    choose(browser, "From", f"{DAYS[1]}T00:00")
    wait_until(lambda: "2 of 3" in browser.text(".figures"))
    choose(browser, "Compare with", "1d")
    wait_until(lambda: "3 of 3" in browser.text(".figures"))
    look_at_all(browser, "warehouse")

    assert rows(browser, "Groups") == [
        ["/0", "25", "15", "+67 %", "only this"],
        ["/1", "25", "15", "+67 %", "only this"],
    ]
    assert browser.text("#live") == f"archived up to {DAYS[2]}"
    query = f"{{table: 'warehouse/{hits.name}', group_by: ['page'], every: '1h'}}"
    sql = browser.run(
        "return fetch('app', {method: 'POST', headers: {'Content-Type': 'application/json'},"
        f" body: JSON.stringify({{query: {query}, source: location.href}})}}).then((answer) => answer.json()).then((found) => found.sql)"
    )
    assert "interval '1 hour'" in sql
    assert "-- Source: http://" in sql
    browser.run("[...document.querySelectorAll('.downloads button')].at(-1).click()")
    assert browser.text("#banner") == ""
    assert browser.complaints() == []


def test_a_query_that_the_server_refuses_is_explained(browser: Browser, address: str, wait_until: Wait) -> None:
    """The form stays, so that it can be corrected."""
    browser.show(f"{address}#table={hits.name}&f=avg&of=page")
    wait_until(lambda: "avg needs a column with numbers" in browser.text("#banner"))
    choose(browser, "Column of the aggregate", "ms")
    wait_until(lambda: "avg(ms)" in browser.text("table[aria-label='Groups'] thead"))

    assert browser.text("#banner") == ""
    look_at_all(browser, "plain")


def test_a_condition_waits_for_its_value(browser: Browser, address: str, wait_until: Wait) -> None:
    """Neither a filter of numbers nor the condition of a share changes anything until its value is typed."""
    browser.show(f"{address}#table={hits.name}&c=ms&o=%3E&v=")
    wait_until(lambda: rows(browser, "Groups") == [["all", f"{len(RECORDS):,}", ""]])
    assert browser.text("#banner") == ""
    slow = [hit for hit in RECORDS if hit.ms > 100]
    choose(browser, "Value of filter 1", "100")
    wait_until(lambda: rows(browser, "Groups") == [["all", f"{len(slow):,}", ""]])

    choose(browser, "Aggregate", "share", "Column of the aggregate", "g0")
    wait_until(lambda: rows(browser, "Groups") == [["all", "1", ""]])
    choose(browser, "Operator of the share", ">=")
    wait_until(lambda: bool(browser.run("return document.querySelector('[placeholder=\"not applied yet\"]')")))
    assert rows(browser, "Groups") == [["all", "1", ""]]
    choose(browser, "Value of the share", "2")
    wait_until(lambda: "share(g0 >= 2)" in browser.text("table[aria-label='Groups'] thead"))
    share = sum(hit.g0 >= 2 for hit in slow) / len(slow)

    assert float(rows(browser, "Groups")[0][1]) == pytest.approx(share, abs=1e-6)
    assert browser.text("#banner") == ""
    look_at_all(browser, "share")


def test_an_address_with_an_unknown_table_says_so(browser: Browser, address: str, wait_until: Wait) -> None:
    """The page does not show another table silently."""
    browser.show(f"{address}#table=shop.removed")
    wait_until(lambda: "There is no table shop.removed here" in browser.text("#banner"))

    assert len(rows(browser, "Groups")) == 1


def look_at_all(browser: Browser, name: str) -> None:
    """Take screenshots in all sizes and colour schemes, and expect that no page scrolls sideways."""
    for size, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            browser.look_like(width, height, scheme)
            browser.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            browser.keep_picture(PICTURES / f"{name}-{size}-{scheme}.png")

            assert browser.run("return document.documentElement.scrollWidth - window.innerWidth") <= 0
    browser.look_like(*SIZES["desktop"], "light")
