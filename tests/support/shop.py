"""A shop's stream, out of order, and processors of every kind over it that go by time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any

import penstock as ps
from penstock.backfill.warehouse.layout import DAY_MS

FIRST, LAST = date(2013, 1, 1), date(2013, 1, 6)
START_MS = 15_706 * DAY_MS
HOUR_MS = 3_600_000
PARTS = 6
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
lows = ps.watermarks.BoundedOutOfOrderness(timedelta(hours=2))


class Hourly(ps.Aggregator):
    """Orders by six hours, written at the watermark, and again as late ones come in the hour after; later ones go elsewhere."""

    reads, writes, late = orders, told("hourly"), late_orders
    monoid, window, emit = ps.monoids.Count(), ps.windows.Tumbling(timedelta(hours=6)), ps.AtWatermark()
    watermark, allowed_lateness = lows, timedelta(hours=1)

    def result(self, key: str, window: ps.windows.Window, value: int) -> Outcome:
        """Return the count."""
        return Outcome(key, window.start, str(value))


class Visits(ps.Aggregator):
    """Orders without four hours between them."""

    reads, writes, late = orders, told("sprees"), ps.OnLate.DROP
    monoid, window, emit = ps.monoids.Count(), ps.windows.Session(timedelta(hours=4)), ps.AtWatermark()
    watermark = lows

    def result(self, key: str, window: ps.windows.Window, value: int) -> Outcome:
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
    after, join_type, watermark = timedelta(hours=3), ps.JoinType.OUTER, lows

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


class Numbered(ps.Stateful):
    """Numbers a customer's orders as they come."""

    reads, writes, state = orders, told("numbered"), int

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[int, list[Outcome]]:
        """Count."""
        number = (state or 0) + 1
        return number, [Outcome(event.customer, event.at, f"{event.number} is {number}")]


class Counted(ps.Aggregator):
    """Orders by day, written as they change."""

    reads, writes = orders, told("counted")
    monoid, window = ps.monoids.Count(), ps.windows.Tumbling(timedelta(days=1))

    def result(self, key: str, window: ps.windows.Window, value: int) -> Outcome:
        """Return the count."""
        return Outcome(key, window.start, str(value))


class Baskets(ps.Windowed):
    """The orders of six hours."""

    reads, writes, state = orders, told("baskets"), tuple[int, ...]
    window, watermark, allowed_lateness = ps.windows.Tumbling(timedelta(hours=6)), lows, timedelta(hours=1)

    def fold(
        self, event: Purchase, state: tuple[int, ...] | None, window: ps.windows.Window, context: ps.Context
    ) -> tuple[tuple[int, ...], Iterable[Outcome]]:
        """Add the order."""
        return (*(state or ()), event.number), ()

    def complete(self, state: tuple[int, ...], window: ps.windows.Window, context: ps.Context) -> Iterable[Outcome]:
        """Tell of all."""
        yield Outcome(context.key, window.start, str(state))


def parts() -> Iterator[list[tuple[ps.Category[Any], list[Any]]]]:
    """Give the stream in its parts: orders, then payments, of each."""
    streams: list[tuple[ps.Category[Any], list[Any]]] = [
        (orders, made_up(Purchase, 1200, 1)),
        (payments, made_up(Payment, 600, 2)),
    ]
    for part in range(PARTS):
        yield [
            (category, events[part * (size := len(events) // PARTS) : (part + 1) * size])
            for category, events in streams
        ]
