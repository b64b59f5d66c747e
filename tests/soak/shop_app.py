"""An app for the soak test: orders joined to their shipments, enriched, summed in windows, and kept in a ledger.

orders, shipments -Fulfilment-> fulfilled, customers -Enrichment-> enriched -Sales----> sales   (windows, exactly once)
                                                                            -Ledger---> a remote store
orders -Reminders-> reminders (timers, exactly once)      orders -Running-> running (the default row)
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import penstock as ps

DISORDER_MS = 3_000
"""The maximum time between an event and the newest one written before it."""
SHIPPED_WITHIN_MS = 20_000
REMIND_AFTER_MS = 5_000
WINDOW_MS = 10_000
EXACT = ps.Semantics.EXACTLY_ONCE


class Order(ps.Record, frozen=True):
    """A customer's order."""

    order: str
    customer: str
    at: ps.EventTime
    amount: int
    number: int


class Shipment(ps.Record, frozen=True):
    """A parcel of an order."""

    order: str
    at: ps.EventTime
    number: int


class Customer(ps.Record, frozen=True):
    """A customer's region."""

    customer: str
    at: ps.EventTime
    region: str


class Fulfilled(ps.Record, frozen=True):
    """An order with one of its parcels, or with none."""

    customer: str
    at: ps.EventTime
    amount: int
    number: int
    shipment: int | None


class Enriched(ps.Record, frozen=True):
    """An order with its parcel, if any, and its customer's region."""

    region: str
    customer: str
    at: ps.EventTime
    amount: int
    number: int
    shipment: int | None


class Sale(ps.Record, frozen=True):
    """A region's orders in ten seconds."""

    region: str
    at: ps.EventTime
    count: int
    total: int


class Reminder(ps.Record, frozen=True):
    """An answer to an order, a while after it."""

    order: str
    at: ps.EventTime
    number: int


class Balance(ps.Record, frozen=True):
    """An order's running count and sum."""

    order: str
    at: ps.EventTime
    number: int
    count: int
    total: int


orders = ps.Category("orders", Order, key="order", event_time="at", buckets=4)
shipments = ps.Category("shipments", Shipment, key="order", event_time="at", buckets=4)
customers = ps.Category("customers", Customer, key="customer", event_time="at", buckets=4)
fulfilled = ps.Category("fulfilled", Fulfilled, key="customer", event_time="at", buckets=4)
enriched = ps.Category("enriched", Enriched, key="region", event_time="at", buckets=4)
sales = ps.Category("sales", Sale, key="region", event_time="at", buckets=4)
reminders = ps.Category("reminders", Reminder, key="order", event_time="at", buckets=4)
balances = ps.Category("balances", Balance, key="order", event_time="at", buckets=4)

IN_TIME = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=2 * DISORDER_MS))


class Fulfilment(ps.Join):
    """Joins orders to the parcels that left soon after them."""

    left, right, writes = orders, shipments, fulfilled
    before, after = timedelta(), timedelta(milliseconds=SHIPPED_WITHIN_MS)
    join_type = ps.JoinType.LEFT
    output_semantics = EXACT
    watermark = IN_TIME

    def join(self, left: Order, right: Shipment | None, context: ps.Context) -> Iterable[Fulfilled]:
        yield Fulfilled(left.customer, left.at, left.amount, left.number, right.number if right else None)


class Enrichment(ps.TableJoin):
    """Adds the customer's region."""

    stream, table, writes = fulfilled, customers, enriched
    output_semantics = EXACT
    watermark = ps.watermarks.UpstreamWatermark()

    def join(self, event: Fulfilled, row: Customer | None, context: ps.Context) -> Iterable[Enriched]:
        region = row.region if row else "nowhere"
        yield Enriched(region, event.customer, event.at, event.amount, event.number, event.shipment)


class Sales(ps.Aggregator):
    """Counts and sums each region's orders in windows, written once."""

    reads, writes = enriched, sales
    monoid = ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Sum())
    window = ps.windows.Tumbling(timedelta(milliseconds=WINDOW_MS))
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP
    watermark = ps.watermarks.UpstreamWatermark()
    output_semantics = EXACT

    def observe(self, event: Enriched) -> tuple[int, int]:
        return 1, event.amount

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, int]) -> Sale:
        return Sale(key, window.start, *value)


class Ledger(ps.Aggregator):
    """Keeps the sums of each region in a remote store for queries."""

    reads = enriched
    monoid = ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Sum())
    window = ps.windows.Tumbling(timedelta(hours=1))
    store = ps.RemoteStore()

    def observe(self, event: Enriched) -> tuple[int, int]:
        return 1, event.amount


class Reminders(ps.Stateful):
    """Answers each order when its timer fires."""

    reads, writes, state = orders, reminders, int
    output_semantics = EXACT
    watermark = IN_TIME

    def process(self, event: Order, state: int | None, context: ps.Context) -> tuple[int, list[Reminder]]:
        context.timer(event.at + REMIND_AFTER_MS, str(event.number))
        return (state or 0) + 1, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[int, list[Reminder]]:
        return state, [Reminder(context.key, timer.at, int(timer.tag))]


class Running(ps.Stateful):
    """Counts and sums each order's events; outputs may repeat."""

    reads, writes, state = orders, balances, tuple[int, int]

    def process(
        self, event: Order, state: tuple[int, int] | None, context: ps.Context
    ) -> tuple[tuple[int, int], list[Balance]]:
        count, total = state or (0, 0)
        after = (count + 1, total + event.amount)
        return after, [Balance(event.order, event.at, event.number, *after)]
