"""Compacted inputs: accepted for processors that need only the latest event of each key, refused for all others."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from support.disks import Disk, copy_of, restart

import penstock as ps
from penstock.ops.kernel import Driver, prepare
from penstock.transport import CategorySpec, CompactedInput
from penstock.transport.memory import MemoryBus


class Price(ps.Record, frozen=True):
    """A new price of an item."""

    item: str
    at: ps.EventTime
    cents: int


class Sale(ps.Record, frozen=True):
    """A sale of an item."""

    item: str
    at: ps.EventTime


class Sold(ps.Record, frozen=True):
    """A sale with the price."""

    item: str
    at: ps.EventTime
    cents: int


prices = ps.Category("prices", Price, key="item", event_time="at", buckets=1)
sales = ps.Category("sales", Sale, key="item", event_time="at", buckets=1)
sold = ps.Category("sold", Sold, key="item", event_time="at", buckets=1)

EXACT, MOST = ps.Semantics.EXACTLY_ONCE, ps.Semantics.AT_MOST_ONCE


class Highest(ps.Stateful):
    """Stores the highest price so far."""

    reads, writes, state = prices, sold, int

    def process(self, event: Price, state: int | None, context: ps.Context) -> tuple[int, Iterable[Sold]]:
        after = max(event.cents, state or 0)
        return after, [Sold(event.item, event.at, after)]


class Counted(ps.Aggregator):
    """Counts prices."""

    reads, monoid = prices, ps.monoids.Count()


class Latest(Highest):
    """Stores the latest price."""

    compaction_safe = True

    def process(self, event: Price, state: int | None, context: ps.Context) -> tuple[int, Iterable[Sold]]:
        return event.cents, [Sold(event.item, event.at, event.cents)]


class Priced(ps.TableJoin):
    """Joins sales with the latest price."""

    stream, table, writes = sales, prices, sold

    def join(self, event: Sale, row: Price | None, context: ps.Context) -> Iterable[Sold]:
        yield Sold(event.item, event.at, row.cents if row else 0)


class PricedThen(Priced):
    """Joins sales with the price at their event time."""

    ordered = True


class Changes(ps.Stateless):
    """Passes prices on."""

    reads, writes = prices, sold

    def process(self, event: Price) -> Iterable[Sold]:
        yield Sold(event.item, event.at, event.cents)


class Windows(Counted):
    """Counts the prices of each hour."""

    window: ClassVar[ps.windows.WindowAssigner] = ps.windows.Tumbling(timedelta(hours=1))


def declared(base: type[ps.Processor], **attributes: Any) -> type[ps.Processor]:
    """Return a processor with other attributes."""
    return type(base.__name__, (base,), attributes)


REFUSED = [
    Highest,
    Counted,
    Windows,
    PricedThen,
    declared(Highest, output_semantics=EXACT),
    declared(Highest, output_semantics=MOST),
]
TAKEN = [
    Changes,
    Latest,
    Priced,
    declared(Highest, state_semantics=MOST, output_semantics=MOST),
    declared(Highest, output_semantics=EXACT, deterministic=False),
    declared(Highest, output_semantics=MOST, deterministic=False),
    declared(PricedThen, output_semantics=EXACT),
    declared(Counted, store=ps.RemoteStore()),
]


@pytest.fixture
def bus() -> MemoryBus:
    """A bus whose prices are compacted."""
    bus = MemoryBus()
    bus.create(CategorySpec("prices", 1, compacted=True))
    bus.create(CategorySpec("sales", 1))
    bus.create(CategorySpec("sold", 1))
    return bus


@pytest.mark.parametrize("processor", REFUSED)
def test_a_state_that_cannot_be_rebuilt_is_refused_before_the_first_event(
    processor: type[ps.Processor], bus: MemoryBus
) -> None:
    """The error lists alternatives; the same processor starts on an input that is not compacted."""
    with pytest.raises(CompactedInput, match=r"prices is compacted.*compaction_safe = True"):
        prepare(processor, bus)
    bus.delete("prices")
    bus.create(CategorySpec("prices", 1))

    with closing(prepare(processor, bus)) as opened:
        assert isinstance(opened, processor)


@pytest.mark.parametrize("processor", TAKEN)
def test_a_processor_that_needs_no_compacted_events_starts(processor: type[ps.Processor], bus: MemoryBus) -> None:
    """It is stateless, has a changelog or a remote store, is at most once, reads a table, or accepts compaction explicitly."""
    with closing(prepare(processor, bus)) as opened:
        assert isinstance(opened, processor)


def compacted(driver: Driver) -> None:
    """Mark the prices as compacted, before any compaction."""
    driver.bus.cluster.topics["prices"].spec = CategorySpec("prices", 1, compacted=True)


@pytest.mark.parametrize("disk", [Disk.OLDER, Disk.NONE])
def test_a_category_that_became_compacted_is_not_silently_read_again(disk: Disk) -> None:
    """A worker with its state continues; a lost or older state is not rebuilt from the input."""
    driver = Driver(Highest)
    driver.send(prices, [Price("a", 1, 5)])
    older = copy_of(driver, Highest)
    driver.send(prices, [Price("a", 2, 9)])
    compacted(driver)
    restart(driver, Highest, Disk.SAME, older)

    with pytest.raises(CompactedInput, match=r"offset \d to 2 of prices/0.*--from-earliest"):
        restart(driver, Highest, disk, older)


@pytest.mark.parametrize("disk", [Disk.OLDER, Disk.NONE])
def test_rebuilding_from_a_compacted_input_is_logged(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the events that may be missing: old deletions."""
    driver = Driver(Latest)
    driver.send(prices, [Price("a", 1, 5)])
    older = copy_of(driver, Latest)
    driver.send(prices, [Price("a", 2, 3)])
    compacted(driver)
    restart(driver, Latest, disk, older)
    driver.send(prices, [Price("a", 3, 4)])

    assert [one.cents for one in driver.read(sold)] == [5, 3, 4]
    assert sum("delete.retention.ms" in record.message for record in caplog.records) == 1
