"""Batch output on the bus: each record once, however often the sender dies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support.batches import write_batch

import penstock as ps
from penstock.backfill import BackfillFailed, BackfillRefused
from penstock.backfill.outputs import must_compute, send_batch, stored_batch
from penstock.backfill.outputs.bus_output import SentCategory
from penstock.backfill.warehouse import DAY_MS, Days, Warehouse, open_warehouse
from penstock.processors.declare import bucket_of
from penstock.transport import Aborted, Bucket, Bus, CategorySpec, OffsetRange, Position, read_offset_range
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus

START_MS = 15_706 * DAY_MS
DAYS = Days(date(2013, 1, 1), date(2013, 1, 2))
LATER = Days(date(2013, 1, 3), date(2013, 1, 3))


class Killed(Exception):
    """The process died."""


class Total(ps.Record, frozen=True):
    """An output record."""

    meter: str
    at: ps.EventTime
    litres: int


def totals(count: int, first_day: int = 0) -> list[Total]:
    """Return totals of two days, some of them out of order."""
    return [Total(f"m{n % 5}", START_MS + first_day * DAY_MS + (n * 7_919_000) % (2 * DAY_MS), n) for n in range(count)]


class Dying:
    """A bus whose user dies at one of its transactions, before or after the commit."""

    def __init__(self, bus: Bus, at: int, *, after: bool) -> None:
        self._bus, self._left, self._after = bus, at, after
        self._writer: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    def transactional_writer(self, *how: Any) -> Any:
        """Return a writer that dies."""
        self._writer = self._bus.transactional_writer(*how)
        self.send, self.flush, self.close = self._writer.send, self._writer.flush, self._writer.close
        return self

    def commit(self, positions: Sequence[Position]) -> None:
        """Commit, or die."""
        self._left -= 1
        if self._left < 0 and not self._after:
            raise Killed
        self._writer.commit(positions)
        if self._left < 0:
            raise Killed


class World:
    """A category on a bus, and the folder of a batch run."""

    def __init__(self, bus: Bus, name: str, folder: Path) -> None:
        self.bus, self.folder = bus, folder
        self.category = ps.Category(
            name, Total, key="meter", event_time="at", buckets=3, codec="avro", partitioner=ps.Partitioner.CONSISTENT
        )
        bus.catalog.create(CategorySpec.of(self.category))

    def write(self, records: list[Total], folder: str = "batch") -> Warehouse:
        """Write a batch to files."""
        write_batch(self.folder / folder, self.category, records)
        return open_warehouse(self.folder / folder)

    def send(self, batch: Warehouse, days: Days = DAYS, bus: Any = None) -> SentCategory:
        """Send the batch."""
        return send_batch(bus or self.bus, batch, self.category, days, lambda *_: None)

    def on_bus(self) -> dict[int, list[Total]]:
        """Return the committed records, by bucket."""
        found = self.bus.catalog.describe(self.category.name)
        codec = Codecs(self.bus).of(self.category)
        return {
            number: [
                event
                for batch in read_offset_range(self.bus, OffsetRange(Bucket(self.category.name, number), 0, end))
                for event in codec.decode(batch.messages).events
            ]
            for number, end in found.ends.items()
            if end
        }


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest, unique: str, tmp_path: Path) -> World:
    """Each kind of bus."""
    bus: Bus = MemoryBus() if request.param == "memory" else request.getfixturevalue("kafka_bus")
    return World(bus, unique[-60:], tmp_path)


def test_each_record_is_sent_once_wherever_the_sender_dies(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are in their key's bucket, each day in order of event time; the next sender starts after the committed ones."""
    monkeypatch.setattr(stored_batch, "PART_RECORDS", 7)
    records = totals(80)
    batch = world.write(records)
    assert must_compute(world.bus, batch, [world.category], DAYS)
    for after in (False, True, False, True):
        with pytest.raises(Killed):
            world.send(batch, bus=Dying(world.bus, 1, after=after))
        assert not must_compute(world.bus, batch, [world.category], DAYS)
    done = world.send(batch)

    found = world.on_bus()
    assert done.records == 80
    assert 0 < done.sent_before < 80
    assert sorted((one for own in found.values() for one in own), key=lambda one: one.litres) == records
    for number, own in found.items():
        assert {bucket_of(one.meter.encode(), 3, ps.Partitioner.CONSISTENT) for one in own} == {number}
        assert [one.at for one in own] == sorted(one.at for one in own)


def test_a_batch_or_day_that_is_on_the_bus_is_not_sent_again(world: World) -> None:
    """Other days of the batch are sent."""
    with pytest.raises(BackfillRefused, match="writes to a category"):
        must_compute(world.bus, open_warehouse(world.folder), [], DAYS)
    batch = world.write(totals(10))
    world.send(batch)
    with pytest.raises(BackfillRefused, match="is on the bus already, with 10 records"):
        must_compute(world.bus, batch, [world.category], DAYS)
    another = world.write(totals(12), "another")
    for days in (DAYS, Days(DAYS.last, LATER.last)):
        with pytest.raises(BackfillRefused, match="cannot be removed from a bus"):
            must_compute(world.bus, another, [world.category], days)
        with pytest.raises(BackfillRefused, match="cannot be removed from a bus"):
            world.send(another, days)
    later = world.write(totals(3, first_day=2), "later")
    assert must_compute(world.bus, later, [world.category], LATER)
    world.send(later, LATER)
    with pytest.raises(BackfillRefused, match="2013-01-01 to 2013-01-02 is on the bus already"):
        world.send(another)

    assert sum(map(len, world.on_bus().values())) == 13


def test_an_incomplete_batch_is_sent_to_its_end_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another batch in its place would duplicate its days."""
    monkeypatch.setattr(stored_batch, "PART_RECORDS", 4)
    batch = world.write(totals(10))
    with pytest.raises(Killed):
        world.send(batch, bus=Dying(world.bus, 1, after=False))
    with pytest.raises(BackfillRefused, match=r"4 of 10 records of an earlier batch.* Put the earlier batch back"):
        world.send(world.write(totals(12), "another"))
    with pytest.raises(BackfillRefused, match="was requested for 2013-01-01 to 2013-01-02"):
        world.send(batch, LATER)

    assert world.send(batch).sent_before == 4


def test_an_empty_batch_is_sent_once(world: World) -> None:
    """The bus contains only the fact that it was sent."""
    nothing = open_warehouse(world.folder / "nothing")
    assert world.send(nothing).records == 0

    with pytest.raises(BackfillRefused, match="is on the bus already, with 0 records"):
        must_compute(world.bus, nothing, [world.category], DAYS)


class Refusing(Dying):
    """A bus that aborts every transaction."""

    def commit(self, positions: Sequence[Position]) -> None:
        """Abort."""
        raise Aborted("No broker took it.")


def test_a_failing_bus_is_reported_with_the_progress(world: World) -> None:
    """The error contains the number of records on the bus, and that the next run continues there."""
    batch = world.write(totals(10))
    with pytest.raises(BackfillFailed, match=r"first 0 of 10 records, .* Run the same backfill again"):
        world.send(batch, bus=Refusing(world.bus, 0, after=False))
