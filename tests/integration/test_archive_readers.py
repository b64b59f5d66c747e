"""Spark, DuckDB, Polars and PyArrow read the archive as Hive folders, and so do batch runs. This file is also the app."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.archive import Archiver, LatenessAllowance, archive_schema, compact
from penstock.backfill.run import run_backfill
from penstock.backfill.sources import BatchEvents
from penstock.backfill.sources.files import TASKS_PER_CORE
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import (
    ARCHIVE,
    DAY_MS,
    ArchivedFile,
    ArchiveSettings,
    DayOf,
    Note,
    RecordColumns,
    content_of,
    open_warehouse,
    write_note,
)
from penstock.processors.apps import AppName
from penstock.transport import Bucket, CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

NOW_MS = 1_000 * DAY_MS
TIMES = [hour * DAY_MS // 24 for hour in range(36)]


class OldReading(ps.Record, frozen=True):
    """The earlier version of a reading."""

    at: ps.EventTime
    count: int


class Reading(ps.Record, frozen=True):
    """The current version of a reading."""

    at: ps.EventTime
    count: float | None
    unit: str = "mm"


class Misread(ps.Record, frozen=True):
    """A reading with a type that conflicts with the archive."""

    at: ps.EventTime
    count: str


def key_of(_: object) -> str:
    """Return the only key."""
    return "k"


readings = ps.Category("readings", Reading, key=key_of, event_time="at", buckets=1)
arrived = ps.Category("arrived", Reading, key=key_of, event_time="at", buckets=1)
passed = ps.Category("passed", Reading, key=key_of, event_time="at", buckets=1)


class Stop(ps.Record, frozen=True):
    """The place of a stop."""

    place: str
    minutes: int


class Trip(ps.Record, frozen=True):
    """A record with nested records."""

    at: ps.EventTime
    stops: list[Stop]
    longest: dict[str, Stop]


daily = ps.Category("daily", Reading, key=key_of, event_time="at", buckets=1)
trips = ps.Category("trips", Trip, key=key_of, event_time="at", buckets=1)


class Pass(ps.Stateless):
    """Passes every event on."""

    reads, writes = arrived, passed

    def process(self, event: Reading) -> Iterable[Reading]:
        """Return the event."""
        return [event]


class World:
    """A warehouse with two categories: one by event time, whose record type changed, and one by arrival."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder
        self.spark = spark
        self.warehouse = open_warehouse(folder)
        self.bus = MemoryBus(lambda: NOW_MS)

    def archive(self, name: str, record: type[ps.Record], by: DayOf, events: list[ps.Record]) -> None:
        """Send events to a category, and archive them."""
        if name not in self.bus.names():
            self.bus.create(CategorySpec(name, 1))
        for event in events:
            self.bus.append(name, Outgoing(b"k", msgspec.json.encode(event)))
        category = ps.Category(name, record, key=key_of, event_time="at", buckets=1)
        ends = {Bucket(name, number): end for number, end in self.bus.ends(name).items()}
        Archiver(
            self.bus,
            [category],
            self.warehouse,
            segment_events=8,
            by=by,
            patience=LatenessAllowance(ps.watermarks.BoundedOutOfOrderness()),
        ).run(lambda it: it.has_reached(ends))

    def category(self, name: str) -> Path:
        """Return the category's folder."""
        return self.folder / f"category={name}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with spark_session("local[2]") as spark:
        world = World(tmp_path_factory.mktemp("warehouse"), spark)
        world.archive("readings", OldReading, DayOf.EVENT_TIME, [OldReading(at, at) for at in TIMES[:20]])
        world.archive("readings", Reading, DayOf.EVENT_TIME, [Reading(at, at + 0.5) for at in TIMES[20:]])
        list(compact(world.warehouse, "readings"))
        world.archive("readings", Reading, DayOf.EVENT_TIME, [Reading(3, 3.5)])
        world.archive("arrived", OldReading, DayOf.ARRIVAL, [OldReading(at, at) for at in TIMES])
        yield world


def with_spark(world: World) -> list[Any]:
    return world.spark.read.parquet(str(world.category("readings"))).select("at", "count", "ds").collect()


def with_duckdb(world: World) -> list[Any]:
    files = world.category("readings") / "*" / "*.parquet"
    query = """select "at", count, ds::varchar from read_parquet(?, hive_partitioning = true)"""
    return list(duckdb.execute(query, [str(files)]).fetchall())


def with_polars(world: World) -> list[Any]:
    files = world.category("readings") / "*" / "*.parquet"
    frame = pl.scan_parquet(files, hive_partitioning=True, missing_columns="insert", extra_columns="ignore")
    return frame.select("at", "count", "ds").collect().rows()


