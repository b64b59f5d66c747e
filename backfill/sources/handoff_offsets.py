"""Where the archive of a category ends and the bus begins, bucket by bucket, fixed once for a run.

    archive: all events before the border | bus: those from the border up to the end

The border is the position that the archiver has committed: what lies before it is in the warehouse and stays there, whatever an archiver
does meanwhile. What files hold beyond it is left alone, since a new owner of the bucket may just be writing that anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...transport.bus import Bus
from ...transport.messages import Bucket
from ...transport.offset_range import OffsetRange
from ..archive.category_archive import group_of
from ..errors import BackfillRefused
from ..warehouse.archive_settings import settings_of
from ..warehouse.listing import Listing
from ..warehouse.owners import bucket_notes
from ..warehouse.warehouse import Warehouse


class CategoryEnds(NamedTuple):
    """What is known of a bucket.

    Args:
        committed: the archiver's position; None where its group has none.
        noted: up to where the warehouse itself says that it is archived; None where it says nothing.
        has_files: whether the warehouse has events of it.
        start: the first offset that the bus keeps.
        end: the offset behind the last event that is decided.
    """

    committed: int | None
    noted: int | None
    has_files: bool
    start: int
    end: int


class HandoffOffset(NamedTuple):
    """Where a bucket's events are.

    Args:
        offset: those before it come from the archive, the others from the bus.
        end: up to where there are any.
    """

    offset: int
    end: int


@dataclass(frozen=True)
class HandoffOffsets:
    """The borders of one category.

    Args:
        category: its name.
        by_bucket: the border of each bucket.
        segment_events: how many offsets share a file of the archive; 0 where nothing is archived.
        dropped: how many offsets the bus has dropped of buckets of which nothing is archived.
    """

    category: str
    by_bucket: Mapping[int, HandoffOffset]
    segment_events: int
    dropped: int = 0

    @property
    def offsets(self) -> dict[int, int]:
        """The borders alone."""
        return {number: border.offset for number, border in self.by_bucket.items()}

    @property
    def ends(self) -> dict[int, int]:
        """Up to where events of each bucket are read."""
        return {number: border.end for number, border in self.by_bucket.items()}

    def archive_only(self) -> HandoffOffsets:
        """Return the same without what is on the bus alone: buckets end where the archive does."""
        ends = {number: HandoffOffset(border.offset, border.offset) for number, border in self.by_bucket.items()}
        return replace(self, by_bucket=ends)

    def stretches(self, offsets: int) -> list[OffsetRange]:
        """Return what is to be read from the bus, in pieces of at most so many offsets."""
        whole = (OffsetRange(Bucket(self.category, n), *border) for n, border in sorted(self.by_bucket.items()))
        return [piece for stretch in whole for piece in stretch.cut(offsets)]


def borders_of(bus: Bus, warehouse: Warehouse, category: str) -> HandoffOffsets:
    """Find the borders of a category as of now.

    Raises:
        BackfillRefused: events are neither in the warehouse nor on the bus, or the two do not belong together.
        MissingCategory: it is not on the bus.
        WarehouseError: the warehouse does not answer.
    """
    # In this order: what is noted is written before the position is committed, and the end only grows.
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
    by_bucket = {number: border_of(Bucket(category, number), one, warehouse.location) for number, one in found.items()}
    dropped = sum(one.start for one in found.values() if one.committed is None and one.noted is None)
    return HandoffOffsets(category, by_bucket, terms.segment_events if terms else 0, dropped)


def _refuse_others(category: str, others: Collection[int], buckets: int, warehouse: Warehouse) -> None:
    if others:
        raise BackfillRefused(
            f"The warehouse {warehouse.location} has bucket {max(others)} of {category}, which has {buckets} buckets on this bus: it is not the "
            "category that was archived. Nothing was started. Name the bus and the warehouse that belong together."
        )


def border_of(bucket: Bucket, found: CategoryEnds, location: str) -> HandoffOffset:
    """Return where a bucket's border is.

    Args:
        bucket: which.
        found: what is known of it.
        location: the warehouse, for messages.

    Raises:
        BackfillRefused: events are missing between the two, or the two do not belong together.
    """
    if found.noted is None and found.committed is None and not found.has_files:
        return HandoffOffset(found.start, found.end)
    if found.noted is None or found.noted < (found.committed or 0):
        raise BackfillRefused(
            f"{bucket}: {_where(found)}, and the warehouse {location} does not say that it has the events before. Nothing was started. Look "
            "whether it is the warehouse that this bus is archived to; if it is, let the archiver run once (penstock archive run), which "
            "notes how far it is."
        )
    archived = found.noted if found.committed is None else found.committed
    if archived > found.end:
        raise BackfillRefused(
            f"{bucket} is archived up to offset {archived}, but on this bus it ends at offset {found.end}: the category was made anew, or it is "
            f"another bus than the one that is archived in {location}. Nothing was started. Name the bus and the warehouse that belong "
            "together."
        )
    if archived < found.start:
        raise BackfillRefused(
            f"{bucket} is archived up to offset {archived}, but the bus keeps it only from offset {found.start} on: "
            f"{found.start - archived:,} offsets are in neither. Nothing was started. Name a last day that the archive has (`--to DAY`); or, to "
            "do without those events, let an archiver go on with gaps accepted, and run this again."
        )
    # Without a committed position an archiver begins at the first event on the bus, and writes anew what files hold from there on.
    return HandoffOffset(found.start if found.committed is None else found.committed, found.end)


def _where(found: CategoryEnds) -> str:
    if found.committed is None:
        return "it has files of this bucket"
    return f"its archiver's position is {found.committed}"
