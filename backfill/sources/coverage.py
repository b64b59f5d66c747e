"""Which of the days that a batch run reads are there, and complete: what is missing is told before anything is started.

    a category's files, marks and notes --Coverage--> days between others of which nothing is there: refused
                                                      days before a complete one that are not complete: refused
                                                      the days at the open end, and those beyond the archive: told

A day on which nothing happened has no files either. It is told from one that was lost by the offsets of all the others: where each
is there, nothing is missing between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import NamedTuple

from ...processors.declare.categories import AnyCategory
from ..errors import BackfillRefused
from ..warehouse.archive_settings import settings_of
from ..warehouse.footers import footer_of, offsets_of
from ..warehouse.layout import By, Days
from ..warehouse.listing import Listing
from ..warehouse.notes import SUCCESS, ArchiveSettings, closed_until
from ..warehouse.owners import bucket_notes
from ..warehouse.read_errors import unreadable_message
from ..warehouse.warehouse import WRITERS, Warehouse

EVER = Days(date.min, date.max)
ONE_DAY = timedelta(days=1)
OUTLYING = timedelta(days=366)
"""What lies further apart than this was not lost between: one of both is an event whose time is wrong."""


class WantedDays(NamedTuple):
    """What a run takes of a category.

    Args:
        category: which.
        read: the days whose events it reads.
        asked: those among them that were asked for.
    """

    category: AnyCategory
    read: Days
    asked: Days


@dataclass(frozen=True)
class Coverage:
    """The days of a category.

    Args:
        category: its name.
        stored: those that have events, in order.
        complete: those that are marked as complete; None where nobody marks days.
        closed: the last day that the archiver has left behind; None where there is none.
    """

    category: str
    stored: tuple[date, ...]
    complete: frozenset[date] | None
    closed: date | None = None

    def gaps(self, days: Days) -> list[Days]:
        """Return the stretches of days between stored ones that have no events."""
        between = (
            Days(before + ONE_DAY, after - ONE_DAY)
            for before, after in pairwise(self.stored)
            if ONE_DAY < after - before <= OUTLYING
        )
        return [gap for stretch in between if (gap := _common(stretch, days))]

    def unfinished(self, days: Days) -> list[Days]:
        """Return the days that are not complete, though a later one is."""
        marked = self.complete or frozenset()
        last = max(marked, default=date.min)
        return _stretches(day for day in self._among(days) if day < last and day not in marked)

    def open(self, days: Days) -> list[Days]:
        """Return the days to which more may come."""
        if self.complete is None:
            return []
        last = max({*self.complete, self.closed or date.min})
        return _stretches(day for day in self._among(days) if day > last)

    def has(self, days: Days) -> bool:
        """Tell whether anything is stored of days."""
        return bool(self._among(days))

    def beyond(self, days: Days) -> list[Days]:
        """Return the stretches of days before the first and after the last that is stored, or that the archiver has left behind."""
        first, last = self.stored[0], max(self.stored[-1], self.closed or date.min)
        before = _common(days, Days(date.min, first - ONE_DAY)) if first > date.min else None
        after = _common(days, Days(last + ONE_DAY, date.max)) if last < date.max else None
        return [stretch for stretch in (before, after) if stretch]

    def _among(self, days: Days) -> list[date]:
        return [day for day in self.stored if days.first <= day <= days.last]


def covered(warehouse: Warehouse, wanted: Sequence[WantedDays], *, allow_missing: bool) -> dict[str, str]:
    """Look at the days that a run reads; return by category what is to be said of them, where there is something.

    Of a category that is archived by arrival nothing is known of days of event time, and nothing is said.

    Args:
        warehouse: the archive.
        wanted: what is read; categories that are not there are passed over.
        allow_missing: go on where days are missing, or are not complete.

    Raises:
        BackfillRefused: days are missing, or a file is empty; nothing was started.
        WarehouseError: the warehouse.
    """
    looked: list[tuple[WantedDays, _Look]] = []
    for one in wanted:
        terms, listing = settings_of(warehouse, one.category.name), Listing.of(warehouse, one.category.name)
        by_arrival = terms is not None and terms.by is By.ARRIVAL
        _refuse_empty_files(warehouse, listing, EVER if by_arrival else one.read)
        if listing.all_files and not by_arrival:
            looked.append((one, _Look.at(warehouse, one.category, listing, terms)))
    if not allow_missing:
        for one, found in looked:
            found.refuse(one.read)
        _refuse_elsewhere(looked)
    said = {one.category.name: _said(found.coverage, one) for one, found in looked}
    return {name: text for name, text in said.items() if text}


@dataclass(frozen=True)
class _Look:
    warehouse: Warehouse
    listing: Listing
    coverage: Coverage

    @staticmethod
    def at(warehouse: Warehouse, category: AnyCategory, listing: Listing, terms: ArchiveSettings | None) -> _Look:
        """Look at a category that has files, and whose days are those of event time."""
        stored = sorted({date.fromisoformat(file.day) for file in listing.all_files})
        complete = frozenset(date.fromisoformat(day) for day, notes in listing.notes.items() if SUCCESS in notes)
        closed = None if terms is None else _closed(warehouse, category)
        marked = None if terms is None and not complete else complete
        return _Look(warehouse, listing, Coverage(category.name, tuple(stored), marked, closed))

    def refuse(self, days: Days) -> None:
        """Raise BackfillRefused where something is missing of days."""
        place = f"{self.warehouse.location}/category={self.coverage.category}"
        gaps = self.coverage.gaps(days)
        lost = _lost_offsets(self.warehouse, self.listing) if gaps else 0
        if lost is None or lost > 0:
            why = "whether that is all that there was is not known" if lost is None else f"{lost:,} offsets are missing"
            raise BackfillRefused(
                f"{place} has nothing of {in_words(gaps)}, though of days before and after, and {why}. Nothing was started. Put these days "
                "back from a copy, or archive them again; if nothing happened on them, or the result may lack them, say `--allow-missing`."
            )
        unfinished = self.coverage.unfinished(days)
        if unfinished:
            raise BackfillRefused(
                f"{place}: {in_words(unfinished)} is not complete ({SUCCESS} is missing), though later days are. Nothing was started. Let "
                "whatever writes the category finish (the archiver marks days when it goes on), or take what is there with "
                "`--allow-missing`."
            )


def _refuse_empty_files(warehouse: Warehouse, listing: Listing, days: Days) -> None:
    """Raise BackfillRefused for a file without a byte: Spark would pass over it."""
    empty = [file for file in listing.all_files if days.has(file.day) and not listing.sizes[file]]
    if empty:
        raise BackfillRefused(unreadable_message(f"{warehouse.location}/{empty[0].path}", "it is empty"))


def _closed(warehouse: Warehouse, category: AnyCategory) -> date | None:
    closed = closed_until(bucket_notes(warehouse, category.name), category.buckets)
    return None if closed is None else date.fromisoformat(closed)


def _lost_offsets(warehouse: Warehouse, listing: Listing) -> int | None:
    """Return how many offsets lie between those that are stored and are not; None where that is not known.

    Also messages that did not decode, and the marks of transactions, have offsets and are not stored.
    """
    if listing.others:
        return None
    with ThreadPoolExecutor(WRITERS) as pool:
        footers = list(pool.map(lambda file: footer_of(warehouse, file, listing.sizes[file]), listing.files))
    rows: defaultdict[int, int] = defaultdict(int)
    offsets: defaultdict[int, list[int]] = defaultdict(list)
    for file, footer in zip(listing.files, footers, strict=True):
        held = offsets_of(footer)
        if held is None:
            return None
        rows[file.bucket] += footer.num_rows
        offsets[file.bucket] += [held[0], held[-1]]
    return sum(max(ends) - min(ends) + 1 - rows[bucket] for bucket, ends in offsets.items())


def _refuse_elsewhere(looked: Sequence[tuple[WantedDays, _Look]]) -> None:
    """Raise BackfillRefused where no category has anything of the days that were asked for, or would have."""
    if not looked or not all(found.coverage.beyond(one.asked) == [one.asked] for one, found in looked):
        return
    there = "; ".join(
        f"{found.coverage.category} from {found.coverage.stored[0]} to {found.coverage.stored[-1]}"
        for _, found in looked
    )
    raise BackfillRefused(
        f"Nothing is archived of {in_words([looked[0][0].asked])}. There is {there}. Nothing was started. Look whether the days are the right "
        "ones (UTC, of event time), archive them first, or say `--allow-missing` for an empty result."
    )


def _said(coverage: Coverage, wanted: WantedDays) -> str:
    """Return what is to be said of days that are taken as they are."""
    beyond = [] if wanted.asked == EVER else coverage.beyond(wanted.asked)
    parts = (
        (coverage.gaps(wanted.asked), "has nothing of"),
        (coverage.unfinished(wanted.asked), "is not complete, though later days are, for"),
        (coverage.open(wanted.asked), "is not complete yet, so that more may come, for"),
        (beyond, "is not archived for"),
    )
    said = [f"{says} {in_words(days)}" for days, says in parts if days]
    return f"{coverage.category} {', and '.join(said)}" if said else ""


def in_words(stretches: Sequence[Days]) -> str:
    """Return stretches of days as people list them: 2013-01-05, 2013-01-07 to 2013-01-09."""
    return ", ".join(str(days) if days.first < days.last else str(days.first) for days in stretches)


def _stretches(days: Iterable[date]) -> list[Days]:
    """Return the stretches that days, in order, make."""
    found: list[Days] = []
    for day in days:
        if found and found[-1].last + ONE_DAY == day:
            found[-1] = Days(found[-1].first, day)
        else:
            found.append(Days(day, day))
    return found


def _common(one: Days, other: Days) -> Days | None:
    both = Days(max(one.first, other.first), min(one.last, other.last))
    return both if both.first <= both.last else None


def noted(notes: Mapping[str, str], categories: Iterable[AnyCategory], *more: str) -> str:
    """Return what is to be said of some categories, after what else there is to say."""
    of_categories = [notes[name] for name in dict.fromkeys(category.name for category in categories) if name in notes]
    return "; ".join(filter(None, (*more, *of_categories)))
