"""When days are complete: each bucket's time, the least of them, and what comes for a day after that.

    events --BucketTime--> watermark of the bucket --noted with the position--> the least over the category's buckets
    the least has passed a day -> each owner closes it at its own position -> all have closed it -> _SUCCESS

A bucket's closing is noted before anybody relies on it, and stays: what its owner takes from that offset on is a late addition,
whoever owns it then. So several archivers need not agree on a moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from ...processors.declare.processor import Processor
from ...processors.time.timestamp_validation import ahead, outside
from ...processors.time.watermarks import FOREVER_MS, NEVER_MS, BucketProgress, BucketTime, Confidence, Watermark
from ..warehouse.layout import last_day_before
from ..warehouse.notes import BucketNote, Closing, Mark


@dataclass(frozen=True)
class LatenessAllowance:
    """How long is waited for events.

    Args:
        watermark: how a bucket's watermark follows from what came.
        idle_after: for how long the bus has to confirm that a bucket is read to its end until it holds back others no more; None for
            never.
    """

    watermark: Watermark = field(default_factory=Confidence)
    idle_after: timedelta | None = Processor.idle_after


class BucketDays:
    """Follows the time of one bucket, and which days are closed for it.

    Args:
        patience: how long is waited.
        note: what was noted of the bucket; None for nothing.
        offset: where it is read from, which is the committed position.
    """

    def __init__(self, patience: LatenessAllowance, note: BucketNote | None, offset: int) -> None:
        marks = () if note is None else note.marks
        begun = max((mark for mark in marks if mark.offset <= offset), key=lambda mark: mark.offset, default=None)
        progress = BucketProgress() if begun is None else begun.progress
        self._time = BucketTime(patience.watermark, progress)
        self._committed = self._next = Mark(offset, progress)
        self._noted: BucketNote | None = None
        self.closings: tuple[Closing, ...] = () if note is None else note.closings
        self._committed_closings = self.closings

    def take(self, times: list[int], arrived_ms: list[int]) -> None:
        """Take the times of the next events; those far ahead of their arrival say nothing about the others."""
        out = {*outside(times, _AHEAD), *ahead(times, arrived_ms, _AHEAD)}
        self._time.observe([time for at, time in enumerate(times) if at not in out] if out else times)

    def reach(self, offset: int) -> None:
        """Note that what was taken is all that lies before an offset, and is in the warehouse."""
        if offset != self._next.offset:
            self._next = Mark(offset, self._time.progress)

    def close(self, day: str) -> None:
        """Close a day and all before it."""
        if not self.closings or self.closings[-1].day < day:
            self.closings += (Closing(day, self._next.offset),)

    @property
    def note(self) -> BucketNote:
        """What is to be noted."""
        marks = tuple({mark.offset: mark for mark in (self._committed, self._next)}.values())
        return BucketNote(marks, self.closings)

    @property
    def unnoted(self) -> BucketNote | None:
        """What is to be noted, where it is something new."""
        note = self.note
        return None if note == self._noted else note

    def noted(self, note: BucketNote) -> None:
        """Tell that a note is stored."""
        self._noted = note

    def committed(self) -> None:
        """Tell that the position is committed, and with it that the owner that closed days still was the owner."""
        self._committed = self._next
        self._committed_closings = self.closings

    @property
    def has_uncommitted_closings(self) -> bool:
        """Whether a day was closed since the last commit: a former owner closes nothing."""
        return self.closings != self._committed_closings


_AHEAD = Processor.max_future or timedelta.max


def day_passed(notes: Mapping[int, BucketNote], buckets: int, idle: Collection[int] = ()) -> str | None:
    """Return the last day that the low watermark of a category has passed; None where there is none.

    Args:
        notes: what is noted of each bucket.
        buckets: how many there are.
        idle: those that hold nothing back; where all are idle, the last to be waited for was the furthest.
    """
    if len(notes) < buckets:
        return None
    watermarks = {number: note.marks[-1].progress.watermark_ms for number, note in notes.items()}
    low = min((time_ms for number, time_ms in watermarks.items() if number not in idle), default=FOREVER_MS)
    if low == FOREVER_MS:
        low = max(watermarks.values())
    return None if low == NEVER_MS else last_day_before(low)
