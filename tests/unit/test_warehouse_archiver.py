"""The archiver: every event once, in the same files, after any failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from itertools import count
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from support.warehouses import Killed, MemoryWarehouse, dying_warehouse

import penstock as ps
from penstock.backfill import ArchiveGap, ArchiveRefused
from penstock.backfill.archive import Archiver, bucket_opener, group_of, segments
from penstock.backfill.warehouse import DAY_MS, ArchivedFile, Listing, Warehouse, bucket_notes, open_warehouse
from penstock.processors.time import BucketProgress
from penstock.transport import Bucket, CategorySpec, CategoryState, Outgoing
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.log import StoredMessage

SEGMENT = 100
SHORT_SEGMENT = 20


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    sensor: str
    at: ps.EventTime
    value: int


READINGS = ps.Category("readings", Reading, key="sensor", event_time="at", buckets=3)


class ForgettingBus(MemoryBus):
    """A bus that has dropped the events before an offset, like retention."""

    kept_from = 0

    def describe(self, name: str) -> CategoryState:
        state = super().describe(name)
        return replace(state, starts=dict.fromkeys(state.ends, self.kept_from))

    def slice(self, bucket: Bucket, start: int, limit: int) -> list[StoredMessage]:
        return super().slice(bucket, max(start, self.kept_from), limit)


def readings(first: int, count: int) -> list[Reading]:
    """Return readings of twenty sensors over three days, out of order."""
    return [
        Reading(f"s{n % 20}", (n * 7_919_000) % (3 * DAY_MS) + 15_000 * DAY_MS, n) for n in range(first, first + count)
    ]


def send(bus: MemoryBus, events: Sequence[Reading | bytes]) -> None:
    """Write events to the category."""
    for event in events:
        key, value = ("s0", event) if isinstance(event, bytes) else (event.sensor, msgspec.json.encode(event))
        bus.append(READINGS.name, Outgoing(key.encode(), value))


def bus_with(events: Sequence[Reading | bytes]) -> ForgettingBus:
    """Return a bus with the category and some events."""
    bus = ForgettingBus()
    bus.create(CategorySpec.of(READINGS))
    send(bus, events)
    return bus


def archive(
    bus: MemoryBus, warehouse: Warehouse, *, accept_gaps: bool = False, segment_events: int = SEGMENT
) -> Archiver:
    """Archive all events on the bus."""
    archiver = Archiver(bus, [READINGS], warehouse, segment_events=segment_events, accept_gaps=accept_gaps)
    ends = {Bucket(READINGS.name, number): end for number, end in bus.describe(READINGS.name).ends.items()}
    archiver.run(lambda it: it.has_reached(ends))
    return archiver


def rows(warehouse: Warehouse) -> dict[ArchivedFile, list[tuple[int, int]]]:
    """Return the offset and value of each event by file, for any owner."""
    stored = {file: pq.read_table(BytesIO(warehouse.read(file)), partitioning=None) for file in files_of(warehouse)}
    return {
        file._replace(epoch=0): [(row["_offset"], row["value"]) for row in table.to_pylist()]
        for file, table in stored.items()
    }


def files_of(warehouse: Warehouse) -> tuple[ArchivedFile, ...]:
    """Return the files of the category."""
    return Listing.of(warehouse, READINGS.name).files


def times(warehouse: Warehouse) -> list[BucketProgress]:
    """Return the recorded event time of each bucket at the committed position."""
    notes = bucket_notes(warehouse, "readings")
    return [notes[number].marks[-1].progress for number in range(3)]


def values(warehouse: Warehouse) -> list[int]:
    """Return the value of every event in the warehouse."""
    return sorted(value for stored in rows(warehouse).values() for _, value in stored)


def test_every_event_is_archived_with_its_position(tmp_path: Path) -> None:
    """The bucket, the offset and the event time of an event determine its file."""
    bus, warehouse = bus_with(readings(0, 1000)), open_warehouse(tmp_path)
    metrics = archive(bus, warehouse).metrics
    table = pq.read_table(BytesIO(warehouse.read(files_of(warehouse)[0])), partitioning=None)

    assert values(warehouse) == list(range(1000))
    assert (metrics.events, metrics.files, metrics.undecodable) == (1000, len(files_of(warehouse)), 0)
    assert table.column("_key").to_pylist() == table.column("sensor").to_pylist()
    assert table.column("_event_time").to_pylist() == table.column("at").to_pylist()
    for file, stored in rows(warehouse).items():
        assert file.segment % SEGMENT == 0
        assert all(file.segment <= offset < file.segment + SEGMENT for offset, _ in stored)


def test_a_kill_at_any_warehouse_call_does_not_change_the_final_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next archiver restores files and notes of the committed position, and reads the rest again."""
    monkeypatch.setattr(segments, "WRITERS", 1)
    monkeypatch.setattr(bucket_opener, "WRITERS", 1)
    undisturbed = MemoryWarehouse()
    archive(bus_with(readings(0, 110)), undisturbed, segment_events=SHORT_SEGMENT)
    for calls in count(1):
        bus, warehouse = bus_with(readings(0, 90)), MemoryWarehouse()
        try:
            archive(bus, dying_warehouse(warehouse, calls), segment_events=SHORT_SEGMENT)
        except Killed:
            bus.kill_members(group_of("readings"))
            send(bus, readings(90, 20))
            archive(bus, warehouse, segment_events=SHORT_SEGMENT)
            assert (rows(warehouse), times(warehouse)) == (rows(undisturbed), times(undisturbed)), calls
            continue
        break

    assert calls > 20


