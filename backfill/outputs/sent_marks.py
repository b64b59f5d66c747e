"""Marks of batches that were sent: a batch is sent once, and continued after a crash.

    penstock.backfills, compacted    key  a category or a sink    value  its mark, as JSON

The mark is no position of a consumer group, since a broker deletes those some days after the last commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from ...processors import counted
from ...processors.declare import AnyCategory, Sink
from ...transport import Bus, CategorySpec, Outgoing
from ...transport.tables import TEXT_KEY, BusTable
from ..errors import BackfillRefused
from ..warehouse import Days
from .stored_batch import StoredBatch

Place = TypeVar("Place", AnyCategory, Sink)
Sending = Callable[[str, int, int], None]
"""Receives a category or a sink, the number of its records that were sent, and their total."""

MARKS = CategorySpec("penstock.backfills", buckets=1, compacted=True)
"""The category of marks."""


class SentMark(msgspec.Struct, frozen=True):
    """The progress of sending the output for a category or a sink.

    Args:
        batch: the identity of the last batch.
        first: the first UTC day of its request.
        last: the last UTC day.
        records: the number of its records that were sent, in the order of sending.
        total: the number of its records.
        before: the ranges of days of earlier batches.
    """

    batch: str
    first: str
    last: str
    records: int
    total: int
    before: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def begin(batch: StoredBatch, days: Days, before: tuple[tuple[str, str], ...] = ()) -> SentMark:
        """Return the mark of a batch of which nothing was sent."""
        return SentMark(batch.digest, str(days.first), str(days.last), 0, batch.records, before)

    @property
    def days(self) -> Days:
        """The requested days of the batch."""
        return Days.of(self.first, self.last)

    @property
    def is_whole(self) -> bool:
        """Whether all of its records were sent."""
        return self.records == self.total

    def is_of(self, batch: StoredBatch, days: Days) -> bool:
        """Return whether this is the mark of a batch for the same days."""
        return self.batch == batch.digest and self.days == days

    def overlapping(self, days: Days) -> Days | None:
        """Return an earlier batch's range of days that overlaps others; None without one."""
        earlier = (Days.of(*ends) for ends in ((self.first, self.last), *self.before))
        return next((sent for sent in earlier if sent.first <= days.last and days.first <= sent.last), None)

    def outgoing(self, name: str) -> Outgoing:
        """Return the message of the mark."""
        return _TABLE.put(name, self)


_TABLE: BusTable[str, SentMark] = BusTable(MARKS, TEXT_KEY, msgspec.json.Decoder(SentMark).decode)


def marks_on(bus: Bus) -> dict[str, SentMark]:
    """Return the current mark of each category and sink; wait for open transactions."""
    return _TABLE.read(bus, wait_for_transactions=True)


class Appending(NamedTuple):
    """What was sent to such a place stays there. The words of errors about it.

    Args:
        contains: such as "the bus contains".
        inside: such as "on the bus".
        permanent: why records stay, also with `--overwrite`.
    """

    contains: str
    inside: str
    permanent: str

    def must_compute(
        self, bus: Bus, places: Sequence[Place], days: Days, mark_to_continue: Callable[[Place, SentMark], SentMark]
    ) -> bool:
        """Return whether a batch must be computed before it is sent; not if the folder has it and an earlier run began to send it.

        Args:
            bus: contains the marks.
            places: the categories or sinks.
            days: the requested days.
            mark_to_continue: returns the mark from which a place's batch is sent, by its current one.

        Raises:
            BackfillRefused: the whole batch was sent, or as `mark_to_continue`.
        """
        marks = marks_on(bus)
        marked = [(place, marks[place.name]) for place in places if place.name in marks]
        begun = [mark for place, mark in marked if mark_to_continue(place, mark) is mark]
        if len(begun) == len(places) and all(mark.is_whole for mark in begun):
            extent = f", with {counted(sum(mark.total for mark in begun), 'record')}"
            raise self._sent_already(", ".join(place.name for place in places), days, extent)
        return not begun

    def _sent_already(self, names: str, days: Days, extent: str = "") -> BackfillRefused:
        return BackfillRefused(
            f"{names}: the batch of {days} is {self.inside} already{extent}. Nothing was sent: {self.permanent}, so they would be there twice. "
            "Choose days that were not sent, or write the batch to files."
        )

    def mark_to_continue(self, name: str, mark: SentMark | None, batch: StoredBatch, days: Days) -> SentMark:
        """Return the mark from which a batch is sent.

        Args:
            name: the category or sink.
            mark: its current mark.
            batch: the batch.
            days: the requested days.

        Raises:
            BackfillRefused: another batch has sent some of these records or days.
        """
        if mark is None:
            return SentMark.begin(batch, days)
        if mark.is_of(batch, days):
            return mark
        if not mark.is_whole and mark.batch == batch.digest:
            raise BackfillRefused(
                f"{name}: this batch was requested for {mark.days}, and {self.contains} {mark.records:,} of {counted(mark.total, 'record')}. Nothing was "
                "sent. Repeat the backfill of those days, which continues after them."
            )
        if not mark.is_whole:
            raise BackfillRefused(
                f"{name}: {self.contains} {mark.records:,} of {counted(mark.total, 'record')} of an earlier batch, of {mark.days}, and the folder contains "
                f"another batch. Nothing was sent: {self.permanent}, so it would contain parts of both. Put the earlier batch back "
                "into its folder, and send all of it; or write this batch to files."
            )
        overlapping = mark.overlapping(days)
        if overlapping:
            raise self._sent_already(name, overlapping)
        return SentMark.begin(batch, days, ((mark.first, mark.last), *mark.before))
