"""What goes by time, in Spark: in the order of arrival it gives what the stream gave, late events included. This file is the app."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.backfill.archiver import Archiver
from penstock.backfill.compare import Comparison, compare
from penstock.backfill.layout import DAY_MS
from penstock.backfill.plans import Order
from penstock.backfill.session import spark_session
from penstock.backfill.spark import NodeResult, run_backfill
from penstock.backfill.warehouse import LocalWarehouse
from penstock.ops.driver import Driver
from penstock.processors.apps import AppName
from penstock.transport.bus import Bucket

MASTER = "local[2]"
APP = AppName(Path(__file__))
FIRST, LAST = date(2013, 1, 1), date(2013, 1, 6)
START_MS = 15_706 * DAY_MS
HOUR_MS = 3_600_000
PARTS = 12
"""In how many parts the stream comes: orders and payments by turns."""


class Purchase(ps.Record, frozen=True):
    """Somebody orders something."""

    customer: str
    at: ps.EventTime
    number: int


class Payment(ps.Record, frozen=True):
    """Somebody pays."""

    customer: str
    at: ps.EventTime
    cents: int


class Outcome(ps.Record, frozen=True):
    """What a processor has to say of a customer at a time."""

    customer: str
    at: ps.EventTime
    said: str


def told(name: str, record: type[Outcome] = Outcome) -> ps.Category[Any]:
    """Return a category of outcomes."""
    return ps.Category(name, record, key="customer", event_time="at", buckets=2)


orders = ps.Category("orders", Purchase, key="customer", event_time="at", buckets=3)
payments = ps.Category("payments", Payment, key="customer", event_time="at", buckets=3)
late_orders = ps.Category("late_orders", Purchase, key="customer", event_time="at", buckets=3)
lows = ps.Behind(timedelta(hours=2))


class Hourly(ps.Aggregator):
    """Orders by six hours, written at the watermark, and again as late ones come in the hour after; later ones go elsewhere."""

    reads, writes, late = orders, told("hourly"), late_orders
    monoid, window, emit = ps.Count(), ps.Tumbling(timedelta(hours=6)), ps.AtWatermark()
    watermark, allowed_lateness = lows, timedelta(hours=1)

    def result(self, key: str, window: ps.Window, value: int) -> Outcome:
        """Return the count."""
        return Outcome(key, window.start, str(value))


class Visits(ps.Aggregator):
    """Orders without four hours between them."""

    reads, writes, late = orders, told("sprees"), ps.OnLate.DROP
    monoid, window, emit = ps.Count(), ps.Session(timedelta(hours=4)), ps.AtWatermark()
    watermark = lows

    def result(self, key: str, window: ps.Window, value: int) -> Outcome:
        """Return the count."""
        return Outcome(key, window.end, str(value))


class Tale(ps.Stateful):
    """A customer's orders so far, in order of time."""

    reads, writes, state = orders, told("tales"), str
    ordered, watermark = True, lows

    def process(self, event: Purchase, state: str | None, context: ps.Context) -> tuple[str, list[Outcome]]:
        """Add the order."""
        tale = f"{state or ''}{event.number} "[-40:]
        return tale, [Outcome(event.customer, event.at, tale)]


class Silence(ps.Stateful):
    """Says when a customer was silent for six hours, and which orders were late."""

    reads, writes, state = orders, told("silences"), int
    watermark = lows

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[int, list[Outcome]]:
        """Count, and wait."""
        context.timer(event.at + 6 * HOUR_MS)
        return (state or 0) + 1, [Outcome(event.customer, event.at, f"late {event.number}")] if context.late else []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[None, list[Outcome]]:
        """Tell of it."""
        return None, [Outcome(context.key, timer.at, str(state))]


class Paid(ps.Join):
    """Orders and the payments within three hours."""

    left, right, writes = orders, payments, told("paid")
    after, how, watermark = timedelta(hours=3), ps.How.OUTER, lows

    def join(self, left: Purchase | None, right: Payment | None, context: ps.Context) -> Iterable[Outcome]:
        """Return what they are."""
        one = left or right
        assert one is not None
        yield Outcome(one.customer, one.at, f"{left and left.number} {right and right.cents}")


