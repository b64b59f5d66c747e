"""Missing days of a batch run: gaps are refused, open ends are noted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

import msgspec
import pytest
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.archive import Archiver, LatenessAllowance
from penstock.backfill.run import Order
from penstock.backfill.run.plans import days_read
from penstock.backfill.sources import ALL_DAYS, WantedDays, check_coverage, joined_notes
from penstock.backfill.warehouse import DAY_MS, DayOf, Days, Listing, content_of, day_of, table_of
from penstock.backfill.warehouse.layout import OtherFile
from penstock.transport import Bucket, CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

TEN_DAYS = Days.of("1970-01-01", "1970-01-10")


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    sensor: str
    at: ps.EventTime


readings = ps.Category("readings", Reading, key="sensor", event_time="at", buckets=2)
others = ps.Category("others", Reading, key="sensor", event_time="at", buckets=2)


def archive_of(
    days: Sequence[int], *, by: DayOf = DayOf.EVENT_TIME, warehouse: MemoryWarehouse | None = None
) -> MemoryWarehouse:
    """Return an archive of an event for each bucket on days, counted from 1970-01-01 as the first; the last one is open."""
    warehouse, bus = warehouse or MemoryWarehouse(), MemoryBus(lambda: 1_000 * DAY_MS)
    bus.create(CategorySpec.of(readings))
    for day in days:
        for bucket in (0, 1):
            bus.append("readings", Outgoing(b"k", msgspec.json.encode(Reading("s", (day - 1) * DAY_MS)), bucket))
    ends = {Bucket("readings", number): end for number, end in bus.ends("readings").items()}
    Archiver(bus, [readings], warehouse, by=by, patience=LatenessAllowance(ps.watermarks.BoundedOutOfOrderness())).run(
        lambda it: it.has_reached(ends)
    )
    return warehouse


def lose(warehouse: MemoryWarehouse, day: int) -> MemoryWarehouse:
    """Remove a day's folder."""
    folder = f"category=readings/ds={day_of((day - 1) * DAY_MS)}/"
    warehouse.stored = {path: content for path, content in warehouse.stored.items() if not path.startswith(folder)}
    return warehouse


def notes_of(warehouse: MemoryWarehouse, days: Days, *, allow_missing: bool = False) -> str:
    """Return the notes about the category."""
    return check_coverage(warehouse, [WantedDays(readings, days, days)], allow_missing=allow_missing).get(
        "readings", ""
    )


def test_complete_days_have_no_note() -> None:
    """The last day is incomplete, and not requested."""
    assert notes_of(archive_of(range(1, 11)), Days.of("1970-01-02", "1970-01-09")) == ""


def test_lost_days_are_refused_by_name() -> None:
    """They are accepted if missing days are allowed."""
    warehouse = lose(lose(lose(archive_of(range(1, 11)), 3), 5), 6)
    with pytest.raises(
        BackfillRefused,
        match=r"category=readings has no files of 1970-01-03, 1970-01-05 to 1970-01-06 .* it lacks 6 offsets.*`--allow-missing`",
    ):
        notes_of(warehouse, TEN_DAYS)

    assert "has no files of 1970-01-03, 1970-01-05 to 1970-01-06" in notes_of(warehouse, TEN_DAYS, allow_missing=True)
    assert notes_of(warehouse, Days.of("1970-01-07", "1970-01-08")) == ""


def test_days_without_events_are_not_refused() -> None:
    """Contiguous offsets prove that no event is missing."""
    assert notes_of(archive_of([1, 2, 7, 8, 9, 10]), Days.of("1970-01-01", "1970-01-09")) == (
        "readings has no files of 1970-01-03 to 1970-01-06"
    )


def test_gaps_in_files_without_offsets_are_refused() -> None:
    """Without offsets, a missing event cannot be excluded."""
    warehouse = MemoryWarehouse()
    [source] = [archive_of([1])]
    table = table_of(source.read(Listing.of(source, "readings").files[0]))
    for day in ("1970-01-01", "1970-01-03"):
        warehouse.write(OtherFile("readings", day, "part-0.parquet"), content_of(table))
    with pytest.raises(BackfillRefused, match=r"has no files of 1970-01-02 .* events may be missing"):
        notes_of(warehouse, Days.of("1970-01-01", "1970-01-03"))

    assert (
        notes_of(warehouse, Days.of("1970-01-03", "1970-01-03")) == ""
    )  # these files have no marks of complete days, and need none


