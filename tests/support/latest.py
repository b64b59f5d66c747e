"""Processors of every kind whose outputs replace the earlier ones of a customer: rows of a table, or records of a compacted category."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa

import penstock as ps
from penstock.backfill.warehouse import DAY_MS

START_MS, HOUR_MS = 15_706 * DAY_MS, 3_600_000
CUSTOMERS, HOURS = 30, 48
SIX_HOURS = timedelta(hours=6)


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


class Row(ps.Record, frozen=True):
    """A processor's latest statement about a customer."""

    customer: str
    at: ps.EventTime
    said: str


class Latest(ps.Record, frozen=True):
    """A processor's latest statement about a customer. Its time is a day, which many records of a customer share."""

    customer: str
    day: ps.EventTime
    said: str


orders = ps.Category("latest.orders", Purchase, key="customer", event_time="at", buckets=2)
payments = ps.Category("latest.payments", Payment, key="customer", event_time="at", buckets=2)


def table(name: str) -> ps.sinks.PostgresSink:
    """Return a table with one row for each customer."""
    return ps.sinks.PostgresSink(name, Row, key="customer", at="TEAM_TABLES")


def compacted(name: str) -> ps.Category[Latest]:
    """Return a category with one record for each customer, in the end."""
    return ps.Category(name, Latest, key="customer", event_time="day", buckets=2, compacted=True)


def latest(event: Purchase) -> Latest:
    """Return what a customer ordered, with the day."""
    return Latest(event.customer, START_MS + (event.at - START_MS) // DAY_MS * DAY_MS, f"order {event.number}")


class OfOne(ps.Stateless):
    """Writes a row for each order."""

    reads, writes = orders, table("of_one")

    def process(self, event: Purchase) -> Iterable[Row]:
        """Return the row."""
        yield Row(event.customer, event.at, f"order {event.number}")


class OfTwo(ps.Stateless):
    """Writes a row for each order and each payment."""

    reads, writes = (orders, payments), table("of_two")

    def process(self, event: Purchase | Payment) -> Iterable[Row]:
        """Return the row."""
        yield Row(event.customer, event.at, f"{type(event).__name__} {event}")


class Numbered(ps.Stateful):
    """Writes the number of a customer's orders, which is its state."""

    reads, writes, state = orders, table("numbered"), int

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[int, list[Row]]:
        """Count."""
        number = (state or 0) + 1
        return number, [Row(event.customer, event.at, str(number))]


class Joined(ps.Join):
    """Writes a row for each pair of an order and a payment."""

    left, right, writes = orders, payments, table("joined")
    after = timedelta(hours=3)

    def join(self, left: Purchase, right: Payment, context: ps.Context) -> Iterable[Row]:
        """Return the row."""
        yield Row(left.customer, left.at, f"{left.number} {right.cents}")


class Gathered(ps.Windowed):
    """Writes the number of a customer's orders in six hours, from the state of the window."""

    reads, writes, state = orders, table("gathered"), int
    window = ps.windows.Tumbling(SIX_HOURS)

    def fold(
        self, event: Purchase, state: int | None, window: ps.windows.Window, context: ps.Context
    ) -> tuple[int, Iterable[Row]]:
        """Count."""
        return (state or 0) + 1, ()

    def complete(self, state: int, window: ps.windows.Window, context: ps.Context) -> Iterable[Row]:
        """Return the row."""
        yield Row(context.key, window.start, str(state))


class CountedByHour(ps.Aggregator):
    """Writes the number of a customer's orders in an hour, whenever it changes."""

    reads, writes = orders, table("by_hour")
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Count()
    window: ClassVar[ps.windows.WindowAssigner] = ps.windows.Tumbling(timedelta(hours=1))

    def result(self, key: str, window: ps.windows.Window, value: Any) -> Row:
        """Return the row."""
        return Row(key, window.start, f"{window.start} {value}")


class ListedByHour(CountedByHour):
    """Writes the last order of an hour, in the order of arrival."""

    writes, monoid = table("listed"), ps.monoids.LastArrived()

    def observe(self, event: Purchase) -> int:
        """Return the number."""
        return event.number


class SummedInColumns(CountedByHour):
    """Writes the sum of the numbers of an hour's orders, computed from columns."""

    writes, monoid = table("summed"), ps.monoids.Sum()

    def observe(self, event: Purchase) -> int:
        """Return the number."""
        return event.number

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any]:
        """Return the numbers."""
        return events.column("number")


class CountedHopping(CountedByHour):
    """Writes the number of orders in overlapping windows."""

    writes, window = table("hopping"), ps.windows.Hopping(SIX_HOURS, timedelta(hours=1))


class CountedComplete(CountedByHour):
    """Writes the number of orders in an hour, when the hour is complete."""

    writes, emit, late = table("complete"), ps.AtWatermark(), ps.OnLate.DROP


class OfOneCompacted(ps.Stateless):
    """Writes each order to a compacted category."""

    reads, writes = orders, compacted("latest.of_one")

    def process(self, event: Purchase) -> Iterable[Latest]:
        """Return the record."""
        yield latest(event)


class CountedCompacted(ps.Aggregator):
    """Writes the number of orders in an hour to a compacted category."""

    reads, writes = orders, compacted("latest.by_hour")
    monoid, window = ps.monoids.Count(), ps.windows.Tumbling(timedelta(hours=1))

    def result(self, key: str, window: ps.windows.Window, value: int) -> Latest:
        """Return the record."""
        day = START_MS + (window.start - START_MS) // DAY_MS * DAY_MS
        return Latest(key, day, f"{window.start} {value}")


def parts() -> Sequence[tuple[list[Purchase], list[Payment]]]:
    """Return orders and payments of each hour, in order of time."""
    return [
        (
            [
                Purchase(f"c{customer}", START_MS + hour * HOUR_MS + customer * 1000 + number, hour * 10 + number)
                for number in range(3)
                for customer in range(CUSTOMERS)
                if (customer + hour) % 5
            ],
            [
                Payment(f"c{customer}", START_MS + hour * HOUR_MS + HOUR_MS // 2 + customer, hour)
                for customer in range(CUSTOMERS)
                if (customer + hour) % 3
            ],
        )
        for hour in range(HOURS)
    ]
