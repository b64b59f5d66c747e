"""A shop's stream, out of order, and processors of every kind with event time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any

import penstock as ps
from penstock.backfill.warehouse import DAY_MS

FIRST, LAST = date(2013, 1, 1), date(2013, 1, 6)
START_MS = 15_706 * DAY_MS
HOUR_MS = 3_600_000
PARTS = 6
"""The number of parts of the stream; orders and payments alternate."""


class Purchase(ps.Record, frozen=True):
    """An order."""

    customer: str
    at: ps.EventTime
    number: int


class Payment(ps.Record, frozen=True):
    """A payment."""

    customer: str
    at: ps.EventTime
    cents: int


class Outcome(ps.Record, frozen=True):
    """A processor's output about a customer at a time."""

    customer: str
    at: ps.EventTime
    said: str


def output_category(name: str, record: type[Outcome] = Outcome) -> ps.Category[Any]:
    """Return a category of outcomes."""
    return ps.Category(name, record, key="customer", event_time="at", buckets=2)


orders = ps.Category("orders", Purchase, key="customer", event_time="at", buckets=3)
payments = ps.Category("payments", Payment, key="customer", event_time="at", buckets=3)
late_orders = ps.Category("late_orders", Purchase, key="customer", event_time="at", buckets=3)
lows = ps.watermarks.BoundedOutOfOrderness(timedelta(hours=2))


class Hourly(ps.Aggregator):
    """Counts orders by six hours at the watermark, again for late events within an hour; later events go to the late category."""

    reads, writes, late = orders, output_category("hourly"), late_orders
    monoid, window, emit = ps.monoids.Count(), ps.windows.Tumbling(timedelta(hours=6)), ps.AtWatermark()
    watermark, allowed_lateness = lows, timedelta(hours=1)

    def result(self, key: str, window: ps.windows.Window, value: int) -> Outcome:
        """Return the count."""
        return Outcome(key, window.start, str(value))


class Visits(ps.Aggregator):
    """Counts orders in sessions with a gap of four hours."""

    reads, writes, late = orders, output_category("sprees"), ps.OnLate.DROP
    monoid, window, emit = ps.monoids.Count(), ps.windows.Session(timedelta(hours=4)), ps.AtWatermark()
    watermark = lows

    def result(self, key: str, window: ps.windows.Window, value: int) -> Outcome:
        """Return the count."""
        return Outcome(key, window.end, str(value))


class Tale(ps.Stateful):
    """Collects a customer's orders in order of event time."""

    reads, writes, state = orders, output_category("tales"), str
    ordered, watermark = True, lows

    def process(self, event: Purchase, state: str | None, context: ps.Context) -> tuple[str, list[Outcome]]:
        """Add the order."""
        tale = f"{state or ''}{event.number} "[-40:]
        return tale, [Outcome(event.customer, event.at, tale)]


class Silence(ps.Stateful):
    """Writes when a customer has paused for six hours, and which orders were late."""

    reads, writes, state = orders, output_category("silences"), int
    watermark = lows

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[int, list[Outcome]]:
        """Count, and set a timer."""
        context.timer(event.at + 6 * HOUR_MS)
        return (state or 0) + 1, [Outcome(event.customer, event.at, f"late {event.number}")] if context.late else []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[None, list[Outcome]]:
        """Write the pause."""
        return None, [Outcome(context.key, timer.at, str(state))]


class Paid(ps.Join):
    """Joins orders with payments within three hours."""

    left, right, writes = orders, payments, output_category("paid")
    after, join_type, watermark = timedelta(hours=3), ps.JoinType.OUTER, lows

    def join(self, left: Purchase | None, right: Payment | None, context: ps.Context) -> Iterable[Outcome]:
        """Return a description of the match."""
        one = left or right
        assert one is not None
        yield Outcome(one.customer, one.at, f"{left and left.number} {right and right.cents}")


class LastPaid(ps.TableJoin):
    """Joins each order with the latest payment at its arrival."""

    stream, table, writes = orders, payments, output_category("known")

    def join(self, event: Purchase, row: Payment | None, context: ps.Context) -> Iterable[Outcome]:
        """Return the order and the payment."""
        yield Outcome(event.customer, event.at, f"{event.number} {row and row.cents}")


def random_events(record: type[Any], count: int, seed: int) -> list[Any]:
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


class Numbered(ps.Stateful):
    """Numbers a customer's orders in order of arrival."""

    reads, writes, state = orders, output_category("numbered"), int

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[int, list[Outcome]]:
        """Count."""
        number = (state or 0) + 1
        return number, [Outcome(event.customer, event.at, f"{event.number} is {number}")]


class Counted(ps.Aggregator):
    """Counts orders by day, and writes each change."""

    reads, writes = orders, output_category("counted")
    monoid, window = ps.monoids.Count(), ps.windows.Tumbling(timedelta(days=1))

    def result(self, key: str, window: ps.windows.Window, value: int) -> Outcome:
        """Return the count."""
        return Outcome(key, window.start, str(value))


class Baskets(ps.Windowed):
    """Collects the orders of six hours."""

    reads, writes, state = orders, output_category("baskets"), tuple[int, ...]
    window, watermark, allowed_lateness = ps.windows.Tumbling(timedelta(hours=6)), lows, timedelta(hours=1)

    def fold(
        self, event: Purchase, state: tuple[int, ...] | None, window: ps.windows.Window, context: ps.Context
    ) -> tuple[tuple[int, ...], Iterable[Outcome]]:
        """Add the order."""
        return (*(state or ()), event.number), ()

    def complete(self, state: tuple[int, ...], window: ps.windows.Window, context: ps.Context) -> Iterable[Outcome]:
        """Write the orders."""
        yield Outcome(context.key, window.start, str(state))


def stream_parts() -> Iterator[list[tuple[ps.Category[Any], list[Any]]]]:
    """Yield the parts of the stream: orders, then payments of each."""
    streams: list[tuple[ps.Category[Any], list[Any]]] = [
        (orders, random_events(Purchase, 1200, 1)),
        (payments, random_events(Payment, 600, 2)),
    ]
    for part in range(PARTS):
        yield [
            (category, events[part * (size := len(events) // PARTS) : (part + 1) * size])
            for category, events in streams
        ]
