"""Completeness of days: the low watermark of the buckets, closed days, and late additions.

    events --BucketTime--> the bucket's watermark --recorded with the position--> the minimum over the category's buckets
    the minimum has passed a day -> each owner closes it at its own position -> all have closed it -> _SUCCESS

A bucket's closing is recorded before any reader relies on it, and is final. Events from that offset on are late additions for every later
owner of the bucket. So several archivers need not agree on a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from ...processors.declare import Processor
from ...processors.time import (
    FOREVER_MS,
    NEVER_MS,
    BucketProgress,
    BucketTime,
    Confidence,
    Times,
    Watermark,
    implausible,
)
from ..warehouse import (
    SUCCESS,
    WRITERS,
    BucketNote,
    Closing,
    Listing,
    Note,
    OffsetTime,
    Success,
    Warehouse,
    closed_until,
    create_note,
    last_day_before,
    late_from,
)


@dataclass(frozen=True)
class LatenessAllowance:
    """How long a day stays open for late events.

    Args:
        watermark: derives a bucket's watermark from its events.
        idle_after: how long the bus must confirm that a bucket is read to its end before other buckets stop waiting for it; None to
            wait forever.
    """

    watermark: Watermark = field(default_factory=Confidence)
    idle_after: timedelta | None = Processor.idle_after


class BucketDays:
    """The event time and closed days of one bucket.

    Args:
        patience: how long days stay open.
        note: the bucket's note; None without one.
        offset: the committed position, where reading starts.
    """

    def __init__(self, patience: LatenessAllowance, note: BucketNote | None, offset: int) -> None:
        marks = () if note is None else note.marks
        reached = max((mark for mark in marks if mark.offset <= offset), key=lambda mark: mark.offset, default=None)
        progress = BucketProgress() if reached is None else reached.progress
        self._time = BucketTime(patience.watermark, progress)
        self._committed = self._next = OffsetTime(offset, progress)
        self._stored: BucketNote | None = None
        self.closings: tuple[Closing, ...] = () if note is None else note.closings
        self._committed_closings = self.closings

    def observe(self, times: Times, arrived_ms: Times) -> None:
        """Observe the times of the next events. Times far ahead of their arrival are ignored."""
        self._time.observe(np.delete(times, implausible(times, arrived_ms, _MAX_FUTURE)))

    def reach(self, offset: int) -> None:
        """Record that all observed events are before an offset, and in the warehouse."""
        if offset != self._next.offset:
            self._next = OffsetTime(offset, self._time.progress)

    def close(self, day: str) -> None:
        """Close a day and all earlier ones."""
        if not self.closings or self.closings[-1].day < day:
            self.closings += (Closing(day, self._next.offset),)

    @property
    def note(self) -> BucketNote:
        """The current note."""
        marks = tuple({mark.offset: mark for mark in (self._committed, self._next)}.values())
        return BucketNote(marks, self.closings)

    @property
    def unstored_note(self) -> BucketNote | None:
        """The current note, if it is not stored yet."""
        note = self.note
        return None if note == self._stored else note

    def record_stored(self, note: BucketNote) -> None:
        """Record that a note is stored."""
        self._stored = note

    def record_commit(self) -> None:
        """Record a commit of the position. It also confirms that this archiver still owned the bucket when it closed days."""
        self._committed = self._next
        self._committed_closings = self.closings

    @property
    def has_uncommitted_closings(self) -> bool:
        """Whether a day was closed since the last commit. A former owner cannot close a day."""
        return self.closings != self._committed_closings


_MAX_FUTURE = Processor.max_future or timedelta.max


def day_passed(notes: Mapping[int, BucketNote], buckets: int, idle: Collection[int] = ()) -> str | None:
    """Return the last day that the category's low watermark has passed; None without one.

    Args:
        notes: the notes of the buckets.
        buckets: their number.
        idle: idle buckets, which do not hold back the others. If all are idle, the greatest watermark counts.
    """
    if len(notes) < buckets:
        return None
    watermarks = {number: note.marks[-1].progress.watermark_ms for number, note in notes.items()}
    low = min((time_ms for number, time_ms in watermarks.items() if number not in idle), default=FOREVER_MS)
    if low == FOREVER_MS:
        low = max(watermarks.values())
    return None if low == NEVER_MS else last_day_before(low)


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

    def list_days(self) -> Listing:
        """List the days and their marks; delete superseded files.

        Any archiver may do this. Of files with the same segments, the one with the highest epoch stays.
        """
        listing = Listing.of(self._warehouse, self._category)
        for file in listing.superseded:
            self._warehouse.delete(file)
        self._marked = {day for day, notes in listing.notes.items() if SUCCESS in notes}
        self._unmarked = set(listing.days) - self._marked
        return listing

    def add(self, days: Iterable[str]) -> None:
        """Record that days have events."""
        self._unmarked |= set(days) - self._marked

    def mark(self, notes: Mapping[int, BucketNote], buckets: int, now_ms: int) -> None:
        """Mark the days that all buckets have closed. May be repeated; the first mark of a day stays."""
        until = closed_until(notes, buckets)
        if until is None:
            return
        if until != self._until:
            self.list_days()  # other archivers have written days, too
        complete = {day for day in self._unmarked if day <= until}

        def write(day: str) -> None:
            positions = {number: late_from(notes[number].closings, day) or 0 for number in range(buckets)}
            create_note(self._warehouse, Note(self._category, SUCCESS, day), Success(now_ms, positions))

        with ThreadPoolExecutor(WRITERS) as pool:  # each one waits for its disk or network
            list(pool.map(write, sorted(complete)))
        self._marked |= complete
        self._unmarked -= complete
        self._until = until
