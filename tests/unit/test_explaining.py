"""Explanations of one key's outputs, from real files and without Spark. This file is the app."""

from __future__ import annotations

import shutil
import sys
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from support.batches import write_batch

import penstock as ps
from penstock.backfill import BackfillRefused, WarehouseError
from penstock.backfill.archive import Archiver
from penstock.backfill.compare import DifferenceExplanation, explain
from penstock.backfill.compare.comparer import Kind
from penstock.backfill.warehouse import DayOf, Days, Listing, content_of, open_warehouse, table_of
from penstock.ops.kernel import Driver
from penstock.processors.apps import AppName
from penstock.transport import Bucket

APP = AppName(Path(__file__))
HOUR = 3_600_000
DAYS = Days(date(1970, 1, 2), date(1970, 1, 3))


class Tick(ps.Record, frozen=True):
    """A tick of a meter."""

    meter: str
    at: ps.EventTime
    number: int


class Hourly(ps.Record, frozen=True):
    """The number of ticks in an hour."""

    meter: str
    hour: ps.EventTime
    ticks: int


class Doubled(Tick, frozen=True):
    """A tick that is written twice."""


ticks = ps.Category("ticks", Tick, key="meter", event_time="at", buckets=1)
hours = ps.Category("hours", Hourly, key="meter", event_time="hour", buckets=1)
doubled = ps.Category("doubled", Doubled, key="meter", event_time="at", buckets=1)


class Hours(ps.Aggregator):
    """Counts by hour."""

    reads, writes = ticks, hours
    monoid, window = ps.monoids.Count(), ps.windows.Tumbling(timedelta(hours=1))

    def result(self, key: str, window: ps.windows.Window, value: int) -> Hourly:
        """Return the count."""
        return Hourly(key, window.start, value)


class Double(ps.Stateless):
    """Writes each tick twice."""

    reads, writes = ticks, doubled

    def process(self, event: Tick) -> list[Doubled]:
        """Return the tick twice."""
        return [Doubled(event.meter, event.at, event.number)] * 2


def tick(meter: str, hours_: float, number: int) -> Tick:
    return Tick(meter, int(hours_ * HOUR), number)


EVENTS = [
    tick("a", 23.5, 0),  # the day before the requested days
    tick("a", 24.25, 1),
    tick("b", 49.0, 2),
    tick("a", 24.5, 3),  # b is one day ahead
    tick("a", 48.5, 4),
    tick("a", 72.0, 5),  # the day after
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a stream with a checkpoint after each event, and the batch results of the same input."""
    root = tmp_path_factory.mktemp("explained")
    driver = Driver(sys.modules[__name__])
    for event in EVENTS:
        driver.send(ticks, [event])
    categories = APP.load().categories()
    ends = {Bucket(c.name, n): end for c in categories for n, end in driver.bus.describe(c.name).ends.items()}
    Archiver(driver.bus, categories, open_warehouse(root / "archive"), segment_events=2).run(
        lambda it: it.has_reached(ends)
    )
    counts = [Hourly("a", 24 * HOUR, 2), Hourly("a", 48 * HOUR, 2), Hourly("a", 50 * HOUR, 1)]
    write_batch(root / "batch", hours, counts)
    write_batch(root / "batch", doubled, [Doubled("a", int(24.25 * HOUR), 1)])
    return root


def explained(root: Path, key: str, processor: str | None = None, limit: int = 50) -> DifferenceExplanation:
    app = AppName(APP.path, processor)
    return explain(app, open_warehouse(root / "archive"), open_warehouse(root / "batch"), key, DAYS, limit=limit)


def test_events_of_a_key_have_their_lateness(root: Path) -> None:
    """Lateness is relative to the newest event of the bucket, including other keys and days. Events are in order of event time."""
    found = explained(root, "a")

    assert [(event.offset, event.behind_ms) for event in found.events] == [
        (1, 0),
        (3, int(24.5 * HOUR)),
        (4, HOUR // 2),
    ]
    assert found.events[0].record == {"meter": "a", "at": int(24.25 * HOUR), "number": 1}
    assert not found.more_events


def test_last_updates_are_paired_with_batch_results(root: Path) -> None:
    """Equal pairs are included."""
    found = explained(root, "a", "Hours")

    assert [
        ((p.event_time or 0) // HOUR, p.kind, p.left and p.left["ticks"], p.right and p.right["ticks"])
        for _, p in found.outputs
    ] == [
        (24, Kind.EQUAL, 2, 2),
        (48, Kind.DIFFERENT, 1, 2),
        (50, Kind.ONLY_RIGHT, None, 1),
    ]


def test_repeated_records_are_paired_one_by_one(root: Path) -> None:
    """An equal record has one counterpart, and the surplus is on one side only."""
    found = explained(root, "a", "Double")

    assert [pair.kind for _, pair in found.outputs if pair.event_time == int(24.25 * HOUR)] == [
        Kind.EQUAL,
        Kind.ONLY_LEFT,
    ]
    assert {pair.kind for _, pair in found.outputs} == {Kind.EQUAL, Kind.ONLY_LEFT}


def test_the_limit_applies_to_events_and_outputs(root: Path) -> None:
    """Flags report further events and outputs."""
    found = explained(root, "a", limit=2)

    assert [event.offset for event in found.events] == [1, 3]
    assert (len(found.outputs), found.more_events, found.more_outputs) == (2, True, True)


def test_an_archive_by_arrival_and_half_compacted_gives_the_same_explanation(root: Path, tmp_path: Path) -> None:
    """Its folders are not days of event time, and replaced files that still exist are ignored."""
    driver = Driver(sys.modules[__name__])
    for event in EVENTS:
        driver.send(ticks, [event])
    categories = APP.load().categories()
    ends = {Bucket(c.name, n): end for c in categories for n, end in driver.bus.describe(c.name).ends.items()}
    warehouse = open_warehouse(tmp_path / "archive")
    Archiver(driver.bus, categories, warehouse, segment_events=2, by=DayOf.ARRIVAL).run(lambda it: it.has_reached(ends))
    [day] = Listing.of(warehouse, "ticks").days
    parts = Listing.of(warehouse, "ticks").of_day(day)[:2]
    rows = pa.concat_tables([table_of(warehouse.read(part)) for part in parts])
    warehouse.write(parts[0]._replace(last=parts[1].segment), content_of(rows))
    shutil.copytree(root / "batch", tmp_path / "batch")

    for processor in ("Hours", "Double", None):
        for limit in (2, 50):
            there, here = explained(root, "a", processor, limit), explained(tmp_path, "a", processor, limit)
            arrived = {(event.category, event.offset): event.arrived for event in here.events}
            expected = [event._replace(arrived=arrived[event.category, event.offset]) for event in there.events]
            assert (list(here.events), here.outputs) == (expected, there.outputs)


def test_an_unknown_key_is_refused(root: Path) -> None:
    """The error names the locations."""
    with pytest.raises(BackfillRefused, match=r"No record from 1970-01-02 to 1970-01-03 has the key 'nobody'"):
        explained(root, "nobody")


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """The error contains its path."""
    day = tmp_path / "category=hours" / "ds=1970-01-02"
    day.mkdir(parents=True)
    (day / "part-0.parquet").write_bytes(b"rubbish")
    with pytest.raises(WarehouseError, match=r"ds=1970-01-02/part-0\.parquet does not read as Parquet"):
        explain(AppName(APP.path, "Hours"), open_warehouse(tmp_path), open_warehouse(tmp_path), "a", DAYS, limit=1)
