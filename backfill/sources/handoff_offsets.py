"""Handoff offsets between the archive of a category and the bus, fixed once per run.

    archive: all events before the handoff offset | bus: events from the handoff offset to the end

The handoff offset is the archiver's committed position: events before it are in the warehouse and stay there, even if an archiver runs
at the same time. Files beyond it are ignored, since a new owner of the bucket may be rewriting them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...processors import counted
from ...transport import Bucket, Bus, OffsetRange
from ..archive import group_of
from ..errors import BackfillRefused
from ..warehouse import Listing, Warehouse, bucket_notes, settings_of


class CategoryEnds(NamedTuple):
    """Positions of a bucket on the bus and in the warehouse.

    Args:
        committed: the archiver's committed position; None without one.
        noted: the archived position according to the warehouse; None without a note.
        has_files: whether the warehouse has files of the bucket.
        start: the first offset on the bus.
        end: the offset after the last event that is not in an open transaction.
    """

    committed: int | None
    noted: int | None
    has_files: bool
    start: int
    end: int


class HandoffOffset(NamedTuple):
    """The ranges of a bucket's events.

    Args:
        offset: events before it come from the archive, the others from the bus.
        end: the offset after the last event.
    """

    offset: int
    end: int


@dataclass(frozen=True)
class HandoffOffsets:
    """The handoff offsets of one category.

    Args:
        category: its name.
        by_bucket: the handoff offset of each bucket.
        segment_events: how many offsets share a file of the archive; 0 without an archive.
        dropped: the number of expired offsets in buckets that were never archived.
    """

    category: str
    by_bucket: Mapping[int, HandoffOffset]
    segment_events: int
    dropped: int = 0

    @property
    def offsets(self) -> dict[int, int]:
        """The handoff offset of each bucket."""
        return {number: handoff.offset for number, handoff in self.by_bucket.items()}

    @property
    def ends(self) -> dict[int, int]:
        """The end of each bucket."""
        return {number: handoff.end for number, handoff in self.by_bucket.items()}

    def archive_only(self) -> HandoffOffsets:
        """Return the same handoff offsets with each bucket ending where its archive ends."""
        ends = {number: HandoffOffset(handoff.offset, handoff.offset) for number, handoff in self.by_bucket.items()}
        return replace(self, by_bucket=ends)

    def offset_ranges(self, offsets: int) -> list[OffsetRange]:
        """Return the ranges to read from the bus, each of at most `offsets` offsets."""
        whole = (OffsetRange(Bucket(self.category, n), *handoff) for n, handoff in sorted(self.by_bucket.items()))
        return [piece for offset_range in whole for piece in offset_range.cut(offsets)]


def handoff_offsets(bus: Bus, warehouse: Warehouse, category: str) -> HandoffOffsets:
    """Find the current handoff offsets of a category.

    Raises:
        BackfillRefused: events are neither in the warehouse nor on the bus, or the warehouse belongs to another bus.
        MissingCategory: the category is not on the bus.
        WarehouseError: the warehouse cannot be read.
    """
    # In this order: the archiver writes its note before it commits, and the end only grows.
    committed = bus.catalog.committed(group_of(category), category)
    files = {file.bucket for file in Listing.of(warehouse, category).files}
    terms = settings_of(warehouse, category)
    notes = bucket_notes(warehouse, category) if terms else {}
    starts, ends = bus.catalog.describe(category).starts, bus.catalog.stable_ends(category)
    found = {
        number: CategoryEnds(
            committed.get(number),
            notes[number].marks[-1].offset if number in notes else None,
            number in files,
            start,
            ends[number],
        )
        for number, start in starts.items()
    }
    _refuse_others(category, files - starts.keys(), len(starts), warehouse)
    by_bucket = {
        number: handoff_offset(Bucket(category, number), progress, warehouse.location)
        for number, progress in found.items()
    }
    dropped = sum(
        progress.start for progress in found.values() if progress.committed is None and progress.noted is None
    )
    return HandoffOffsets(category, by_bucket, terms.segment_events if terms else 0, dropped)


def _refuse_others(category: str, others: Collection[int], buckets: int, warehouse: Warehouse) -> None:
    if others:
        raise BackfillRefused(
            f"The warehouse {warehouse.location} has bucket {max(others)} of {category}, which has {counted(buckets, 'bucket')} on this bus: another "
            "category was archived. Nothing was started. Pass a bus and a warehouse that belong together."
        )


def handoff_offset(bucket: Bucket, found: CategoryEnds, location: str) -> HandoffOffset:
    """Return the handoff offset of a bucket.

    Args:
        bucket: the bucket.
        found: its positions.
        location: the warehouse, for messages.

    Raises:
        BackfillRefused: events are missing between the archive and the bus, or the warehouse belongs to another bus.
    """
    if found.noted is None and found.committed is None and not found.has_files:
        return HandoffOffset(found.start, found.end)
    if found.noted is None or found.noted < (found.committed or 0):
        raise BackfillRefused(
            f"{bucket}: {_where(found)}, but the warehouse {location} has no note that the earlier events are archived. Nothing was started. "
            "Check that this bus is archived to this warehouse. If it is, run the archiver once (penstock archive run), which writes the "
            "note."
        )
    archived = found.noted if found.committed is None else found.committed
    if archived > found.end:
        raise BackfillRefused(
            f"{bucket} is archived up to offset {archived}, but ends at offset {found.end} on this bus: the category was recreated, or {location} "
            "is the archive of another bus. Nothing was started. Pass a bus and a warehouse that belong together."
        )
    if archived < found.start:
        raise BackfillRefused(
            f"{bucket} is archived up to offset {archived}, but starts at offset {found.start} on the bus: "
            f"neither has the {counted(found.start - archived, 'offset')} between. Nothing was started. Choose a last day that is archived (`--to DAY`); or, to "
            "continue without these events, let the archiver skip the gap and run this command again."
        )
    # Without a committed position an archiver begins at the first event on the bus, and rewrites the files from there on.
    return HandoffOffset(found.start if found.committed is None else found.committed, found.end)


def _where(found: CategoryEnds) -> str:
    if found.committed is None:
        return "the warehouse has files of this bucket"
    return f"the archiver's position is {found.committed}"
