"""Paths in the warehouse: by category, UTC day, bucket and segment.

    <root>/category=departures/ds=2013-01-31/bucket-00003-00000000000000250000-e00000007.parquet              one segment
    <root>/category=departures/ds=2013-01-31/bucket-00003-00000000000000250000-00000000000001500000.parquet   several, compacted
    <root>/category=departures/ds=2013-01-31/_SUCCESS                                                         a note; readers skip it

Day names sort by time. ``e00000007`` is the epoch of the bucket's owner, the archiver that wrote the file: two owners never write a file
of the same name. Of files with the same segments, the one with the highest epoch counts.
"""

from __future__ import annotations

import re
from datetime import date
from enum import Enum
from functools import lru_cache
from typing import NamedTuple
from uuid import uuid4

from ...processors.time import GLOBAL_WINDOW_END_MS, GLOBAL_WINDOW_START_MS

DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY = date.min.toordinal() - _EPOCH
_LAST_DAY = date.max.toordinal() - _EPOCH
_FILE = re.compile(r"bucket-(\d{5,})-(\d{20})(?:-(\d{20}))?(?:-e(\d{8,}))?\.parquet")
_DAY = re.compile(r"ds=(\d{4}-\d\d-\d\d)")


class DayOf(Enum):
    """The time that assigns an event to a day."""

    EVENT_TIME = "event-time"
    ARRIVAL = "arrival"


class ArchivedFile(NamedTuple):
    """An event file: one day's events of one or several segments of a bucket.

    Args:
        category: the category's name.
        day: the UTC day, YYYY-MM-DD.
        bucket: the bucket's number.
        segment: the first offset of the first segment, with or without an event.
        last: the first offset of the last segment in a compacted file; -1 for a file of one segment.
        epoch: the owner that wrote it; 0 for a compaction.
    """

    category: str
    day: str
    bucket: int
    segment: int
    last: int = -1
    epoch: int = 0

    @property
    def path(self) -> str:
        """Its path below the warehouse's root."""
        until = f"-{self.last:020d}" if self.is_compacted else ""
        owner = f"-e{self.epoch:08d}" if self.epoch else ""
        name = f"bucket-{self.bucket:05d}-{self.segment:020d}{until}{owner}.parquet"
        return f"{day_folder(self.category, self.day)}/{name}"

    @property
    def is_compacted(self) -> bool:
        """Whether it was made of several files."""
        return self.last >= 0

    @property
    def last_segment(self) -> int:
        """The first offset of its last segment."""
        return max(self.segment, self.last)

    def contains(self, bucket: int, segment: int) -> bool:
        """Return whether the file contains a segment's events of this day."""
        return self.bucket == bucket and self.segment <= segment <= self.last_segment

    def supersedes(self, other: ArchivedFile) -> bool:
        """Return whether readers use this file instead of another one of the category. More segments win, then the higher epoch."""
        if self.day != other.day or not (
            self.contains(other.bucket, other.segment) and self.contains(other.bucket, other.last_segment)
        ):
            return False
        same_segments = (self.segment, self.last_segment) == (other.segment, other.last_segment)
        return self.epoch > other.epoch if same_segments else True

    @staticmethod
    def parse(category: str, folder: str, name: str) -> ArchivedFile | None:
        """Parse a file name; None for other files, such as unfinished ones."""
        day, file = _DAY.fullmatch(folder), _FILE.fullmatch(name)
        if not day or not file:
            return None
        return ArchivedFile(category, day[1], int(file[1]), int(file[2]), int(file[3] or -1), int(file[4] or 0))


class Note(NamedTuple):
    """A small file about a category or one of its days. Readers of events skip it.

    Args:
        category: the category's name.
        name: the file's name, which starts with an underscore.
        day: its day; None for the whole category.
    """

    category: str
    name: str
    day: str | None = None

    @property
    def path(self) -> str:
        """Its path below the warehouse's root."""
        return "/".join(filter(None, (folder_of(self.category), self.day and f"ds={self.day}", self.name)))


class OtherFile(NamedTuple):
    """An event file that a batch run or another tool has written.

    Args:
        category: the category's name.
        day: the UTC day, YYYY-MM-DD.
        name: the file's name.
    """

    category: str
    day: str
    name: str

    @property
    def path(self) -> str:
        """Its path below the warehouse's root."""
        return f"{folder_of(self.category)}/ds={self.day}/{self.name}"


EventFile = ArchivedFile | OtherFile
Stored = ArchivedFile | Note | OtherFile


def folder_of(category: str) -> str:
    """Return a category's folder below the root."""
    return f"category={category}"


def day_folder(category: str, day: str) -> str:
    """Return the folder of a category's day below the root."""
    return f"{folder_of(category)}/ds={day}"


def is_day(folder: str) -> bool:
    """Return whether a folder is named after a day."""
    return _DAY.fullmatch(folder) is not None


def day_of(time_ms: int) -> str:
    """Return the UTC day of an event time (milliseconds since 1970), YYYY-MM-DD.

    Times beyond the years 1 to 9999, such as microseconds by mistake, belong to the first or last possible day.
    """
    return _name_of_day(min(max(time_ms // DAY_MS, _FIRST_DAY), _LAST_DAY))


def last_day_before(time_ms: int) -> str | None:
    """Return the last UTC day that has ended at a time (milliseconds since 1970); None before the first day."""
    number = min(time_ms // DAY_MS - 1, _LAST_DAY)
    return None if number < _FIRST_DAY else _name_of_day(number)


@lru_cache(maxsize=4096)
def _name_of_day(number: int) -> str:
    return date.fromordinal(number + _EPOCH).isoformat()


class Days(NamedTuple):
    """A range of UTC days, both ends included."""

    first: date
    last: date

    @property
    def start_ms(self) -> int:
        """The start of the first day, in milliseconds since 1970; the first possible day has no start."""
        return GLOBAL_WINDOW_START_MS if self.first == date.min else (self.first.toordinal() - _EPOCH) * DAY_MS

    @property
    def end_ms(self) -> int:
        """The end of the last day, in milliseconds since 1970; the last possible day has no end."""
        return GLOBAL_WINDOW_END_MS if self.last == date.max else (self.last.toordinal() + 1 - _EPOCH) * DAY_MS

    @staticmethod
    def of(first: str, last: str) -> Days:
        """Return the range between two days, YYYY-MM-DD."""
        return Days(date.fromisoformat(first), date.fromisoformat(last))

    def names(self) -> list[str]:
        """Return the days, YYYY-MM-DD."""
        return [
            date.fromordinal(number).isoformat() for number in range(self.first.toordinal(), self.last.toordinal() + 1)
        ]

    def has(self, day: str) -> bool:
        """Return whether a day, YYYY-MM-DD, is in the range."""
        return str(self.first) <= day <= str(self.last)

    def contains(self, time_ms: int) -> bool:
        """Return whether a time (milliseconds since 1970) is in the range."""
        return self.start_ms <= time_ms < self.end_ms

    def __str__(self) -> str:
        return f"{self.first} to {self.last}"


def aside_name(name: str) -> str:
    """Return a name for a file that is still being written; readers pass over it, and no two writers choose the same."""
    return f"_{name}.{uuid4().hex}"
