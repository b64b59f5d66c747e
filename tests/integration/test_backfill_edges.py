"""Edge cases of a backfill: older events, endless windows, and errors in plain sentences. This file is also the app."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.backfill import BackfillFailed, BackfillRefused
from penstock.backfill.archive import Archiver
from penstock.backfill.run import NodeResult, Order, run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import Warehouse, open_warehouse
from penstock.processors.apps import AppName
from penstock.transport import Bucket, CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

if TYPE_CHECKING:  # Spark's workers import this file, and cannot import the test support
    from support.databases import Postgres

DAY = date(1970, 1, 1)


class OldReading(ps.Record, frozen=True):
    """A reading as it was archived."""

    sensor: str
    at: ps.EventTime
    value: int


class Reading(OldReading, frozen=True):
    """A reading of the current version."""

    unit: str = "mm"


old_readings = ps.Category("readings", OldReading, key="sensor", event_time="at", buckets=2)
readings = ps.Category("readings", Reading, key="sensor", event_time="at", buckets=2)
rekeyed = ps.Category("rekeyed", Reading, key="unit", event_time="at", buckets=2)
others = ps.Category("others", Reading, key="sensor", event_time="at", buckets=2)
outputs = {
    name: ps.Category(name, Reading, key="sensor", event_time="at")
    for name in (
        "passed",
        "stopped",
        "spared",
        "summed",
        "summed_lately",
        "joined",
        "regrouped",
        "unarchived",
        "misfits",
        "announced",
    )
}


class Pass(ps.Stateless):
    """Passes every event on."""

    reads, writes = readings, outputs["passed"]

    def process(self, event: Reading) -> Iterable[Reading]:
        """Return the event."""
        return [event]


class Stop(ps.Stateless):
    """Fails on one event and stops."""

    reads, writes = readings, outputs["stopped"]

    def process(self, event: Reading) -> Iterable[Reading]:
        """Return the event, unless its value is 7."""
        return [event] if 1 / (event.value - 7) else []


class Spare(Stop):
    """Fails on one event and skips it."""

    writes = outputs["spared"]
    on_error = ps.ErrorPolicy.DEAD_LETTER


class Misfit(ps.Stateless):
    """Returns a record that does not match its own type."""

    reads, writes = readings, outputs["misfits"]

    def process(self, event: Reading) -> Iterable[Reading]:
        """Return a record without its required number."""
        return [msgspec.structs.replace(event, value="many")]


class SumUp(ps.Aggregator):
    """Sums in one window that never ends."""

    reads, writes = readings, outputs["summed"]
    monoid = ps.monoids.Sum()

    def observe(self, event: Reading) -> int:
        """Return the value."""
        return event.value

    def result(self, key: str, window: ps.windows.Window, value: int) -> Reading:
        """Return the sum."""
        return Reading(key, 0, value)


class SumUpLately(SumUp):
    """Sums the last nine milliseconds at each event."""

    writes = outputs["summed_lately"]
    window = ps.windows.Sliding(timedelta(milliseconds=9))
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP

    def result(self, key: str, window: ps.windows.Window, value: int) -> Reading:
        """Return the sum at the time of its last event."""
        return Reading(key, window.end - 1, value)


class Announced(ps.Stateful):
    """Uses an upstream watermark."""

    reads, writes = readings, outputs["announced"]
    state, ordered, watermark = int, True, ps.watermarks.UpstreamWatermark()

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Reading]]:
        """Return the event."""
        return event.value, [event]


class Ends(ps.Aggregator):
    """Keeps the last event of two categories: its monoid depends on the order of the inputs."""

    reads, writes = (readings, others), outputs["joined"]
    monoid, window = ps.monoids.LastArrived(), ps.windows.Tumbling(timedelta(hours=1))

    def result(self, key: str, window: ps.windows.Window, value: Reading) -> Reading:
        """Return the event."""
        return value


class Regroup(ps.Stateful):
    """Reads a category that was archived with a different key."""

    reads, writes = rekeyed, outputs["regrouped"]
    state = int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Reading]]:
        """Return the event."""
        return event.value, [event]


class Unarchived(ps.Stateless):
    """Reads a category that is not in the warehouse."""

    reads, writes = others, outputs["unarchived"]

    def process(self, event: Reading) -> Iterable[Reading]:
        """Return the event."""
        return [event]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Twenty readings of an older type, archived under two names, and a Spark session."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: nothing of the backfill is tested")
    bus, warehouse = MemoryBus(lambda: 0), open_warehouse(tmp_path_factory.mktemp("warehouse"))
    before = ps.Category("rekeyed", OldReading, key="sensor", event_time="at", buckets=2)
    for category in (old_readings, before):
        bus.create(CategorySpec.of(category))
        for n in range(20):
            bus.append(category.name, Outgoing(b"%d" % (n % 3), msgspec.json.encode(OldReading(str(n % 3), n, n))))
    ends = {Bucket(name, number): end for name in bus.names() for number, end in bus.describe(name).ends.items()}
    Archiver(bus, [old_readings, before], warehouse).run(lambda it: it.has_reached(ends))
    with spark_session("local[2]"):
        yield warehouse


def backfill(warehouse: Warehouse, processor: str, output: Path, order: Order | None = None) -> NodeResult:
    """Run one processor of this file."""
    app = AppName(Path(__file__), processor)
    [result] = run_backfill(
        app, warehouse, first=DAY, last=DAY, output=open_warehouse(output), master="local[2]", order=order
    )
    return result


def test_older_events_take_the_defaults_of_newer_fields(archive: Warehouse, tmp_path: Path) -> None:
    """The archive of an older record type is read as the stream would read its messages."""
    backfill(archive, "Pass", tmp_path)
    rows = pq.read_table(tmp_path / "category=passed").to_pylist()

    assert sorted((row["value"], row["unit"]) for row in rows) == [(n, "mm") for n in range(20)]


def test_a_window_that_never_ends_includes_all_days_to_the_last(archive: Warehouse, tmp_path: Path) -> None:
    """It starts before the range, but its result is required."""
    result = backfill(archive, "SumUp", tmp_path)
    rows = pq.read_table(tmp_path / "category=summed").to_pylist()

    assert {row["sensor"]: row["value"] for row in rows} == {str(n): sum(range(n, 20, 3)) for n in range(3)}
    assert "never ends" in result.note


def test_sliding_windows_follow_the_order_of_event_time(archive: Warehouse, tmp_path: Path) -> None:
    """Each event has its window, which contains no event of another key."""
    backfill(archive, "SumUpLately", tmp_path, Order.EVENT_TIME)
    rows = pq.read_table(tmp_path / "category=summed_lately").to_pylist()

    assert {(row["sensor"], row["at"]): row["value"] for row in rows} == {
        (str(n % 3), n): n + sum(earlier for earlier in (n - 3, n - 6) if earlier >= 0) for n in range(20)
    }


def test_an_event_that_raises_stops_the_backfill_with_its_position(archive: Warehouse, tmp_path: Path) -> None:
    """The error is one paragraph with category, bucket and offset, without a stack trace; nothing is published."""
    with pytest.raises(BackfillFailed) as failed:
        backfill(archive, "Stop", tmp_path)

    assert str(failed.value).startswith("readings/")
    assert "at offset" in str(failed.value)
    assert "Stop raised ZeroDivisionError: division by zero" in str(failed.value)
    assert "\n" not in str(failed.value)
    assert list(tmp_path.iterdir()) == []


def test_skipped_events_are_counted(archive: Warehouse, tmp_path: Path) -> None:
    """Where the stream would write a dead letter, the batch run continues and reports their number."""
    result = backfill(archive, "Spare", tmp_path)

    assert (result.events_in, result.events_out, result.rejected) == (20, 19, 1)


@pytest.fixture
def harmed(archive: Warehouse, tmp_path: Path) -> Path:
    """A copy of the archive, and its largest file of readings, for a test to damage."""
    shutil.copytree(archive.location.removeprefix("file://"), tmp_path / "harmed")
    return max((tmp_path / "harmed" / "category=readings").rglob("*.parquet"), key=lambda path: path.stat().st_size)


def cut(file: Path) -> None:
    """Truncate it."""
    file.write_bytes(file.read_bytes()[:-20])


def garble(file: Path) -> None:
    """Overwrite all but its end."""
    content = file.read_bytes()
    file.write_bytes(content[:4] + b"U" * 200 + content[204:])


def mistype(file: Path) -> None:
    """Rewrite one column with another type, without a change to the archive's metadata."""
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.set_column(2, "value", table.column("value").cast("string")), file)


