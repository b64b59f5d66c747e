"""The days of a warehouse table: folders of Parquet files, `…/ds=2026-11-24/*.parquet`, in a folder or on HDFS.

A day is complete if it has the file _SUCCESS, which Spark, Hive's tools and `penstock archive` write last. If no day has one, a day is complete
if its files are the same at two looks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import PurePosixPath

from ....processors import PenstockError
from ....state import StateError
from ....state.files import FileStore
from ...shell import MachineClock, SystemClock

SUCCESS = "_SUCCESS"
LAST_DAYS = 31
"""The number of days that are looked at, from the newest on. Each is a request to HDFS."""
_DAY = re.compile(r"[^=/]+=(\d{4}-\d\d-\d\d)")
Listing = Mapping[str, str]
"""The tags of files, by path."""


class DaysUnreadable(PenstockError):
    """The days of a table cannot be read: correct the path, its permissions or its columns."""


@dataclass(frozen=True)
class DailyTable:
    """A table of pairs from a warehouse table.

    Args:
        name: its name.
        files: contains the folders of its days.
        key: the columns of the key, in order.
        value: the columns of the value, in order.
    """

    name: str
    files: FileStore
    key: tuple[str, ...]
    value: tuple[str, ...]


@dataclass(frozen=True)
class Day:
    """A day.

    Args:
        name: the day, YYYY-MM-DD.
        folder: its folder.
        listing: its Parquet files. If it changes, the day has been written again.
        is_marked: whether it has the file _SUCCESS.
    """

    name: str
    folder: str
    listing: Listing
    is_marked: bool


class TableDays:
    """Finds the newest complete day of a table. One thread.

    Args:
        files: contains the folders of its days.
        clock: the wall clock.
    """

    def __init__(self, files: FileStore, clock: MachineClock | None = None) -> None:
        self._files = files
        self._clock = clock or SystemClock()
        self._seen: dict[str, Listing] = {}
        self.skipped: Sequence[str] = ()
        """Folders of days that no calendar has or that are later than tomorrow, at the last look. They are not served."""

    def newest(self) -> Day | None:
        """Return the newest complete day; None without one.

        Raises:
            DaysUnreadable: the folder cannot be read, or contains no day.
        """
        try:
            found = {match[1]: name for name in self._files.list_folder("") if (match := _DAY.fullmatch(name))}
            folders = {day: name for day, name in found.items() if self._is_day(day)}
            self.skipped = sorted(found[day] for day in found.keys() - folders.keys())
            days = [self._day(name, folders[name]) for name in sorted(folders, reverse=True)[:LAST_DAYS]]
        except StateError as error:
            raise DaysUnreadable(
                f"The days of a table cannot be read, so a later day is not served yet. {error}"
            ) from error
        if not days:
            raise DaysUnreadable(
                f"{self._files.location} contains no folder of a day, such as ds=2026-11-24. No other day is served from it. Correct the path, or wait "
                "for the first day."
            )
        before, self._seen = self._seen, {day.name: day.listing for day in days}
        has_marks = any(day.is_marked for day in days)
        for day in days:
            is_complete = day.is_marked if has_marks else before.get(day.name) == day.listing
            if is_complete and day.listing:
                return day
        return None

    def has(self, day: str) -> bool:
        """Return whether a day had a folder at the last look."""
        return day in self._seen

    def _is_day(self, day: str) -> bool:
        try:
            found = date.fromisoformat(day)
        except ValueError:
            return False
        # It is tomorrow already in some time zones.
        return found <= datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).date() + timedelta(days=1)

    def is_unchanged(self, day: Day) -> bool:
        """Return whether the files of a day are the same as in its listing.

        Raises:
            StateError: the folder cannot be read.
        """
        return self._day(day.name, day.folder).listing == day.listing

    def _day(self, name: str, folder: str) -> Day:
        tags = self._tags(folder)
        listing = {path: tag for path, tag in sorted(tags.items()) if _is_table(path)}
        return Day(name, folder, listing, f"{folder}/{SUCCESS}" in tags)

    def _tags(self, folder: str) -> dict[str, str]:
        """Return the tags of the files in a folder and below, by path."""
        tags = {f"{folder}/{name}": tag for name, tag in self._files.tags(folder).items()}
        for name, size in self._files.list_folder(folder).items():
            if size is None and not _is_hidden(name):
                tags |= self._tags(f"{folder}/{name}")
        return tags


def _is_hidden(name: str) -> bool:
    """Return whether readers of tables skip a name: files that are being written, and marks."""
    return name.startswith((".", "_"))


def _is_table(path: str) -> bool:
    """Return whether a file has rows. Hive's have no suffix."""
    file = PurePosixPath(path)
    return not _is_hidden(file.name) and file.suffix in {"", ".parquet"}
