"""How far batches are on the bus: marks beside the records, each committed in one transaction with those that it speaks of.

    penstock.backfills, compacted    key  a category    value  what was sent of it, as JSON

Not the positions of a consumer group, which a broker forgets some days after the last commit.
"""

from __future__ import annotations

import msgspec

from ...transport.bus import Bus
from ...transport.category_spec import CategorySpec
from ...transport.messages import Outgoing
from ...transport.tables.bus_table import TEXT_KEY, BusTable
from ..errors import BackfillRefused
from ..warehouse.layout import Days

MARKS = CategorySpec("penstock.backfills", buckets=1, compacted=True)
"""Where marks are kept."""


class Sent(msgspec.Struct, frozen=True):
    """What was sent of a category.

    Args:
        batch: which batch was sent last, by its files.
        first: the first UTC day that it was asked for.
        last: the last one.
        records: how many of its records were sent, in its order.
        total: how many there are.
        before: the ranges of days whose batches were sent before.
    """

    batch: str
    first: str
    last: str
    records: int
    total: int
    before: tuple[tuple[str, str], ...] = ()

    @property
    def days(self) -> Days:
        """The days that the batch was asked for."""
        return Days.of(self.first, self.last)

    @property
    def is_whole(self) -> bool:
        """Whether all of it was sent."""
        return self.records == self.total

    def overlapping(self, days: Days) -> Days | None:
        """Return a range of days that was sent, and has days in common with others."""
        sent = [Days.of(*one) for one in ((self.first, self.last), *self.before)]
        return next((one for one in sent if one.first <= days.last and days.first <= one.last), None)

    def outgoing(self, category: str) -> Outgoing:
        """Return the mark as it is sent."""
        return _TABLE.put(category, self)


_TABLE: BusTable[str, Sent] = BusTable(MARKS, TEXT_KEY, msgspec.json.Decoder(Sent).decode)


def marks_on(bus: Bus) -> dict[str, Sent]:
    """Return the mark of each category, as of now; waits for open transactions."""
    return _TABLE.read(bus, wait_for_transactions=True)


def begun(category: str, mark: Sent | None, batch: str, total: int, days: Days) -> Sent:
    """Return where the sending of a batch begins, or goes on.

    Args:
        category: of which.
        mark: what was sent of it so far.
        batch: which batch is to be sent.
        total: how many records it has.
        days: the days that it was asked for.

    Raises:
        BackfillRefused: some of these records, or of their days, are on the bus as another batch.
    """
    if mark is None:
        return Sent(batch, str(days.first), str(days.last), 0, total)
    if mark.batch == batch and mark.days == days:
        return mark
    if not mark.is_whole and mark.batch == batch:
        raise BackfillRefused(
            f"{category}: the batch of {mark.days} is on its way to the bus, {mark.records:,} of {mark.total:,} records of it, and lies in the "
            "folder. Nothing was sent. Start the backfill of those days again, and it goes on there."
        )
    if not mark.is_whole:
        raise BackfillRefused(
            f"{category}: {mark.records:,} of {mark.total:,} records of an earlier batch, of {mark.days}, are on the bus, and what lies in the "
            "folder now is not that batch. Nothing was sent: records cannot be taken back from a bus, and others of the same days would be there "
            "beside them. Put the earlier batch back in its folder, and run it to its end; or write this one to files."
        )
    overlapping = mark.overlapping(days)
    if overlapping:
        raise BackfillRefused(
            f"{category}: the batch of {overlapping} is on the bus already. Nothing was sent: records cannot be taken back from a bus, neither "
            "with `--overwrite`, and a second time they would be there twice. Name days that were not sent, or write the batch to files."
        )
    before = ((mark.first, mark.last), *mark.before)
    return Sent(batch, str(days.first), str(days.last), 0, total, before)
