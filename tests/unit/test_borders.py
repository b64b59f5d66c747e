"""Where the warehouse ends and the bus begins, whatever is known of a bucket."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.backfill.archive.archived_ends import archived_ends
from penstock.backfill.archive.archiver import Archiver
from penstock.backfill.errors import BackfillRefused
from penstock.backfill.sources.handoff_offsets import CategoryEnds, HandoffOffset, HandoffOffsets, border_of, borders_of
from penstock.backfill.sources.open_segments import OpenSegments
from penstock.backfill.warehouse.layout import Note, StoredFile
from penstock.backfill.warehouse.notes import ARCHIVE
from penstock.backfill.warehouse.warehouse import Warehouse, open_warehouse
from penstock.transport.category_spec import CategorySpec, CategoryState
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Bucket, Outgoing

BUCKET = Bucket("calls", 2)


class Call(ps.Record, frozen=True):
    """Somebody calls."""

    caller: str
    at: ps.EventTime


calls = ps.Category("calls", Call, key="caller", event_time="at", buckets=3)
offsets = st.integers(0, 50)


@settings(deadline=None)
@given(data=st.data())
def test_every_event_is_on_one_side(data: st.DataObject) -> None:
    """It is before the border and archived, or behind it and on the bus; where neither holds for one of them, the run is refused.

    This holds whatever an archiver had noted and committed when it was looked at.
    """
    end = data.draw(offsets, "end")
    start = data.draw(st.integers(0, end), "start")
    # Files first, then the note, then the position; each may be one step behind the one before, or lost with its group.
    committed = data.draw(st.none() | st.integers(0, end), "committed")
    noted = data.draw(st.integers(committed or 0, end), "noted")
    archived = range(noted if committed is None else committed)
    found = CategoryEnds(committed, noted, has_files=True, start=start, end=end)

    try:
        border = border_of(BUCKET, found, "there")
    except BackfillRefused:
        assert set(range(end)) - set(archived) - set(range(start, end))
    else:
        assert border.end == end
        assert set(range(border.offset)) <= set(archived)
        assert set(range(border.offset, end)) <= set(range(start, end))


@settings(deadline=None)
@given(committed=offsets, noted=offsets, start=offsets, end=offsets)
def test_what_does_not_belong_together_is_refused(committed: int, noted: int, start: int, end: int) -> None:
    """A warehouse that says less than the archiver's position, or a bus that ends before it."""
    assume(start <= end and committed > 0 and (noted < committed or committed > end))

    with pytest.raises(BackfillRefused, match=r"^calls/2.* Nothing was started\. "):
        border_of(BUCKET, CategoryEnds(committed, noted, has_files=True, start=start, end=end), "there")


@pytest.mark.parametrize(("committed", "has_files"), [(7, False), (None, True)])
def test_a_warehouse_that_says_nothing_of_what_was_archived_is_refused(committed: int | None, has_files: bool) -> None:
    """A position without a note, and files without one: what they hold is not known."""
    with pytest.raises(BackfillRefused, match="let the archiver run once"):
        border_of(BUCKET, CategoryEnds(committed, None, has_files, 0, 9), "there")


def test_a_bucket_that_was_never_archived_comes_from_the_bus_alone() -> None:
    """From the first event that is there."""
    assert border_of(BUCKET, CategoryEnds(None, None, has_files=False, start=3, end=9), "there") == HandoffOffset(3, 9)


def test_the_archive_alone_ends_at_the_borders() -> None:
    """Whoever reads no bus goes on where the archive ends, and takes nothing from the bus."""
    alone = HandoffOffsets("calls", {0: HandoffOffset(3, 9), 1: HandoffOffset(5, 5)}, 10).archive_only()

    assert alone.ends == {0: 3, 1: 5}
    assert alone.stretches(4) == []


@settings(deadline=None)
@given(borders=st.dictionaries(st.integers(0, 4), st.tuples(offsets, offsets)), length=st.integers(1, 20))
def test_what_is_read_from_the_bus_is_what_lies_behind_the_borders(
    borders: dict[int, tuple[int, int]], length: int
) -> None:
    """In pieces, none of which is longer than was asked for."""
    by_bucket = {number: HandoffOffset(min(pair), max(pair)) for number, pair in borders.items()}
    stretches = HandoffOffsets("calls", by_bucket, 10).stretches(length)

    assert [(one.bucket.number, at) for one in stretches for at in range(one.start, one.end)] == [
        (number, at) for number in sorted(by_bucket) for at in range(*by_bucket[number])
    ]
    assert all(one.end - one.start <= length for one in stretches)


@settings(deadline=None)
@given(border=st.integers(0, 100), segment=st.integers(0, 10), is_compacted=st.booleans())
def test_files_that_may_change_are_those_of_the_open_segment(border: int, segment: int, is_compacted: bool) -> None:
    """Files of segments that were full at the border never change; what lies behind the open one has nothing before the border."""
    file = StoredFile("calls", "2013-01-01", 0, segment * 10, segment * 10 + 10 if is_compacted else -1)
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


def test_the_border_is_where_the_archiver_is(half: tuple[MemoryBus, Warehouse]) -> None:
    """Of each bucket, and the end is that of the bus."""
    found = borders_of(*half, calls.name)

    assert found == HandoffOffsets(calls.name, dict.fromkeys(range(3), HandoffOffset(10, 20)), 4)


def test_an_archiver_whose_group_was_forgotten_begins_at_the_bus_again(half: tuple[MemoryBus, Warehouse]) -> None:
    """It writes anew what the files hold from there on, so all of that comes from the bus."""
    bus, warehouse = half
    forgetful = MemoryBus()
    forgetful.create(CategorySpec.of(calls))
    forgetful.writer().send(calls.name, [Outgoing(None, b'{"caller": "c", "at": 1}')] * 60)

    assert borders_of(forgetful, warehouse, calls.name).offsets == dict.fromkeys(range(3), 0)
    assert borders_of(bus, warehouse, calls.name).offsets == dict.fromkeys(range(3), 10)


class Trimmed(MemoryBus):
    """A bus that has dropped the first events of each bucket."""

    start = 0

    def describe(self, name: str) -> CategoryState:
        """Return a category as it stands."""
        found = super().describe(name)
        return replace(found, starts=dict.fromkeys(found.starts, self.start))


@pytest.mark.parametrize(("start", "end"), [(0, 0), (7, 7), (15, 10)])
def test_an_expired_archiver_has_archived_what_the_bus_dropped(
    half: tuple[MemoryBus, Warehouse], start: int, end: int
) -> None:
    """It begins again at the first event on the bus, so what lies before that one, and was archived, stays."""
    _, warehouse = half
    forgetful = Trimmed()
    forgetful.create(CategorySpec.of(calls))
    forgetful.start = start

    assert archived_ends(forgetful, warehouse, calls.name) == dict.fromkeys(range(3), end)


def test_files_without_notes_are_not_left_out_in_silence(half: tuple[MemoryBus, Warehouse]) -> None:
    """What files there are and how long their segments is not known then."""
    bus, warehouse = half
    warehouse.delete(Note(calls.name, ARCHIVE))

    with pytest.raises(BackfillRefused, match="let the archiver run once"):
        borders_of(bus, warehouse, calls.name)


def test_a_bus_with_fewer_buckets_is_another(half: tuple[MemoryBus, Warehouse]) -> None:
    """What the archive has of the others would be left out."""
    bus = MemoryBus()
    bus.create(CategorySpec(calls.name, 2))

    with pytest.raises(BackfillRefused, match=r"has bucket 2 of calls, which has 2 buckets on this bus"):
        borders_of(bus, half[1], calls.name)
