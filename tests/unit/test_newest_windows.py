"""Of the windows of a key whose rows replace each other, the row of the newest one stays, as in batch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.testing import Crash, Driver

MINUTE = timedelta(minutes=1)


class Sale(ps.Record, frozen=True):
    """A sale."""

    customer: str
    at: ps.EventTime
    cents: int


class Last(ps.Record, frozen=True):
    """What a customer bought in the last minute with a sale."""

    customer: str
    at: ps.EventTime
    cents: int


sales = ps.Category("sales", Sale, key="customer", event_time="at", buckets=1)
table = ps.sinks.PostgresSink("last_minutes", Last, key="customer")
compacted = ps.Category("last_minutes", Last, key="customer", event_time="at", buckets=1, compacted=True)
log = ps.Category("all_minutes", Last, key="customer", event_time="at", buckets=1)


class PerMinute(ps.Aggregator[Sale, int, Last]):
    """Adds up the sales of each minute."""

    reads, monoid, window = sales, ps.monoids.Sum(), ps.windows.Tumbling(MINUTE)
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(seconds=10))

    def observe(self, event: Sale) -> int:
        """Return the cents."""
        return event.cents

    def result(self, key: str, window: ps.windows.Window, value: int) -> Last:
        """Return the row."""
        return Last(key, window.start, value)


SETTINGS: dict[str, dict[str, Any]] = {
    "at each checkpoint": {},
    "at each checkpoint, until they close": {"late": ps.OnLate.DROP, "allowed_lateness": 10 * MINUTE},
    "at the watermark": {"emit": ps.AtWatermark()},
    "at the watermark, until they close": {
        "emit": ps.AtWatermark(),
        "late": ps.OnLate.DROP,
        "allowed_lateness": 10 * MINUTE,
    },
    "early": {"emit": ps.AtWatermark(early=timedelta(seconds=10))},
}


def driver_of(settings: dict[str, Any], destination: Any) -> Driver:
    """Return a driver whose aggregator has these settings."""
    return Driver(type("Minutes", (PerMinute,), {"name": "minutes", "writes": destination, **settings}))


def written(driver: Driver, destination: Any) -> Sequence[Last]:
    """Return all rows of ann that were written, in order."""
    rows = driver.rows(table) if destination is table else driver.read(destination)
    return [row for row in rows if row.customer == "ann"]


@pytest.mark.parametrize("destination", [table, compacted], ids=["table", "compacted category"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_late_event_does_not_bring_back_the_row_of_an_older_window(
    settings: dict[str, Any], destination: Any
) -> None:
    """Its window is written again, and so is the newest one of its key."""
    driver = driver_of(settings, destination)
    driver.send(sales, [Sale("ann", 30_000, 1), Sale("ann", 65_000, 2)])
    driver.send(sales, [Sale("bob", 200_000, 5), Crash()])
    driver.send(sales, [Sale("ann", 40_000, 4)])
    driver.advance(20)

    assert Last("ann", 0, 5) in written(driver, destination)
    assert written(driver, destination)[-1] == Last("ann", 60_000, 2)


@pytest.mark.parametrize("destination", [table, compacted], ids=["table", "compacted category"])
def test_the_end_of_a_window_does_not_replace_the_early_row_of_a_later_one(destination: Any) -> None:
    """The early row of the later window was there first."""
    driver = driver_of(SETTINGS["early"], destination)
    driver.send(sales, [Sale("ann", 30_000, 1), Sale("ann", 65_000, 2)])
    driver.advance(20)
    assert written(driver, destination)[-1] == Last("ann", 60_000, 2)
    driver.send(sales, [Sale("ann", 35_000, 4), Sale("bob", 75_000, 5)])

    assert Last("ann", 0, 5) in written(driver, destination)
    assert written(driver, destination)[-1] == Last("ann", 60_000, 2)


def test_an_incomplete_window_waits_for_its_end() -> None:
    """An older window that a late event changes does not bring it forward."""
    driver = driver_of(SETTINGS["at the watermark"], table)
    driver.send(sales, [Sale("ann", 30_000, 1), Sale("ann", 80_000, 2)])
    driver.send(sales, [Sale("ann", 40_000, 4)])

    assert written(driver, table) == [Last("ann", 0, 1), Last("ann", 0, 5)]


def test_a_category_of_all_windows_has_no_further_rows() -> None:
    """Each row in it is a change."""
    driver = driver_of({}, log)
    driver.send(sales, [Sale("ann", 30_000, 1), Sale("ann", 65_000, 2)])
    driver.send(sales, [Sale("ann", 40_000, 4)])

    assert written(driver, log) == [Last("ann", 0, 1), Last("ann", 60_000, 2), Last("ann", 0, 5)]
