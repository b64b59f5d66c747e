"""Handoff offsets between the warehouse and the bus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.archive import Archiver, archived_ends
from penstock.backfill.sources import HandoffOffsets, handoff_offsets
from penstock.backfill.sources.handoff_offsets import CategoryEnds, HandoffOffset, handoff_offset
from penstock.backfill.warehouse import ARCHIVE, ArchivedFile, Note, OpenSegments, Warehouse, open_warehouse
from penstock.transport import Bucket, CategorySpec, CategoryState, Outgoing
from penstock.transport.memory import MemoryBus

BUCKET = Bucket("calls", 2)


class Call(ps.Record, frozen=True):
    """A phone call."""

    caller: str
    at: ps.EventTime


calls = ps.Category("calls", Call, key="caller", event_time="at", buckets=3)
offsets = st.integers(0, 50)


@settings(deadline=None)
@given(data=st.data())
def test_every_event_is_on_one_side(data: st.DataObject) -> None:
    """Each event is archived before the handoff offset or on the bus after it; otherwise the run is refused.

    This applies to every combination of an archiver's notes and committed positions.
    """
    end = data.draw(offsets, "end")
    start = data.draw(st.integers(0, end), "start")
    # Files first, then the note, then the position; each may be one step behind the one before, or lost with its group.
    committed = data.draw(st.none() | st.integers(0, end), "committed")
    noted = data.draw(st.integers(committed or 0, end), "noted")
    archived = range(noted if committed is None else committed)
    found = CategoryEnds(committed, noted, has_files=True, start=start, end=end)

    try:
        border = handoff_offset(BUCKET, found, "there")
    except BackfillRefused:
        assert set(range(end)) - set(archived) - set(range(start, end))
    else:
        assert border.end == end
        assert set(range(border.offset)) <= set(archived)
        assert set(range(border.offset, end)) <= set(range(start, end))


@settings(deadline=None)
@given(committed=offsets, noted=offsets, start=offsets, end=offsets)
def test_a_warehouse_of_another_bus_is_refused(committed: int, noted: int, start: int, end: int) -> None:
    """Its notes are behind the archiver's position, or the bus ends before that position."""
    assume(start <= end and committed > 0 and (noted < committed or committed > end))

    with pytest.raises(BackfillRefused, match=r"^calls/2.* Nothing was started\. "):
        handoff_offset(BUCKET, CategoryEnds(committed, noted, has_files=True, start=start, end=end), "there")


@pytest.mark.parametrize(("committed", "has_files"), [(7, False), (None, True)])
def test_a_warehouse_without_notes_is_refused(committed: int | None, has_files: bool) -> None:
    """Such a warehouse has a committed position, or files of unknown extent."""
    with pytest.raises(BackfillRefused, match="run the archiver once"):
        handoff_offset(BUCKET, CategoryEnds(committed, None, has_files, 0, 9), "there")


def test_a_bucket_that_was_never_archived_comes_from_the_bus_alone() -> None:
    """It is read from its first event on the bus."""
    assert handoff_offset(BUCKET, CategoryEnds(None, None, has_files=False, start=3, end=9), "there") == HandoffOffset(
        3, 9
    )


def test_the_archive_alone_ends_at_the_handoff_offsets() -> None:
    """A run without the bus reads no event from it."""
    alone = HandoffOffsets("calls", {0: HandoffOffset(3, 9), 1: HandoffOffset(5, 5)}, 10).archive_only()

    assert alone.ends == {0: 3, 1: 5}
    assert alone.offset_ranges(4) == []


@settings(deadline=None)
@given(borders=st.dictionaries(st.integers(0, 4), st.tuples(offsets, offsets)), length=st.integers(1, 20))
def test_the_bus_is_read_from_the_handoff_offsets_on(borders: dict[int, tuple[int, int]], length: int) -> None:
    """It is read in ranges of a limited length."""
    by_bucket = {number: HandoffOffset(min(pair), max(pair)) for number, pair in borders.items()}
    offset_ranges = HandoffOffsets("calls", by_bucket, 10).offset_ranges(length)

    assert [(one.bucket.number, at) for one in offset_ranges for at in range(one.start, one.end)] == [
        (number, at) for number in sorted(by_bucket) for at in range(*by_bucket[number])
    ]
    assert all(one.end - one.start <= length for one in offset_ranges)