def test_the_next_owner_rewrites_an_unfinished_segment(tmp_path: Path) -> None:
    """Several short runs leave the same files as one long run."""
    bus, warehouse = bus_with([]), open_warehouse(tmp_path / "often")
    for first in range(0, 500, 40):
        send(bus, readings(first, 40))
        archive(bus, warehouse)
    once = open_warehouse(tmp_path / "once")
    archive(bus_with(readings(0, 520)), once)

    assert rows(warehouse) == rows(once)
    assert Listing.of(warehouse, "readings").superseded == ()


def test_events_stay_archived_after_they_expire_on_the_bus(tmp_path: Path) -> None:
    """A slow category's segment is open for longer than the bus keeps its events."""
    bus, warehouse = bus_with(readings(0, 200)), open_warehouse(tmp_path)
    archive(bus, warehouse)
    bus.kept_from = min(bus.describe("readings").ends.values())
    send(bus, readings(200, 100))
    archive(bus, warehouse)

    assert values(warehouse) == list(range(300))


def test_a_gap_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    """Events that expired before they were archived are reported."""
    bus, warehouse = bus_with(readings(0, 30)), open_warehouse(tmp_path)
    archive(bus, warehouse)
    send(bus, readings(30, 270))
    bus.kept_from = min(bus.describe("readings").ends.values()) - 5
    with pytest.raises(ArchiveGap, match=r"offsets expired .*`accept_gaps=True`"):
        archive(bus, warehouse)
    bus.kill_members(group_of("readings"))
    metrics = archive(bus, warehouse, accept_gaps=True).metrics

    assert metrics.expired == 300 - len(values(warehouse)) > 0


@pytest.mark.parametrize("running", [False, True])
def test_a_recreated_category_does_not_overwrite_the_archive(tmp_path: Path, *, running: bool) -> None:
    """Its offsets belong to other events than the files; the group's positions were deleted with the topic."""
    bus, warehouse = bus_with(readings(0, 300)), open_warehouse(tmp_path)
    archiver = Archiver(bus, [READINGS], warehouse, segment_events=SEGMENT)
    for _ in range(3):
        archiver.run_once()
    archiver.save()
    before = rows(warehouse)
    if not running:
        bus.kill_members(group_of("readings"))
        bus.forget_group(group_of("readings"))
    bus.delete("readings")
    bus.create(CategorySpec.of(READINGS))
    send(bus, readings(300, 400))

    with pytest.raises(ArchiveRefused, match="readings was deleted and created again since it was archived"):
        archiver.save() if running else archive(bus, warehouse)
    assert rows(warehouse) == before


def test_undecodable_messages_are_counted_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are malformed, or contain an integer beyond 64 bits."""
    bad = [b"{", b'{"sensor":"s0","at":1,"value":123456789012345678901234}']
    bus, warehouse = bus_with([*readings(0, 20), *bad, *readings(20, 20)]), open_warehouse(tmp_path)
    metrics = archive(bus, warehouse).metrics

    assert (metrics.events, metrics.undecodable) == (40, 2)
    assert values(warehouse) == list(range(40))
    assert "2 messages" in caplog.text


def test_archivers_share_the_buckets(tmp_path: Path) -> None:
    """The old owner of a moving bucket writes it before the new owner restores its open segment."""
    bus, warehouse = bus_with(readings(0, 400)), open_warehouse(tmp_path)
    first = Archiver(bus, [READINGS], warehouse, segment_events=SEGMENT)
    first.run_once()
    second = Archiver(bus, [READINGS], warehouse, segment_events=SEGMENT)
    for archiver in (second, first, second):
        archiver.run_once()
    send(bus, readings(400, 200))
    for archiver in (second, first):
        archiver.run(
            lambda it: it.has_reached({Bucket("readings", n): bus.describe("readings").ends[n] for n in range(3)})
        )

    assert values(warehouse) == list(range(600))


def test_buffered_events_are_written_after_the_declared_delay(tmp_path: Path) -> None:
    """Their segment may not be full."""
    bus, warehouse, now_s = bus_with(readings(0, 30)), open_warehouse(tmp_path), [0.0]
    archiver = Archiver(
        bus,
        [READINGS],
        warehouse,
        segment_events=SEGMENT,
        write_every=timedelta(minutes=5),
        monotonic_s=lambda: now_s[0],
    )
    archiver.run_once()
    before = values(warehouse)
    now_s[0] = 301.0
    archiver.run_once()

    assert (before, values(warehouse)) == ([], list(range(30)))
