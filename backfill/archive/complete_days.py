"""Marks of complete days."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..warehouse.layout import Note
from ..warehouse.listing import Listing
from ..warehouse.notes import SUCCESS, BucketNote, Success, closed_until, create_note, late_from
from ..warehouse.warehouse import Warehouse


class CompleteDays:
    """Marks the complete days of one category.

    Args:
        warehouse: the warehouse.
        category: its name.
    """

    def __init__(self, warehouse: Warehouse, category: str) -> None:
        self._warehouse = warehouse
        self._category = category
        self._unmarked: set[str] = set()
        self._marked: set[str] = set()
        self._until: str | None = None

    def look(self) -> Listing:
        """List the days and their marks; delete superseded files.

        Any archiver may do this. Of files with the same segments, the counting one stays until another replaces it.
        """
        listing = Listing.of(self._warehouse, self._category)
        for file in listing.superseded:
            self._warehouse.delete(file)
        self._marked = {day for day, notes in listing.notes.items() if SUCCESS in notes}
        self._unmarked = set(listing.days) - self._marked
        return listing

    def have(self, days: Iterable[str]) -> None:
        """Record that days have events."""
        self._unmarked |= set(days) - self._marked

    def mark(self, notes: Mapping[int, BucketNote], buckets: int, now_ms: int) -> None:
        """Mark the days that all buckets have closed. May be repeated; the first mark of a day stays."""
        until = closed_until(notes, buckets)
        if until is None:
            return
        if until != self._until:
            self.look()  # other archivers have written days, too
        for day in sorted(day for day in self._unmarked if day <= until):
            positions = {number: late_from(notes[number].closings, day) or 0 for number in range(buckets)}
            create_note(self._warehouse, Note(self._category, SUCCESS, day), Success(now_ms, positions))
            self._marked.add(day)
            self._unmarked.discard(day)
        self._until = until
