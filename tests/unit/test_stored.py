"""Reading warehouse files without Spark: each event once, as the current record type, with errors that name the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill import BackfillRefused, WarehouseError
from penstock.backfill.archive import Archiver, LatenessAllowance, archive_schema, compact
from penstock.backfill.warehouse import DAY_MS, DayOf, Days, Listing, RecordColumns, StoredCategory, content_of
from penstock.backfill.warehouse.layout import OtherFile
from penstock.transport import Bucket, CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

FAR_MS = 400_000 * DAY_MS * 365  # beyond the year 9999
HOUR_MS = DAY_MS // 24
TIMES = [hour * HOUR_MS for hour in range(48)]
SECOND = Days.of("1970-01-02", "1970-01-02")
EVER = Days.of("0001-01-01", "9999-12-31")


class Part(ps.Record, frozen=True):
    """A nested record."""

    size: int


class OldReading(ps.Record, frozen=True):
    """A reading as it was archived."""

    at: ps.EventTime
    count: int
    part: Part
    parts: list[Part]
    named: dict[str, int]


class NewPart(ps.Record, frozen=True):
    """The nested record today."""

    size: float
    colour: str = "red"


class Reading(ps.Record, frozen=True):
    """The record type of a reading today."""

    at: ps.EventTime
    count: float
    part: NewPart
    parts: list[NewPart]
    named: dict[str, float]
    unit: str = "mm"


def category(record: type[ps.Record]) -> ps.Category[Any]:
    return ps.Category("readings", record, key=lambda event: f"k{event.at // HOUR_MS % 3}", event_time="at", buckets=2)


def warehouse_of(by: DayOf, times: Sequence[int] = TIMES) -> MemoryWarehouse:
    """Return an archive of readings."""
    warehouse, bus = MemoryWarehouse(), MemoryBus(lambda: 1_000 * DAY_MS)
    bus.create(CategorySpec("readings", 2))
    for number, at in enumerate(times):
        reading = OldReading(at, at, Part(at), [Part(at)], {"n": at})
        bus.append("readings", Outgoing(b"k", msgspec.json.encode(reading), number % 2))
    ends = {Bucket("readings", number): end for number, end in bus.ends("readings").items()}
    Archiver(
        bus,
        [category(OldReading)],
        warehouse,
        segment_events=5,
        by=by,
        patience=LatenessAllowance(ps.watermarks.BoundedOutOfOrderness()),
    ).run(lambda it: it.has_reached(ends))
    return warehouse


def read(warehouse: MemoryWarehouse, days: Days, key: str | None = None, record: type[ps.Record] = OldReading) -> Any:
    """Return the records of some days, by event time."""
    columns = RecordColumns(record)
    stored = StoredCategory.of(warehouse, "readings", archive_schema(columns))
    found = [event for batch in stored.read(days, key=key) for event in columns.records(batch)]
    return sorted(found, key=lambda event: event.at)


@pytest.mark.parametrize("by", DayOf)
def test_days_select_events_by_event_time_in_both_layouts(by: DayOf) -> None:
    """A key may be given, too. The first and last day of the calendar include times beyond it."""
    warehouse = warehouse_of(by, [*TIMES, FAR_MS, -FAR_MS])

    assert [event.at for event in read(warehouse, SECOND)] == TIMES[24:]
    assert [event.at for event in read(warehouse, SECOND, "k0")] == [at for at in TIMES[24:] if at // HOUR_MS % 3 == 0]
    assert [event.at for event in read(warehouse, EVER)] == [-FAR_MS, *TIMES, FAR_MS]


@pytest.mark.parametrize("by", DayOf)
def test_compacted_files_that_still_exist_are_not_read_twice(by: DayOf) -> None:
    """The compaction was killed before it removed them."""
    warehouse = warehouse_of(by)
    before = dict(warehouse.stored)
    for day in Listing.of(warehouse, "readings").days:
        warehouse.stored.setdefault(f"category=readings/ds={day}/_SUCCESS", b"")
    compacted = list(compact(warehouse, "readings"))
    warehouse.stored = before | warehouse.stored

    assert compacted
    assert [event.at for event in read(warehouse, EVER)] == TIMES


def test_a_success_marker_completes_a_day_of_event_time_only() -> None:
    """A marker in a layout by arrival does not concern event times."""
    complete = {}
    for by in DayOf:
        warehouse = warehouse_of(by)
        warehouse.stored["category=readings/ds=1970-01-01/_SUCCESS"] = b""
        stored = StoredCategory.of(warehouse, "readings", archive_schema(RecordColumns(OldReading)))
        complete[by] = [day for day in ("1970-01-01", "1970-01-02") if stored.is_complete(day)]

    assert complete == {DayOf.EVENT_TIME: ["1970-01-01"], DayOf.ARRIVAL: []}


def test_spans_are_single_days_in_an_event_time_layout_only() -> None:
    """By arrival, any file may contain events of any day."""
    within = Days.of("1969-01-01", "1970-01-02")
    spans = {
        by: StoredCategory.of(warehouse_of(by), "readings", archive_schema(RecordColumns(OldReading))).spans(within)
        for by in DayOf
    }

    assert spans == {DayOf.EVENT_TIME: [Days.of(day, day) for day in within.names()[-2:]], DayOf.ARRIVAL: [within]}


def test_an_older_type_is_converted_at_every_depth() -> None:
    """New fields take their defaults and integers become floats, also in records, lists and dicts."""
    [event] = read(warehouse_of(DayOf.EVENT_TIME, [7]), EVER, record=Reading)

    assert event == Reading(7, 7.0, NewPart(7.0), [NewPart(7.0)], {"n": 7.0})


class Misread(ps.Record, frozen=True):
    """An incompatible record type."""

    at: ps.EventTime
    parts: list[dict[str, str]]


def test_an_incompatible_type_is_refused_with_column_and_types() -> None:
    """The read fails before it opens a file."""
    with pytest.raises(
        BackfillRefused, match=r"category=readings: column parts\[\] has type struct<.*the record's map<"
    ):
        read(warehouse_of(DayOf.EVENT_TIME), EVER, record=Misread)


def test_the_error_names_an_incompatible_file() -> None:
    """The archive may predate the settings file."""
    warehouse = warehouse_of(DayOf.EVENT_TIME, [7])
    del warehouse.stored["category=readings/_archive.json"]
    with pytest.raises(
        BackfillRefused, match=r"ds=1970-01-01/bucket-00000-0+-e0+1\.parquet: column parts\[\] has type struct<"
    ):
        read(warehouse, EVER, record=Misread)


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: whole[:-1], lambda whole: b"#" * len(whole)])
def test_the_error_names_a_damaged_file_and_its_day(damage: Callable[[bytes], bytes]) -> None:
    """The file is empty, truncated or garbage."""
    warehouse = warehouse_of(DayOf.EVENT_TIME, [7])
    [path] = [path for path in warehouse.stored if path.endswith(".parquet")]
    warehouse.stored[path] = damage(warehouse.stored[path])
    with pytest.raises(
        WarehouseError, match=r"ds=1970-01-01/bucket-00000-0+-e0+1\.parquet does not read as Parquet: .* Restore it"
    ):
        read(warehouse, EVER)


def test_a_file_that_was_compacted_during_the_read_raises_an_error() -> None:
    """It was deleted after its folder was listed."""
    warehouse = warehouse_of(DayOf.EVENT_TIME, [7])
    stored = StoredCategory.of(warehouse, "readings", archive_schema(RecordColumns(OldReading)))
    [path] = [path for path in warehouse.stored if path.endswith(".parquet")]
    del warehouse.stored[path]
    with pytest.raises(
        WarehouseError, match=r"was deleted after its folder was listed, by a compaction .* Run the command again"
    ):
        list(stored.read(EVER))


def test_files_of_other_tools_are_read() -> None:
    """Temporary files are skipped, and missing columns are null."""
    warehouse = MemoryWarehouse()
    table = pa.table({"at": pa.array([5], pa.int32()), "count": [6], "_event_time": [5]})
    for name in ("part-0.parquet", "_aside.parquet", ".part-0.parquet.crc"):
        warehouse.write(OtherFile("readings", "1970-01-01", name), content_of(table))
    stored = StoredCategory.of(
        warehouse, "readings", archive_schema(RecordColumns(OldReading)).remove(2).remove(2).remove(2)
    )
    [batch] = stored.read(EVER)

    assert batch.select(["at", "count", "_key", "_event_time"]).to_pylist() == [
        {"at": 5, "count": 6, "_key": None, "_event_time": 5}
    ]
