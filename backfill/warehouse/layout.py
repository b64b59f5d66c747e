"""Where things lie in the warehouse: by category, by the UTC day of the event time, by bucket and segment.

    <root>/category=departures/ds=2013-01-31/bucket-00003-00000000000000250000-e00000007.parquet              one segment
    <root>/category=departures/ds=2013-01-31/bucket-00003-00000000000000250000-00000000000001500000.parquet   several, compacted
    <root>/category=departures/ds=2013-01-31/_SUCCESS                                                         a note; readers skip it

Days are named so that their order as text is their order in time. ``e00000007`` is the epoch of the bucket's owner, the archiver that
wrote the file: two owners never write a file of the same name. Of files that hold the same segments, the one with the highest epoch counts.
"""

from __future__ import annotations

import re
from datetime import date
from enum import Enum
from functools import lru_cache
from typing import NamedTuple
from uuid import uuid4

from ...processors.time.windows import EVER_END_MS, EVER_START_MS

DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY = date.min.toordinal() - _EPOCH
_LAST_DAY = date.max.toordinal() - _EPOCH
_FILE = re.compile(r"bucket-(\d{5,})-(\d{20})(?:-(\d{20}))?(?:-e(\d{8,}))?\.parquet")
_DAY = re.compile(r"ds=(\d{4}-\d\d-\d\d)")


class By(Enum):
    """By which time an event has its day."""

    EVENT_TIME = "event-time"
    ARRIVAL = "arrival"


class StoredFile(NamedTuple):
    """One file of the warehouse: the events of one segment of a bucket, or of several, that belong to one day.

    Args:
        category: the category's name.
        day: the UTC day, YYYY-MM-DD.
        bucket: the bucket's number.
        segment: the first offset of the first segment, whether or not an event lies there.
        last: the first offset of the last segment, of a file that was made of several; -1 for one segment's own.
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
        """Where it lies below the warehouse's root."""
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
        """The first offset of the last segment that it holds."""
        return max(self.segment, self.last)

    def holds(self, bucket: int, segment: int) -> bool:
        """Tell whether the events of a segment that belong to this day are in this file."""
        return self.bucket == bucket and self.segment <= segment <= self.last_segment

    def supersedes(self, other: StoredFile) -> bool:
        """Tell whether readers take this file and skip another one of the category: more segments win, then the higher epoch."""
        if self.day != other.day or not (
            self.holds(other.bucket, other.segment) and self.holds(other.bucket, other.last_segment)
        ):
            return False
        same_segments = (self.segment, self.last_segment) == (other.segment, other.last_segment)
        return self.epoch > other.epoch if same_segments else True

    @staticmethod
    def parse(category: str, folder: str, name: str) -> StoredFile | None:
        """Read a file's name; None for what is no event file, such as one that is still being written."""
        day, file = _DAY.fullmatch(folder), _FILE.fullmatch(name)
        if not day or not file:
            return None
        return StoredFile(category, day[1], int(file[1]), int(file[2]), int(file[3] or -1), int(file[4] or 0))


class Note(NamedTuple):
    """A small file that says something about a category or one of its days; readers of the events pass over it.

    Args:
        category: the category's name.
        name: its own name; it begins with an underscore.
        day: which day it is about; None for the whole category.
    """

    category: str
    name: str
    day: str | None = None

    @property
    def path(self) -> str:
        """Where it lies below the warehouse's root."""
        return "/".join(filter(None, (folder_of(self.category), self.day and f"ds={self.day}", self.name)))


class OtherFile(NamedTuple):
    """A file of events that the archiver did not name: a batch run did, or another tool.

    Args:
        category: the category's name.
        day: the UTC day, YYYY-MM-DD.
        name: its own name.
    """

    category: str
    day: str
    name: str

    @property
    def path(self) -> str:
        """Where it lies below the warehouse's root."""
        return f"{folder_of(self.category)}/ds={self.day}/{self.name}"


EventFile = StoredFile | OtherFile
Stored = StoredFile | Note | OtherFile


def folder_of(category: str) -> str:
    """Return the folder of a category below the root."""
    return f"category={category}"


def day_folder(category: str, day: str) -> str:
    """Return the folder of a category's day below the root."""
    return f"{folder_of(category)}/ds={day}"


def is_day(folder: str) -> bool:
    """Tell whether a folder's name is that of a day."""
    return _DAY.fullmatch(folder) is not None


def day_of(time_ms: int) -> str:
    """Return the UTC day of an event time (milliseconds since 1970), YYYY-MM-DD.

    What lies beyond the years 1 to 9999, such as a time given in microseconds, is on the first or the last of all days.
    """
    return _name_of_day(min(max(time_ms // DAY_MS, _FIRST_DAY), _LAST_DAY))


def last_day_before(time_ms: int) -> str | None:
    """Return the last UTC day that is over at a time (milliseconds since 1970); None before the first of all days."""
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
        """When the first day begins, in milliseconds since 1970; the first of all days has no beginning."""
        return EVER_START_MS if self.first == date.min else (self.first.toordinal() - _EPOCH) * DAY_MS

    @property
    def end_ms(self) -> int:
        """When the day after the last one begins, in milliseconds since 1970; the last of all days has no end."""
        return EVER_END_MS if self.last == date.max else (self.last.toordinal() + 1 - _EPOCH) * DAY_MS

    @staticmethod
    def of(first: str, last: str) -> Days:
        """Return the range between two days, YYYY-MM-DD."""
        return Days(date.fromisoformat(first), date.fromisoformat(last))

    def names(self) -> list[str]:
        """Return each of the days, YYYY-MM-DD."""
        return [
            date.fromordinal(number).isoformat() for number in range(self.first.toordinal(), self.last.toordinal() + 1)
        ]

    def has(self, day: str) -> bool:
        """Tell whether a day, YYYY-MM-DD, is one of these."""
        return str(self.first) <= day <= str(self.last)

    def holds(self, time_ms: int) -> bool:
        """Tell whether a time (milliseconds since 1970) lies in these days."""
        return self.start_ms <= time_ms < self.end_ms

    def __str__(self) -> str:
        return f"{self.first} to {self.last}"


def aside_name(name: str) -> str:
    """Return a name for a file that is still being written; readers pass over it, and no two writers choose the same."""
    return f"_{name}.{uuid4().hex}"