class LastPaid(ps.TableJoin):
    """Orders and the last payment that was known when they came."""

    stream, table, writes = orders, payments, told("known")

    def join(self, event: Purchase, row: Payment | None, context: ps.Context) -> Iterable[Outcome]:
        """Return what was known."""
        yield Outcome(event.customer, event.at, f"{event.number} {row and row.cents}")


def made_up(record: type[Any], count: int, seed: int) -> list[Any]:
    """Return events over six days, one in ten of them up to a day late."""
    dice = random.Random(seed)
    return [
        record(
            f"c{dice.randrange(20)}",
            START_MS + n * 5 * DAY_MS // count + DAY_MS // 2 - dice.choice([0] * 9 + [dice.randrange(DAY_MS // 2)]),
            n,
        )
        for n in range(count)
    ]


@dataclass
class World:
    """A stream that has run, and its archive."""

    folder: Path
    warehouse: LocalWarehouse

    def backfill(self, order: Order | None) -> list[NodeResult]:
        return run_backfill(
            APP,
            self.warehouse,
            first=FIRST,
            last=LAST,
            output=str(self.output(order)),
            master=MASTER,
            order=order,
        )

    def output(self, order: Order | None) -> Path:
        return self.folder / f"batch-{order}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A stream that came by turns, and its archive; in one Spark session."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: nothing of the backfill is tested")
    folder = tmp_path_factory.mktemp("world")
    warehouse = LocalWarehouse(folder / "warehouse")
    driver = Driver(sys.modules[__name__])
    streams: list[tuple[ps.Category[Any], list[Any]]] = [
        (orders, made_up(Purchase, 1200, 1)),
        (payments, made_up(Payment, 600, 2)),
    ]
    for part in range(PARTS):
        for category, events in streams:
            size = len(events) // PARTS
            driver.send(category, events[part * size : (part + 1) * size])
            driver.advance(1.0)
    names = APP.load().categories()
    ends = {
        Bucket(one.name, number): end for one in names for number, end in driver.bus.describe(one.name).ends.items()
    }
    Archiver(driver.bus, names, warehouse, segment_events=300).run(lambda it: it.has_reached(ends))
    with spark_session(MASTER):
        yield World(folder, warehouse)


@pytest.fixture(scope="module")
def by_arrival(world: World) -> dict[str, Comparison]:
    """The comparison of every category with what was run in the order of arrival."""
    results = {result.processor: result for result in world.backfill(None)}
    assert "order of arrival" in results["Hourly"].note
    found = compare(APP, world.warehouse, str(world.output(None)), FIRST, LAST, master=MASTER)
    return {comparison.category: comparison for comparison in found}


@pytest.mark.parametrize("category", ["hourly", "late_orders", "sprees", "tales", "silences", "paid", "known"])
def test_in_order_of_arrival_it_is_the_streams_result(by_arrival: dict[str, Comparison], category: str) -> None:
    """With what was late for the stream, what it left out, and what it had not written yet."""
    comparison = by_arrival[category]

    assert comparison.agrees, comparison
    assert comparison.equal > 20


def test_in_order_of_event_time_nothing_is_late(world: World) -> None:
    """The late rest is what differs, and `compare` names it; of a join in order of time, every pair is there."""
    world.backfill(Order.EVENT_TIME)
    found = {
        one.category: one
        for one in compare(APP, world.warehouse, str(world.output(Order.EVENT_TIME)), FIRST, LAST, master=MASTER)
    }
    pairs = pq.read_table(world.output(Order.EVENT_TIME) / "category=paid").column("said")
    truth = [
        f"{one.number} {other.cents}"
        for one in made_up(Purchase, 1200, 1)
        for other in made_up(Payment, 600, 2)
        if one.customer == other.customer and 0 <= other.at - one.at <= 3 * HOUR_MS
    ]

    assert found["hourly"].different > 0
    assert found["late_orders"].only_stream > 0 == found["late_orders"].only_batch
    assert sorted(pair for pair in map(str, pairs) if "None" not in pair) == sorted(truth)