def test_days_more_than_a_year_apart_have_no_gap() -> None:
    """An event with a wrong time is far from all others."""
    warehouse = lose(archive_of([1, 2, 3, 4, 20_000]), 3)
    with pytest.raises(BackfillRefused, match="has no files of 1970-01-03 between"):
        notes_of(warehouse, ALL_DAYS)

    assert notes_of(archive_of([1, 2, 3, 20_000]), ALL_DAYS) == (
        "readings may still receive events for 1970-01-03, 2024-10-03"
    )


def test_an_incomplete_day_before_complete_days_is_refused() -> None:
    """It results from an interrupted copy or a crashed archiver."""
    warehouse = archive_of(range(1, 11))
    del warehouse.stored["category=readings/ds=1970-01-04/_SUCCESS"]
    with pytest.raises(BackfillRefused, match=r"1970-01-04 is incomplete \(_SUCCESS is missing\)"):
        notes_of(warehouse, TEN_DAYS)

    assert "is incomplete before complete days, for 1970-01-04" in notes_of(warehouse, TEN_DAYS, allow_missing=True)


def test_the_open_end_and_unarchived_days_are_noted() -> None:
    """They are normal for a running archiver."""
    assert notes_of(archive_of(range(3, 9)), TEN_DAYS) == (
        "readings may still receive events for 1970-01-08, and is not archived for 1970-01-01 to 1970-01-02, "
        "1970-01-09 to 1970-01-10"
    )


@pytest.mark.parametrize("days", [("1970-02-01", "1970-02-03"), ("1969-01-01", "1969-01-01")])
def test_unarchived_days_are_refused(days: tuple[str, str]) -> None:
    """They are usually typing errors."""
    with pytest.raises(
        BackfillRefused, match=r"No events are archived from .* The archive has readings from 1970-01-03 to 1970-01-08"
    ):
        notes_of(archive_of(range(3, 9)), Days.of(*days))

    assert "is not archived for" in notes_of(archive_of(range(3, 9)), Days.of(*days), allow_missing=True)


def test_a_rarely_written_category_does_not_refuse_the_run() -> None:
    """An output may end earlier than its inputs."""
    warehouse, days = archive_of(range(1, 6)), Days.of("1970-01-04", "1970-01-04")
    warehouse.write(OtherFile("others", "1970-01-02", "part-0.parquet"), b"PAR1")
    notes = check_coverage(warehouse, [WantedDays(one, days, days) for one in (readings, others)], allow_missing=False)

    assert notes == {"others": "others is not archived for 1970-01-04"}
    assert (
        joined_notes(notes, [readings, others, others], "all of it")
        == "all of it; others is not archived for 1970-01-04"
    )


@pytest.mark.parametrize("by", DayOf)
def test_an_empty_file_is_refused_by_name(by: DayOf) -> None:
    """Spark would silently skip it. On days outside the run, it is ignored."""
    warehouse = archive_of([1, 2, 3], by=by)
    path = min(path for path in warehouse.stored if path.endswith(".parquet"))
    warehouse.stored[path] = b""
    with pytest.raises(BackfillRefused, match=rf"{path} does not read as Parquet: it is empty"):
        notes_of(warehouse, ALL_DAYS)

    assert by is DayOf.ARRIVAL or notes_of(warehouse, Days.of("1970-01-02", "1970-01-02")) == ""


def test_days_of_arrival_are_not_checked() -> None:
    """They do not show which event times are missing."""
    assert notes_of(archive_of([1, 5], by=DayOf.ARRIVAL), TEN_DAYS) == ""


class Keep(ps.Stateful):
    """Keeps the last event."""

    reads, state = readings, Reading

    def process(self, event: Reading, state: Reading | None, context: ps.Context) -> tuple[Reading, list[Reading]]:
        """Return the event."""
        return event, []


class Spans(ps.Aggregator):
    """Counts by windows of five days."""

    reads, monoid, window = readings, ps.monoids.Count(), ps.windows.Tumbling(timedelta(days=5))


class Totals(ps.Aggregator):
    """Counts in a global window."""

    reads, monoid = readings, ps.monoids.Count()


class Pass(ps.Stateless):
    """Drops every event."""

    reads = readings


@pytest.mark.parametrize(
    ("processor", "order", "first", "last"),
    [
        (Pass, None, date(1970, 1, 7), date(1970, 1, 8)),
        (Spans, None, date(1970, 1, 7), date(1970, 1, 10)),
        (Totals, None, date.min, date(1970, 1, 8)),
        (Keep, None, date.min, date(1970, 1, 8)),
        (Keep, Order.ARRIVAL, date.min, date.max),
    ],
)
def test_the_days_to_read_depend_on_the_kind_of_processor(
    processor: type[ps.Stateless], order: Order | None, first: date, last: date
) -> None:
    """The run covers the seventh and the eighth day."""
    assert days_read(processor, order, Days.of("1970-01-07", "1970-01-08")) == (first, last)