@pytest.mark.parametrize(
    ("processor", "harm", "says"),
    [
        ("Pass", cut, "does not read as Parquet: .* Restore it from a copy"),
        ("SumUpLately", cut, "does not read as Parquet: .* Restore it from a copy"),
        ("SumUpLately", garble, "does not read as Parquet: .* Restore it from a copy"),
        (
            "SumUpLately",
            mistype,
            "column value has type string, which does not fit the record's int64",
        ),
    ],
)
def test_an_unreadable_file_is_named(
    harmed: Path, processor: str, harm: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    """The error names its day and the remedy, whether a task or Spark reads it; no output remains."""
    harm(harmed)
    order = Order.EVENT_TIME if processor == "SumUpLately" else None
    with pytest.raises(BackfillFailed, match=rf"file:\S+/ds=1970-01-01/{harmed.name}\W.*{says}") as failed:
        backfill(open_warehouse(tmp_path / "harmed"), processor, tmp_path / "output", order)

    assert "\n" not in str(failed.value)
    assert list((tmp_path / "output").iterdir()) == []


def test_files_of_other_tools_are_read_beside_the_archivers(harmed: Path, tmp_path: Path) -> None:
    """Tasks read the files of an archiver directly."""
    before = backfill(open_warehouse(tmp_path / "harmed"), "Pass", tmp_path / "before", None)
    harmed.rename(harmed.with_name("part-00000.parquet"))
    after = backfill(open_warehouse(tmp_path / "harmed"), "Pass", tmp_path / "after", None)

    assert before.events_in == after.events_in == 20


LOOKUP = """
import penstock as ps

class Reading(ps.Record, frozen=True):
    sensor: str
    at: ps.EventTime
    value: int
    unit: str = "mm"

readings = ps.Category("readings", Reading, key="sensor", event_time="at", buckets=2)
placed = ps.Category("placed", Reading, key="sensor", event_time="at")

class Place(ps.Record, frozen=True):
    name: str

class Placed(ps.LookupJoin):
    reads, writes = readings, placed
    source = ps.lookups.PostgresTable("places", Place, key="sensor", at={url!r})
    on_miss = ps.lookups.OnMiss.DROP
    def key_of(self, event):
        return event.sensor
    def join(self, event, row):
        yield Reading(event.sensor, event.at, event.value, row.name)
"""


def test_a_lookup_runs_where_events_are_processed(archive: Warehouse, tmp_path: Path, postgres: Postgres) -> None:
    """A Python worker of Spark opens the source itself; events without a row are counted."""
    with postgres.session() as session:
        session.execute("CREATE TABLE places (sensor int, name text)")
        session.execute("INSERT INTO places VALUES (0, 'roof'), (2, 'cellar')")
    app = tmp_path / "placing.py"
    app.write_text(LOOKUP.format(url=postgres.url))
    [result] = run_backfill(
        AppName(app, "Placed"),
        archive,
        first=DAY,
        last=DAY,
        output=open_warehouse(tmp_path / "output"),
        master="local[2]",
    )
    rows = pq.read_table(tmp_path / "output" / "category=placed").to_pylist()

    assert sorted((row["value"], row["unit"]) for row in rows) == [
        (n, ["roof", "", "cellar"][n % 3]) for n in range(20) if n % 3 != 1
    ]
    assert (result.events_in, result.events_out, result.rejected) == (20, 13, 7)


def test_an_output_that_fits_no_column_fails_with_a_clear_error(archive: Warehouse, tmp_path: Path) -> None:
    """The stream would send it, but the warehouse cannot store it."""
    with pytest.raises(BackfillFailed, match=r"An output of Misfit does not fit its category"):
        backfill(archive, "Misfit", tmp_path)


def test_a_changed_key_fails_with_a_clear_error(archive: Warehouse, tmp_path: Path) -> None:
    """Events are grouped by their archived key; with another key, the result would be wrong."""
    with pytest.raises(BackfillFailed, match=r"Category rekeyed was archived with another key"):
        backfill(archive, "Regroup", tmp_path)


@pytest.mark.parametrize(
    ("processor", "order", "reason"),
    [
        ("Ends", Order.EVENT_TIME, r"reads several categories \(readings, others\)"),
        ("Announced", Order.ARRIVAL, "uses upstream watermarks"),
        ("Unarchived", None, "others, which is not in the warehouse"),
    ],
)
def test_an_impossible_backfill_is_refused_before_it_starts(
    archive: Warehouse, tmp_path: Path, processor: str, order: Order | None, reason: str
) -> None:
    """The error names the missing part, and nothing is written."""
    with pytest.raises(BackfillRefused, match=reason):
        backfill(archive, processor, tmp_path, order)

    assert list(tmp_path.iterdir()) == []


def test_an_empty_range_of_days_is_refused(archive: Warehouse, tmp_path: Path) -> None:
    """The first day is after the last one."""
    with pytest.raises(BackfillRefused, match="is later than the last day"):
        run_backfill(
            AppName(Path(__file__)),
            archive,
            first=date(1970, 1, 2),
            last=DAY,
            output=open_warehouse(tmp_path),
            master="local[2]",
        )