@settings(deadline=None)
@given(border=st.integers(0, 100), segment=st.integers(0, 10), is_compacted=st.booleans())
def test_only_files_of_the_open_segment_may_change(border: int, segment: int, is_compacted: bool) -> None:
    """Full segments never change; files after the open segment are beyond the handoff offset."""
    file = ArchivedFile("calls", "2013-01-01", 0, segment * 10, segment * 10 + 10 if is_compacted else -1)
    open_from = OpenSegments.at({0: border}, 10)

    assert open_from.is_growing(file) == (not is_compacted and segment * 10 <= border < segment * 10 + 10)
    assert open_from.is_beyond(file) == (segment * 10 > border)
    assert OpenSegments.last_of([file]).is_growing(file) == (not is_compacted)


@pytest.fixture
def half(tmp_path: Path) -> tuple[MemoryBus, Warehouse]:
    """A bus with a category of three buckets, of which the first half is archived, and its warehouse."""
    bus, warehouse = MemoryBus(), open_warehouse(tmp_path)
    bus.create(CategorySpec.of(calls))
    messages = [Outgoing(None, b'{"caller": "c", "at": 1}')] * 30
    bus.writer().send(calls.name, messages)
    ends = {Bucket(calls.name, number): 10 for number in range(3)}
    Archiver(bus, [calls], warehouse, segment_events=4).run(lambda it: it.has_reached(ends))
    bus.writer().send(calls.name, messages)
    return bus, warehouse


def test_the_handoff_offset_is_the_archivers_position(half: tuple[MemoryBus, Warehouse]) -> None:
    """Each bucket has its own position, and its end is the end on the bus."""
    found = handoff_offsets(*half, calls.name)

    assert found == HandoffOffsets(calls.name, dict.fromkeys(range(3), HandoffOffset(10, 20)), 4)


def test_without_a_group_the_bus_is_read_from_its_start(half: tuple[MemoryBus, Warehouse]) -> None:
    """An archiver would rewrite the files from there on."""
    bus, warehouse = half
    forgetful = MemoryBus()
    forgetful.create(CategorySpec.of(calls))
    forgetful.writer().send(calls.name, [Outgoing(None, b'{"caller": "c", "at": 1}')] * 60)

    assert handoff_offsets(forgetful, warehouse, calls.name).offsets == dict.fromkeys(range(3), 0)
    assert handoff_offsets(bus, warehouse, calls.name).offsets == dict.fromkeys(range(3), 10)


class Trimmed(MemoryBus):
    """A bus that has dropped the first events of each bucket."""

    start = 0

    def describe(self, name: str) -> CategoryState:
        """Return a category's current offsets."""
        found = super().describe(name)
        return replace(found, starts=dict.fromkeys(found.starts, self.start))


@pytest.mark.parametrize(("start", "end"), [(0, 0), (7, 7), (15, 10)])
def test_expired_events_come_from_the_archive(half: tuple[MemoryBus, Warehouse], start: int, end: int) -> None:
    """The archiver starts again at the first event on the bus, and earlier files stay."""
    _, warehouse = half
    forgetful = Trimmed()
    forgetful.create(CategorySpec.of(calls))
    forgetful.start = start

    assert archived_ends(forgetful, warehouse, calls.name) == dict.fromkeys(range(3), end)


def test_files_without_notes_are_refused(half: tuple[MemoryBus, Warehouse]) -> None:
    """The length of their segments is unknown."""
    bus, warehouse = half
    warehouse.delete(Note(calls.name, ARCHIVE))

    with pytest.raises(BackfillRefused, match="run the archiver once"):
        handoff_offsets(bus, warehouse, calls.name)


def test_a_bus_with_fewer_buckets_is_refused(half: tuple[MemoryBus, Warehouse]) -> None:
    """The archived events of the other buckets would be missing."""
    bus = MemoryBus()
    bus.create(CategorySpec(calls.name, 2))

    with pytest.raises(BackfillRefused, match=r"has bucket 2 of calls, which has 2 buckets on this bus"):
        handoff_offsets(bus, half[1], calls.name)
