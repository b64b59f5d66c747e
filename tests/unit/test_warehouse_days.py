"""Complete days, late additions, and days by event time or by arrival."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

import msgspec
import pytest
from support.warehouses import Killed, MemoryWarehouse, dying_warehouse

import penstock as ps
from penstock.backfill import ArchiveRefused
from penstock.backfill.archive import Archiver, LatenessAllowance, archive_status, bucket_opener, group_of, segments
from penstock.backfill.warehouse import (
    DAY_MS,
    SUCCESS,
    DayOf,
    Late,
    Listing,
    Note,
    Success,
    Warehouse,
    day_of,
    read_note,
    table_of,
)
from penstock.state.files import FileStore
from penstock.transport import Bucket, BusUnreachable, CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

HOUR_MS = DAY_MS // 24
BEGIN_MS = 15_000 * DAY_MS
DAYS = [day_of(BEGIN_MS + n * DAY_MS) for n in range(5)]


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    sensor: str
    at: ps.EventTime
    value: int


READINGS = ps.Category("readings", Reading, key="sensor", event_time="at", buckets=2)


class OutageProxy:
    """A bus that is unreachable at times, including its catalog and its readers."""

    def __init__(self, target: Any, parent: OutageProxy | None = None) -> None:
        self._target = target
        self._parent = parent
        self.is_unreachable = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name == "catalog":
            return OutageProxy(found, self)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            if (self._parent or self).is_unreachable:
                raise BusUnreachable(f"{name} was not answered.")
            given = found(*args, **options)
            return OutageProxy(given, self) if name == "reader" else given

        return call


class Interrupted:
    """A file store that runs a callback before the next file is written."""

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self.before_write: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "write" and self.before_write is not None:
            callback, self.before_write = self.before_write, None
            callback()
        return getattr(self._files, name)


class Site:
    """A bus of two buckets, a warehouse and their clock."""

    def __init__(self) -> None:
        self.now_ms = BEGIN_MS + 30 * DAY_MS
        self.now_s = 0.0
        self.bus = MemoryBus(lambda: self.now_ms)
        self.bus.create(CategorySpec.of(READINGS))
        self.warehouse: Warehouse = MemoryWarehouse()
        self.sent = 0

    def send(self, bucket: int, hours: Sequence[float]) -> None:
        """Write an event for each hour since the first day began."""
        for hour in hours:
            reading = Reading(f"s{bucket}", BEGIN_MS + int(hour * HOUR_MS), self.sent)
            self.sent += 1
            self.bus.append("readings", Outgoing(reading.sensor.encode(), msgspec.json.encode(reading), bucket))

    def archiver(self, by: DayOf = DayOf.EVENT_TIME, warehouse: Any = None, bus: Any = None) -> Archiver:
        """Return an archiver whose watermark is an hour behind."""
        return Archiver(
            bus or self.bus,
            [READINGS],
            warehouse or self.warehouse,
            segment_events=8,
            by=by,
            patience=LatenessAllowance(ps.watermarks.BoundedOutOfOrderness(timedelta(hours=1)), timedelta(minutes=1)),
            monotonic_s=lambda: self.now_s,
            now_ms=lambda: self.now_ms,
        )

    def work(self, archiver: Archiver, seconds: int) -> None:
        """Run an archiver for a while, once each second."""
        for _ in range(seconds):
            self.sleep(1)
            archiver.run_once()

    def sleep(self, seconds: int) -> None:
        """Let time pass."""
        self.now_s += seconds
        self.now_ms += seconds * 1000

    def archive(self, by: DayOf = DayOf.EVENT_TIME, warehouse: Warehouse | None = None) -> None:
        """Archive all events."""
        ends = {Bucket("readings", number): end for number, end in self.bus.ends("readings").items()}
        self.archiver(by, warehouse).run(lambda it: it.has_reached(ends))

    @property
    def complete(self) -> list[str]:
        """The days with a success marker."""
        return [day for day, notes in sorted(Listing.of(self.warehouse, "readings").notes.items()) if SUCCESS in notes]

    @property
    def late(self) -> dict[str, int]:
        """The number of recorded late additions, by day."""
        return {
            day.day: sum(one.events for one in day.late)
            for day in archive_status(self.warehouse, "readings")
            if day.late
        }

    @property
    def values(self) -> list[Any]:
        """The value of each event in the warehouse."""
        files = Listing.of(self.warehouse, "readings").files
        return sorted(
            value for file in files for value in table_of(self.warehouse.read(file)).column("value").to_pylist()
        )


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_day_is_complete_when_the_slowest_bucket_has_passed_it(site: Site) -> None:
    """The watermark is an hour behind, so an event at half past midnight does not complete the day before."""
    site.send(0, range(60))
    site.send(1, [*range(24), 24.5])
    site.archive()
    too_early = site.complete
    site.send(1, [25])
    site.archive()

    assert (too_early, site.complete) == ([], DAYS[:1])


def test_a_silent_bucket_delays_a_day_no_longer_than_declared(site: Site) -> None:
    """The bucket may never have had an event."""
    site.send(0, range(60))
    archiver = site.archiver()
    site.work(archiver, 60)
    archiver.save()
    waited = site.complete
    site.work(archiver, 5)
    archiver.save()

    assert (waited, site.complete) == ([], DAYS[:2])


@pytest.mark.parametrize("disturbed", ["an outage", "a pause", "a new owner"])
def test_an_interruption_does_not_make_a_bucket_idle(site: Site, disturbed: str) -> None:
    """Its delayed events arrive afterwards, so it must be silent for the full time again."""
    bus = OutageProxy(site.bus)
    site.send(0, range(60))
    archiver = site.archiver(bus=bus)
    site.work(archiver, 50)
    archiver.save()
    if disturbed == "an outage":
        bus.is_unreachable = True
        site.work(archiver, 3_600)
        bus.is_unreachable = False
        site.work(archiver, 2)
    elif disturbed == "a pause":
        site.sleep(3_600)
    else:
        site.bus.kill_members(group_of("readings"))
        site.sleep(3_600)
        archiver = site.archiver()
        site.work(archiver, 3)
    archiver.save()
    early = site.complete
    site.send(1, [3, 26])
    site.work(archiver, 2)
    archiver.save()
    waited, late = site.complete, site.late
    site.work(archiver, 70)
    archiver.save()

    assert (early, waited, late) == ([], DAYS[:1], {})
    assert (site.complete, site.late) == (DAYS[:2], {})


def test_a_bucket_with_occasional_events_is_not_idle(site: Site) -> None:
    """Each look at the bus finds the bucket read to its end."""
    site.send(0, range(60))
    archiver = site.archiver()
    for _ in range(10):
        site.send(1, [1])
        site.work(archiver, 30)
    archiver.save()

    assert site.complete == []


def test_a_day_waits_for_an_event_that_arrives_during_a_write(site: Site) -> None:
    """A bucket that was idle before a long write may not be idle after it."""
    site.send(0, range(60))
    files: Any = Interrupted(site.warehouse.files)
    archiver = site.archiver(warehouse=Warehouse(files))
    site.work(archiver, 70)
    site.send(0, [61])
    site.work(archiver, 1)
    files.before_write = lambda: site.send(1, [3])
    archiver.save()
    early = site.complete
    site.work(archiver, 70)
    archiver.save()

    assert (early, site.complete, site.late) == ([], DAYS[:2], {})


@pytest.mark.parametrize("has_unread_event", [False, True])
def test_another_archivers_bucket_is_idle_only_at_its_recorded_end(site: Site, has_unread_event: bool) -> None:
    """Events that the other archiver has not read yet do not count as silence."""
    first, second = archivers = [site.archiver(), site.archiver()]
    for _ in range(5):
        for archiver in archivers:
            site.work(archiver, 1)
    [(own, bucket)], [other] = first._archives[0]._buckets.items(), second._archives[0]._buckets
    site.send(own, range(60))
    site.send(other, [1])
    for archiver in (second, first):
        site.work(archiver, 2)
        archiver.save()
    if has_unread_event:
        site.send(other, [2])
    site.work(first, 70)
    first.save()

    assert (DAYS[1] in [closing.day for closing in bucket.days.closings]) == (not has_unread_event)


def test_one_event_from_the_far_future_completes_nothing(site: Site) -> None:
    """It is archived, but does not move the watermark."""
    for bucket in (0, 1):
        site.send(bucket, [0, 1, 24 * 365])
    site.archive()

    assert (site.complete, len(site.values)) == ([], 6)


def test_late_additions_are_archived_and_recorded(site: Site) -> None:
    """The day may or may not have had events before."""
    for bucket in (0, 1):
        site.send(bucket, range(60))
    site.archive()
    before, since = site.late, read_note(site.warehouse, Note("readings", SUCCESS, DAYS[0]), Success)
    site.now_ms += 1000
    site.send(1, [3, 4, -20, 61])
    site.archive()
    site.send(0, [62])
    site.archive()
    [note] = [name for name in Listing.of(site.warehouse, "readings").notes[DAYS[0]] if name.startswith("_late-")]
    late = read_note(site.warehouse, Note("readings", note, DAYS[0]), Late)

    assert (before, site.late) == ({}, {day_of(BEGIN_MS - DAY_MS): 1, DAYS[0]: 2})
    assert site.complete == [day_of(BEGIN_MS - DAY_MS), *DAYS[:2]]
    assert site.values == list(range(site.sent))
    assert read_note(site.warehouse, Note("readings", SUCCESS, DAYS[0]), Success) == since
    assert late is not None
    assert [(late.bucket, one.segment, one.events, one.first_arrived_ms) for one in late.additions] == [
        (1, 56, 2, site.now_ms)
    ]


def test_a_kill_at_any_call_changes_neither_days_nor_late_additions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a day is recorded before it takes effect, and late events are counted from there."""
    monkeypatch.setattr(segments, "WRITERS", 1)
    monkeypatch.setattr(bucket_opener, "WRITERS", 1)

    def run_with_kill(calls: int) -> tuple[bool, Site]:
        site = Site()
        for bucket in (0, 1):
            site.send(bucket, range(50))
        site.archive()
        for bucket in (0, 1):
            site.send(bucket, [5, 6, 73, 74])
        try:
            site.archive(warehouse=dying_warehouse(site.warehouse, calls))
        except Killed:
            site.bus.kill_members(group_of("readings"))
            site.archive()
            site.archive()
            return True, site
        return False, site

    _, undisturbed = run_with_kill(10**6)
    for calls in count(1):
        killed, site = run_with_kill(calls)
        assert (site.values, site.late, site.complete) == (undisturbed.values, undisturbed.late, DAYS[:3]), calls
        if not killed:
            break
    assert undisturbed.late == {DAYS[0]: 4}
    assert calls > 20


