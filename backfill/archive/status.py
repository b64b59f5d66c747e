"""The archive status of a category, by day."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..warehouse import (
    SUCCESS,
    WRITERS,
    Addition,
    ArchivedFile,
    Late,
    Listing,
    Note,
    Success,
    Warehouse,
    epochs_among,
    footer_of,
    late_note,
    read_note,
)


@dataclass(frozen=True)
class DayStatus:
    """The archive status of one day.

    Args:
        day: the UTC day, YYYY-MM-DD.
        files: the number of event files.
        events: the number of events.
        size_bytes: the size of the files.
        complete_since_ms: when the day was marked complete (milliseconds since 1970, UTC); None if it is not.
        late: the late additions.
    """

    day: str
    files: int
    events: int
    size_bytes: int
    complete_since_ms: int | None
    late: tuple[Addition, ...]


def archive_status(warehouse: Warehouse, category: str) -> list[DayStatus]:
    """Return the status of each day of a category, sorted. Only the end of each file is read."""
    listing = Listing.of(warehouse, category)
    with ThreadPoolExecutor(WRITERS) as pool:
        events = dict(
            zip(
                listing.files,
                pool.map(lambda file: footer_of(warehouse, file, listing.sizes[file]).num_rows, listing.files),
                strict=True,
            )
        )
        return list(pool.map(lambda day: _day_status(warehouse, category, day, listing, events), listing.days))


def _day_status(
    warehouse: Warehouse, category: str, day: str, listing: Listing, events: dict[ArchivedFile, int]
) -> DayStatus:
    files, notes = listing.of_day(day), listing.notes.get(day, frozenset())
    success = read_note(warehouse, Note(category, SUCCESS, day), Success) if SUCCESS in notes else None
    places = [late_note(category, day, bucket, epochs[-1]) for bucket, epochs in epochs_among(notes, "late").items()]
    late = [read_note(warehouse, place, Late) for place in sorted(places)]
    return DayStatus(
        day,
        len(files),
        sum(events[file] for file in files),
        sum(listing.sizes[file] for file in files),
        None if success is None else success.complete_since_ms,
        tuple(addition for note in late if note for addition in note.additions),
    )