def with_pyarrow(world: World) -> list[Any]:
    table = ds.dataset(world.category("readings"), partitioning="hive").to_table(["at", "count", "ds"])
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("read", [with_spark, with_duckdb, with_polars, with_pyarrow])
def test_an_archive_is_one_table_for(world: World, read: Any) -> None:
    """The archive is compacted, has late additions, and its record type has gained a field and widened another."""
    found = sorted((at, count, str(day)) for at, count, day in read(world))

    assert [(at, count) for at, count, _ in found] == sorted(
        [*((at, float(at)) for at in TIMES[:20]), *((at, at + 0.5) for at in TIMES[20:]), (3, 3.5)]
    )
    assert {day for at, _, day in found if at >= DAY_MS} == {"1970-01-02"}


def test_superseded_files_are_not_read_twice(world: World, tmp_path: Path) -> None:
    """A compaction was killed before it removed the old files."""
    day = world.category("readings") / "ds=1970-01-01"
    [whole] = day.glob("bucket-00000-*-0*.parquet")
    old = day / f"bucket-00000-{8:020d}.parquet"
    pq.write_table(pq.read_table(whole, partitioning=None).slice(8, 8), old)
    try:
        read = BatchEvents(world.spark, world.warehouse).events(readings).count()
    finally:
        old.unlink()

    assert read == len(TIMES) + 1


def test_nested_records_are_read_from_closed_and_open_segments(world: World, tmp_path: Path) -> None:
    """Both form one table, although Spark itself reads only one of them."""
    columns = RecordColumns(Trip)
    schema = archive_schema(columns)
    warehouse = open_warehouse(tmp_path)
    write_note(warehouse, Note("trips", ARCHIVE), ArchiveSettings.of(DayOf.EVENT_TIME, 1, schema))
    sent = [Trip(at, [Stop("A", at), Stop("B", 1)], {"A": Stop("A", at)}) for at in range(3)]
    for offset, trip in enumerate(sent):
        marks: list[list[Any]] = [[0], [offset], ["k"], [trip.at], [trip.at]]
        table = pa.table([*columns.arrays([trip]), *(pa.array(mark) for mark in marks)], schema=schema)
        warehouse.write(ArchivedFile("trips", "1970-01-01", 0, offset), content_of(table))
    found = BatchEvents(world.spark, warehouse).events(trips).toArrow().sort_by("_offset")

    assert [trip for batch in found.to_batches() for trip in columns.records(batch)] == sent


def test_a_category_by_arrival_is_filtered_by_event_time(world: World, tmp_path: Path) -> None:
    """All events are in the folder of their arrival day, and are read as the current, wider type."""
    folders = [path.name for path in world.category("arrived").iterdir() if path.is_dir()]
    app = AppName.parse(f"{__file__}:Pass")
    day = date(1970, 1, 2)
    [result] = run_backfill(
        app, world.warehouse, first=day, last=day, output=open_warehouse(tmp_path), master="local[2]"
    )
    rows = pq.read_table(tmp_path / "category=passed").to_pylist()

    assert folders == ["ds=1972-09-27"]
    assert result.events_in == 12
    assert sorted((row["at"], row["count"], row["unit"]) for row in rows) == [
        (at, float(at), "mm") for at in TIMES if at >= DAY_MS
    ]


def test_a_conflicting_type_is_refused_before_anything_is_read(world: World) -> None:
    """The error names the folder, the column and both types."""
    category = ps.Category("readings", Misread, key=key_of, event_time="at", buckets=1)
    with pytest.raises(BackfillRefused, match=r"category=readings: column count has type double, .* string"):
        BatchEvents(world.spark, world.warehouse).events(category)


def test_a_task_reads_many_days_of_an_open_segment(world: World, tmp_path: Path) -> None:
    """A segment with an event on each of 40 days has 40 files; a task costs more than such a file."""
    events = [Reading(day * DAY_MS, day) for day in range(40)]
    world.bus.create(CategorySpec.of(daily))
    world.bus.writer().send(daily.name, [Outgoing(b"k", msgspec.json.encode(event)) for event in events])
    warehouse = open_warehouse(tmp_path)
    Archiver(world.bus, [daily], warehouse).run(lambda it: it.has_reached({Bucket(daily.name, 0): len(events)}))
    found = BatchEvents(world.spark, warehouse).events(daily)

    assert found.rdd.getNumPartitions() == TASKS_PER_CORE * world.spark.sparkContext.defaultParallelism
    assert sorted(row["at"] for row in found.collect()) == [event.at for event in events]