def test_two_archivers_complete_a_day_together(site: Site) -> None:
    """Each archiver closes its own buckets, and the last one marks the day."""
    for bucket in (0, 1):
        site.send(bucket, range(30))
    archivers = [site.archiver(), site.archiver()]
    for _ in range(4):
        for archiver in archivers:
            archiver.run_once()
    archivers[0].save()
    first = site.complete
    for archiver in (archivers[1], *archivers):
        archiver.save()

    assert (first, site.complete) == ([], DAYS[:1])
    assert site.values == list(range(60))


def test_by_arrival_an_event_is_in_the_day_of_its_arrival(site: Site) -> None:
    """A day is complete when all buckets have passed it."""
    for bucket in (0, 1):
        site.send(bucket, [0, 50])
    site.now_ms += DAY_MS + 2 * HOUR_MS
    for bucket in (0, 1):
        site.send(bucket, [0])
    site.archive(DayOf.ARRIVAL)
    days = [day_of(BEGIN_MS + n * DAY_MS) for n in (30, 31)]

    assert Listing.of(site.warehouse, "readings").days == days
    assert (site.complete, site.late) == (days[:1], {})


def test_an_archive_cannot_change_between_event_time_and_arrival(site: Site) -> None:
    """Its days would have two meanings."""
    site.send(0, range(3))
    site.archive(DayOf.ARRIVAL)
    with pytest.raises(ArchiveRefused, match=r"by arrival, not by event-time.*Continue with `--by arrival`"):
        site.archive(DayOf.EVENT_TIME)

    assert site.values == [0, 1, 2]


def test_an_archive_cannot_change_its_segment_length(site: Site) -> None:
    """Files of two lengths would contain the same events."""
    site.send(0, range(3))
    site.archive()
    with pytest.raises(ArchiveRefused, match="segments of 8 offsets, not of 9"):
        Archiver(site.bus, [READINGS], site.warehouse, segment_events=9).run(lambda it: it.has_reached({}))
