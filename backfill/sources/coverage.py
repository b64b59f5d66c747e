"""Completeness check of the archived days that a batch run reads, before the run starts.

    a category's files, marks and notes --Coverage--> missing days between stored days: refused
                                                      incomplete days before a complete day: refused
                                                      days at the open end, and days beyond the archive: noted

A day without events has no files either. The offsets of the other days distinguish it from a lost day: if they are contiguous, nothing
is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import NamedTuple

from ...processors import counted
from ...processors.declare import AnyCategory, Processor
from ..errors import BackfillRefused
from ..warehouse import (
    SUCCESS,
    WRITERS,
    ArchiveSettings,
    DayOf,
    Days,
    Listing,
    Warehouse,
    bucket_notes,
    closed_until,
    footer_of,
    offsets_of,
    settings_of,
    unreadable_message,
)

ALL_DAYS = Days(date.min, date.max)
ONE_DAY = timedelta(days=1)
OUTLYING = timedelta(days=366)
"""A longer distance between stored days is not a gap: one of the two days results from a wrong event time."""


class WantedDays(NamedTuple):
    """The days of a category that a run needs.

    Args:
        category: the category.
        read: the days whose events the run reads.
        asked: the days among them that the user requested.
    """

    category: AnyCategory
    read: Days
    asked: Days


@dataclass(frozen=True)
class Coverage:
    """The days of a category.

    Args:
        category: its name.
        stored: the days with events, in order.
        complete: the days marked as complete; None if the category has no marks.
        closed: the last day that the archiver has closed; None without one.
    """

    category: str
    stored: tuple[date, ...]
    complete: frozenset[date] | None
    closed: date | None = None

    def gaps(self, days: Days) -> list[Days]:
        """Return the ranges of days without events between stored days."""
        between = (
            Days(before + ONE_DAY, after - ONE_DAY)
            for before, after in pairwise(self.stored)
            if ONE_DAY < after - before <= OUTLYING
        )
        return [gap for days_between in between if (gap := _common(days_between, days))]

    def unfinished(self, days: Days) -> list[Days]:
        """Return the incomplete days before a complete one."""
        marked = self.complete or frozenset()
        last = max(marked, default=date.min)
        return _ranges(day for day in self._among(days) if day < last and day not in marked)

    def open(self, days: Days) -> list[Days]:
        """Return the stored days that may still receive events."""
        if self.complete is None:
            return []
        last = max({*self.complete, self.closed or date.min})
        return _ranges(day for day in self._among(days) if day > last)

    def has(self, days: Days) -> bool:
        """Return whether any of the days has events."""
        return bool(self._among(days))

    def beyond(self, days: Days) -> list[Days]:
        """Return the ranges of days before the first stored day, and after the last stored or closed day."""
        first, last = self.stored[0], max(self.stored[-1], self.closed or date.min)
        before = _common(days, Days(date.min, first - ONE_DAY)) if first > date.min else None
        after = _common(days, Days(last + ONE_DAY, date.max)) if last < date.max else None
        return [days_outside for days_outside in (before, after) if days_outside]

    def _among(self, days: Days) -> list[date]:
        return [day for day in self.stored if days.first <= day <= days.last]


def check_coverage(warehouse: Warehouse, wanted: Sequence[WantedDays], *, allow_missing: bool) -> dict[str, str]:
    """Check the days that a run reads; return a note for each category with missing or incomplete days.

    A category that is archived by arrival is not checked: its days are not days of event time.

    Args:
        warehouse: the archive.
        wanted: the days to read; categories without files are skipped.
        allow_missing: continue if days are missing or incomplete.

    Raises:
        BackfillRefused: days are missing, or a file is empty; nothing was started.
        WarehouseError: the warehouse cannot be read.
    """
    checked: list[tuple[WantedDays, _CategoryCoverage]] = []
    for input_days in wanted:
        terms, listing = (
            settings_of(warehouse, input_days.category.name),
            Listing.of(warehouse, input_days.category.name),
        )
        by_arrival = terms is not None and terms.by is DayOf.ARRIVAL
        _refuse_empty_files(warehouse, listing, ALL_DAYS if by_arrival else input_days.read)
        if listing.all_files and not by_arrival:
            checked.append((input_days, _CategoryCoverage.at(warehouse, input_days.category, listing, terms)))
    if not allow_missing:
        for input_days, found in checked:
            found.refuse(input_days.read)
        _refuse_unarchived(checked)
    notes = {input_days.category.name: _note(found.coverage, input_days) for input_days, found in checked}
    return {name: note for name, note in notes.items() if note}


def expect_archived(
    processor: type[Processor], inputs: Iterable[AnyCategory], warehouse: Warehouse, advice: str = "Archive it first."
) -> None:
    """Raise BackfillRefused if the warehouse lacks an input of a processor."""
    missing = [category.name for category in inputs if not warehouse.has(category.name)]
    if missing:
        raise BackfillRefused(
            f"{processor.__name__} reads {', '.join(missing)}, which is not in the warehouse {warehouse.location}. Nothing was started. {advice}"
        )


@dataclass(frozen=True)
class _CategoryCoverage:
    warehouse: Warehouse
    listing: Listing
    coverage: Coverage

    @staticmethod
    def at(
        warehouse: Warehouse, category: AnyCategory, listing: Listing, terms: ArchiveSettings | None
    ) -> _CategoryCoverage:
        """Read the coverage of a category with files by day of event time."""
        stored = sorted({date.fromisoformat(file.day) for file in listing.all_files})
        complete = frozenset(date.fromisoformat(day) for day, notes in listing.notes.items() if SUCCESS in notes)
        closed = None if terms is None else _closed(warehouse, category)
        marked = None if terms is None and not complete else complete
        return _CategoryCoverage(warehouse, listing, Coverage(category.name, tuple(stored), marked, closed))

    def refuse(self, days: Days) -> None:
        """Raise BackfillRefused if days are missing or incomplete."""
        place = f"{self.warehouse.location}/category={self.coverage.category}"
        gaps = self.coverage.gaps(days)
        lost = _lost_offsets(self.warehouse, self.listing) if gaps else 0
        if lost is None or lost > 0:
            why = "events may be missing" if lost is None else f"it lacks {counted(lost, 'offset')}"
            raise BackfillRefused(
                f"{place} has no files of {day_list(gaps)} between days that it has, and {why}. Nothing was started. Restore these days "
                "from a copy or archive them again. If they had no events, or the result may lack them, pass `--allow-missing`."
            )
        unfinished = self.coverage.unfinished(days)
        if unfinished:
            raise BackfillRefused(
                f"{place}: {day_list(unfinished)} is incomplete ({SUCCESS} is missing), but later days are complete. Nothing was started. "
                "Let the writer of the category finish (a running archiver marks complete days), or read the days as they are with "
                "`--allow-missing`."
            )


def _refuse_empty_files(warehouse: Warehouse, listing: Listing, days: Days) -> None:
    """Raise BackfillRefused for an empty file, which Spark would silently skip."""
    empty = [file for file in listing.all_files if days.has(file.day) and not listing.sizes[file]]
    if empty:
        raise BackfillRefused(unreadable_message(f"{warehouse.location}/{empty[0].path}", "it is empty"))


def _closed(warehouse: Warehouse, category: AnyCategory) -> date | None:
    closed = closed_until(bucket_notes(warehouse, category.name), category.buckets)
    return None if closed is None else date.fromisoformat(closed)


def _lost_offsets(warehouse: Warehouse, listing: Listing) -> int | None:
    """Return the number of missing offsets between stored ones; None if unknown.

    Messages that did not decode and transaction markers have offsets too, and are not stored.
    """
    if listing.others:
        return None
    with ThreadPoolExecutor(WRITERS) as pool:
        footers = list(pool.map(lambda file: footer_of(warehouse, file, listing.sizes[file]), listing.files))
    rows: defaultdict[int, int] = defaultdict(int)
    offsets: defaultdict[int, list[int]] = defaultdict(list)
    for file, footer in zip(listing.files, footers, strict=True):
        stored = offsets_of(footer)
        if stored is None:
            return None
        rows[file.bucket] += footer.num_rows
        offsets[file.bucket] += [stored[0], stored[-1]]
    return sum(max(ends) - min(ends) + 1 - rows[bucket] for bucket, ends in offsets.items())


def _refuse_unarchived(checked: Sequence[tuple[WantedDays, _CategoryCoverage]]) -> None:
    """Raise BackfillRefused if the requested days lie outside the archive of every category."""
    if not checked or not all(
        found.coverage.beyond(input_days.asked) == [input_days.asked] for input_days, found in checked
    ):
        return
    there = "; ".join(
        f"{found.coverage.category} from {found.coverage.stored[0]} to {found.coverage.stored[-1]}"
        for _, found in checked
    )
    raise BackfillRefused(
        f"No events are archived from {day_list([checked[0][0].asked])}. The archive has {there}. Nothing was started. Check the days "
        "(UTC, of event time), archive them first, or pass `--allow-missing` for an empty result."
    )


def _note(coverage: Coverage, wanted: WantedDays) -> str:
    """Return a note on missing and incomplete days; empty if there are none."""
    beyond = [] if wanted.asked == ALL_DAYS else coverage.beyond(wanted.asked)
    parts = (
        (coverage.gaps(wanted.asked), "has no files of"),
        (coverage.unfinished(wanted.asked), "is incomplete before complete days, for"),
        (coverage.open(wanted.asked), "may still receive events for"),
        (beyond, "is not archived for"),
    )
    notes = [f"{what} {day_list(days)}" for days, what in parts if days]
    return f"{coverage.category} {', and '.join(notes)}" if notes else ""


def day_list(ranges: Sequence[Days]) -> str:
    """Return ranges of days as text, such as "2013-01-05, 2013-01-07 to 2013-01-09"."""
    return ", ".join(str(days) if days.first < days.last else str(days.first) for days in ranges)


def _ranges(days: Iterable[date]) -> list[Days]:
    """Return the ranges of consecutive days, given in order."""
    found: list[Days] = []
    for day in days:
        if found and found[-1].last + ONE_DAY == day:
            found[-1] = Days(found[-1].first, day)
        else:
            found.append(Days(day, day))
    return found


def _common(days: Days, other: Days) -> Days | None:
    both = Days(max(days.first, other.first), min(days.last, other.last))
    return both if both.first <= both.last else None


def joined_notes(notes: Mapping[str, str], categories: Iterable[AnyCategory], *more: str) -> str:
    """Return the notes on some categories, after other notes."""
    of_categories = [notes[name] for name in dict.fromkeys(category.name for category in categories) if name in notes]
    return "; ".join(filter(None, (*more, *of_categories)))
