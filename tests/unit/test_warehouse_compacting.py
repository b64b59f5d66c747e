"""Compaction: fewer files with each event once, also if it is killed or archivers continue."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest
from support.warehouses import Killed, MemoryWarehouse, dying_warehouse

import penstock as ps
from penstock.backfill import ArchiveRefused
from penstock.backfill.archive import Archiver, LatenessAllowance, compact, group_of
from penstock.backfill.warehouse import DAY_MS, Listing, Warehouse, day_of, table_of
from penstock.transport import Bucket, CategorySpec, Outgoing, Position
from penstock.transport.memory import MemoryBus

SEGMENT = 8
NOW_MS = 15_000 * DAY_MS
FIRST_DAY = day_of(0)


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    sensor: str
    at: ps.EventTime
    value: int


READINGS = ps.Category("readings", Reading, key="sensor", event_time="at", buckets=2)


class Site:
    """A bus, and a warehouse whose first day is complete, with several segments of each bucket."""

    def __init__(self) -> None:
        self.bus = MemoryBus(lambda: NOW_MS)
        self.bus.create(CategorySpec.of(READINGS))
        self.warehouse = MemoryWarehouse()
        self.sent = 0
        self.send(*[hour * DAY_MS // 24 for hour in range(36)])
        self.archive()

    def send(self, *times: int) -> None:
        """Write an event of each time to each bucket."""
        for time in times:
            for bucket in (0, 1):
                reading = Reading(f"s{bucket}", time, self.sent)
                self.sent += 1
                self.bus.append("readings", Outgoing(b"k", msgspec.json.encode(reading), bucket))

    def archive(self) -> None:
        """Archive all events."""
        ends = {Bucket("readings", number): end for number, end in self.bus.ends("readings").items()}
        Archiver(
            self.bus,
            [READINGS],
            self.warehouse,
            segment_events=SEGMENT,
            patience=LatenessAllowance(ps.watermarks.BoundedOutOfOrderness()),
            now_ms=lambda: NOW_MS,
        ).run(lambda it: it.has_reached(ends))

    @property
    def files(self) -> list[str]:
        """The names of the first day's files, except superseded files."""
        return [file.path.rpartition("/")[2] for file in Listing.of(self.warehouse, "readings").of_day(FIRST_DAY)]

    @property
    def is_whole(self) -> bool:
        """Whether the listed files contain every event once."""
        return values(self.warehouse) == list(range(self.sent))


def values(warehouse: Warehouse) -> list[int]:
    """Return the value of each event."""
    files = Listing.of(warehouse, "readings").files
    rows = [row for file in files for row in table_of(warehouse.read(file)).to_pylist()]
    return sorted(row["value"] for row in rows)


@pytest.fixture
def site() -> Site:
    return Site()


def test_finished_segments_of_a_complete_day_become_one_file(site: Site) -> None:
    """An incomplete day stays unchanged, and a second compaction does nothing."""
    before = Listing.of(site.warehouse, "readings").of_day(day_of(DAY_MS))
    [first, second] = compact(site.warehouse, "readings")

    assert (first.files, first.events, second.bucket) == (3, 24, 1)
    assert site.files == [f"bucket-{bucket:05d}-00000000000000000000-00000000000000000016.parquet" for bucket in (0, 1)]
    assert Listing.of(site.warehouse, "readings").of_day(day_of(DAY_MS)) == before
    assert list(compact(site.warehouse, "readings")) == []
    assert site.is_whole


def test_only_selected_days_are_compacted(site: Site) -> None:
    """Other days stay unchanged."""
    assert list(compact(site.warehouse, "readings", lambda day: day != FIRST_DAY)) == []


def test_no_compacted_file_exceeds_the_limit(site: Site) -> None:
    """The limit applies to the sum of the original sizes."""
    size = max(Listing.of(site.warehouse, "readings").sizes.values())
    done = list(compact(site.warehouse, "readings", limit_bytes=2 * size))

    assert [one.files for one in done] == [2, 2]
    assert site.is_whole


def test_a_kill_at_any_call_leaves_every_event_once(site: Site) -> None:
    """Readers find each event once after the kill and after the next run."""
    for calls in count(1):
        site = Site()
        try:
            list(compact(dying_warehouse(site.warehouse, calls), "readings"))
        except Killed:
            assert site.is_whole, calls
            list(compact(site.warehouse, "readings"))
            assert site.is_whole, calls
            assert Listing.of(site.warehouse, "readings").superseded == ()
            assert len(site.files) == 2
            continue
        break

    assert calls > 10


def test_an_open_segment_is_not_compacted(site: Site) -> None:
    """It receives the day's late events, and is compacted when it is full."""
    site.send(0, DAY_MS // 2)
    site.archive()
    list(compact(site.warehouse, "readings"))
    beside = site.files
    site.send(1)
    site.archive()
    whole_beside = site.is_whole
    site.send(*[2 * DAY_MS] * 4 * SEGMENT)
    site.archive()
    list(compact(site.warehouse, "readings"))

    assert (len(beside), len(site.files)) == (4, 2)
    assert whole_beside
    assert site.is_whole


def test_a_reset_group_does_not_write_compacted_events_again(site: Site) -> None:
    """The archiver reads all events again, and skips compacted segments."""
    list(compact(site.warehouse, "readings"))
    before = site.files
    for offset in (0, 4):
        site.bus.set_committed(group_of("readings"), [Position(Bucket("readings", n), offset) for n in (0, 1)])
        site.archive()

    assert site.is_whole
    assert site.files == before


def test_a_compaction_of_an_unknown_category_is_refused() -> None:
    """The name may be mistyped."""
    with pytest.raises(ArchiveRefused, match=r"has no archive of raedings .* Archive it"):
        list(compact(MemoryWarehouse(), "raedings"))
