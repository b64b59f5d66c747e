"""The page of Scuba in a real browser."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from support.browser import Browser, chromium
from support.scuba_site import START_MS, Hit, Scuba, hits, new_bus, random_hits, scuba_on, send

from penstock.ops.clock import SteeredClock
from penstock.ops.dashboard.access import Access
from penstock.ops.scuba.site import SCUBA, create_site
from penstock.ops.serving.serving import http_server

PICTURES = Path(__file__).parents[2] / "artifacts" / "scuba"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
BAD = "<img src=x onerror='document.title=1'>"
Wait = Callable[[Callable[[], bool]], None]
RECORDS = [*random_hits(3_000, seed=30), Hit(BAD, START_MS, 1.0, 0)]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium."""
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a server with all records."""
    clock = SteeredClock(START_MS)
    bus = new_bus(clock)
    send(bus, [*RECORDS, b"no JSON"])
    with scuba_on(bus, clock) as scuba, closing(socket.create_server(("127.0.0.1", 0))) as listener:
        scuba.read()
        yield from _served(scuba, listener)


def _served(scuba: Scuba, listener: socket.socket) -> Iterator[str]:
    server = http_server(create_site(scuba.explorer, Access(None, SCUBA)), None)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


def choose(browser: Browser, label: str, value: str) -> None:
    """Choose a value of a control, as the keyboard does."""
    browser.run(
        f"const box = document.querySelector('[aria-label=\"{label}\"]'); box.focus(); box.value = '{value}';"
        "box.dispatchEvent(new Event('change', { bubbles: true }))"
    )


def rows(browser: Browser, label: str) -> list[list[str]]:
    """Return the cells of a table."""
    found: list[list[str]] = browser.run(
        f"return [...document.querySelectorAll('table[aria-label=\"{label}\"] tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    return found


def test_a_question_is_asked_step_by_step_and_has_an_address(browser: Browser, address: str, wait_until: Wait) -> None:
    """Group, filter, aggregate; the groups, their time series and sample rows are those of the events; markup is text."""
    pages = Counter(hit.page for hit in RECORDS)
    browser.show(address)
    wait_until(lambda: rows(browser, "Groups") == [["all", f"{len(RECORDS):,}", ""]])
    choose(browser, "Group by 1", "page")
    wait_until(lambda: len(rows(browser, "Groups")) == 7)

    assert {row[0]: int(row[1].replace(",", "")) for row in rows(browser, "Groups")} == dict(pages.most_common(7))
    assert "7 of " in browser.text(".figures")
    assert browser.run("return document.activeElement.getAttribute('aria-label')") == "Group by 1"
    assert browser.run("return document.querySelectorAll('.series polyline').length") >= 7

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
    assert rows(browser, "Newest rows")[0][1] == f"{max(hit.at for hit in RECORDS if hit.page == top.page):,}"
    browser.show("about:blank")
    browser.show(str(view))
    wait_until(lambda: "max(ms)" in browser.text("table[aria-label='Groups'] thead"))
    assert rows(browser, "Groups")[0][0] == top.page
    browser.show(f"{address}#table={hits.name}&c=page&o=contains&v=img")
    wait_until(lambda: BAD in browser.text("table[aria-label='Newest rows']"))

    assert browser.run("return [document.title, document.querySelectorAll('main img').length]") == ["Scuba", 0]
    assert "no JSON" in browser.text("table[aria-label='Rejected events']") or rows(browser, "Rejected events")
    assert browser.complaints() == []


def test_a_query_that_the_server_refuses_is_explained(browser: Browser, address: str, wait_until: Wait) -> None:
    """The form stays, so that it can be corrected."""
    browser.show("about:blank")
    browser.show(f"{address}#table={hits.name}&f=avg&of=page")
    wait_until(lambda: "avg needs a column with numbers" in browser.text("#banner"))
    choose(browser, "Column of the aggregate", "ms")
    wait_until(lambda: "avg(ms)" in browser.text("table[aria-label='Groups'] thead"))

    assert browser.text("#banner") == ""
    look_at_all(browser, "plain")


def look_at_all(browser: Browser, name: str) -> None:
    """Take screenshots in all sizes and colour schemes, and expect that no page scrolls sideways."""
    for size, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            browser.look_like(width, height, scheme)
            browser.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            browser.keep_picture(PICTURES / f"{name}-{size}-{scheme}.png")

            assert browser.run("return document.documentElement.scrollWidth - window.innerWidth") <= 0
    browser.look_like(*SIZES["desktop"], "light")
