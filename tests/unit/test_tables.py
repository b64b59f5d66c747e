"""Table joins: each event with the row of its key, by arrival or by event time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.processors import DeclarationError
from penstock.processors.declare import plan_of
from penstock.processors.operators import open_operator
from penstock.state import MemoryShardState
from penstock.transport import Outgoing

BOUND = 20


class Price(ps.Record, frozen=True):
    """The price of an item from now on."""

    item: str
    at: ps.EventTime
    cents: int


class Sale(ps.Record, frozen=True):
    """An item is sold."""

    item: str
    at: ps.EventTime
    pieces: int


class Sold(ps.Record, frozen=True):
    """A sale with its price, or None without a known price."""

    item: str
    at: ps.EventTime
    pieces: int
    cents: int | None


prices = ps.Category("prices", Price, key="item", event_time="at", buckets=1)
sales = ps.Category("sales", Sale, key="item", event_time="at", buckets=1)
sold = ps.Category("sold", Sold, key="item", event_time="at", buckets=1)


class Latest(ps.TableJoin):
    """Joins the price that arrived last."""

    stream, table, writes = sales, prices, sold

    def join(self, event: Sale, row: Price | None, context: ps.Context) -> Iterable[Sold]:
        yield Sold(event.item, event.at, event.pieces, row.cents if row else None)


class AsOf(Latest):
    """Joins the price at the time of the sale."""

    ordered = True
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=BOUND))


def test_an_event_joins_the_latest_row_of_its_key() -> None:
    """Event times do not matter."""
    driver = Driver(Latest)
    driver.send(sales, [Sale("tea", 5, 1)])
    driver.send(prices, [Price("tea", 10, 300), Price("jam", 10, 200), Price("tea", 11, 310)])
    driver.send(sales, [Sale("tea", 6, 2), Sale("jam", 20, 3)])

    assert driver.read(sold) == [Sold("tea", 5, 1, None), Sold("tea", 6, 2, 310), Sold("jam", 20, 3, 200)]


def keyed_by_a_function(record: Price | Sale) -> str:
    return record.item


class ByFunction(Latest):
    """Joins Avro categories with key functions."""

    stream = ps.Category("sales", Sale, key=keyed_by_a_function, event_time="at", buckets=1, codec="avro")
    table = ps.Category("prices", Price, key=keyed_by_a_function, event_time="at", buckets=1, codec="avro")


@pytest.mark.parametrize("join", [Latest, ByFunction])
def test_a_message_without_a_value_deletes_the_row(join: type[Latest]) -> None:
    """A restart does not bring it back. A later record is a row again, and no message becomes a dead letter."""
    driver = Driver(join)
    driver.send(join.table, [Price("tea", 1, 300), Price("jam", 1, 200)])
    driver.bus.append("prices", Outgoing(b"tea", None))
    driver.send(join.stream, [Sale("tea", 2, 1), Sale("jam", 2, 1), Crash()])
    driver.send(join.stream, [Sale("tea", 3, 1)])
    driver.send(join.table, [Price("tea", 4, 310)])
    driver.send(join.stream, [Sale("tea", 5, 1)])

    assert [one.cents for one in driver.read(sold)] == [None, 200, None, 310]
    assert driver.dead_letters(join) == []


def test_a_deletion_takes_effect_at_its_arrival_time() -> None:
    """In an ordered join, earlier events still find the row."""
    driver = Driver(AsOf, start_ms=1_000_000)
    driver.send(prices, [Price("tea", 999_000, 300)])
    driver.bus.append("prices", Outgoing(b"tea", None))
    driver.send(sales, [Sale("tea", 999_999, 1), Sale("tea", 1_000_000, 2), Crash(), Sale("tea", 1_000_001, 3)])
    driver.advance(0.1)
    driver.send(prices, [Price("end", 1_000_100, 1)])
    driver.send(sales, [Sale("end", 1_000_100, 1)])

    assert [one.cents for one in driver.read(sold)] == [300, None, None]


def test_a_message_without_a_value_in_the_stream_becomes_a_dead_letter() -> None:
    """A deletion without a key in the table does, too."""
    driver = Driver(Latest)
    driver.bus.append("sales", Outgoing(b"tea", None))
    driver.bus.append("prices", Outgoing(None, None))
    driver.run()

    assert [letter.category for letter in driver.dead_letters(Latest)] == ["prices", "sales"]


TIMES = st.integers(0, 100)
EVENTS = st.lists(
    st.one_of(
        st.builds(Price, st.sampled_from(["tea", "jam"]), TIMES, st.integers(1, 9)),
        st.builds(Sale, st.sampled_from(["tea", "jam"]), TIMES, st.integers(1, 9)),
    ),
    max_size=30,
    unique_by=lambda event: (type(event), event.at),
)


def sold_as_of(arrived: Sequence[Price | Sale]) -> list[Sold]:
    """Return a shard's outputs for events in order of arrival, and for a last event of each category."""
    operator, found = open_operator(AsOf(), MemoryShardState()), list[Sold]()
    for event in [*arrived, Price("end", 10_000, 1), Sale("end", 10_000, 1)]:
        category: Any = prices if isinstance(event, Price) else sales
        found += operator.feed(category, [event], stop_at_error=True).outputs
    return found


@given(events=EVENTS, data=st.data())
def test_an_ordered_join_uses_the_price_at_the_time_of_the_sale(
    events: list[Price | Sale], data: st.DataObject
) -> None:
    """Arrival may be in any order. A price of the same millisecond counts."""
    delays = data.draw(st.lists(st.integers(0, BOUND), min_size=len(events), max_size=len(events)))
    delayed = [event for event, _ in sorted(zip(events, delays, strict=True), key=lambda held: held[0].at + held[1])]

    truth = []
    for sale in sorted((event for event in events if isinstance(event, Sale)), key=lambda sale: sale.at):
        known = [one for one in events if isinstance(one, Price) and one.item == sale.item and one.at <= sale.at]
        cents = max(known, key=lambda price: price.at).cents if known else None
        truth.append(Sold(sale.item, sale.at, sale.pieces, cents))
    assert sold_as_of(delayed) == truth


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"table": sales}, "the same record type"),
        (
            {"table": ps.Category("others", Price, key="item", event_time="at", buckets=2)},
            "add a penstock.Repartition",
        ),
    ],
)
def test_tables_that_cannot_be_joined_are_refused(attributes: dict[str, Any], message: str) -> None:
    """The error explains what to change."""
    wrong: type[ps.TableJoin] = type("Wrong", (Latest,), attributes)

    with pytest.raises(DeclarationError, match=message):
        plan_of(wrong).check()
