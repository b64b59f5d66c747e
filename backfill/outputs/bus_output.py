"""Batch output sent to the bus, each record exactly once even if the sender crashes.

    <folder>/category=…/ds=…/*.parquet --a file at a time, in order of event time--> transactions of records and a mark

Each transaction contains records and a mark with the number of records sent so far. After a crash, the next sender takes over the
transactional id, which aborts the open transaction, reads the mark, and continues from there.

    penstock.backfills, compacted    key  a category    value  its mark, as JSON

The mark is no position of a consumer group, since a broker deletes those some days after the last commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from ...processors.declare.categories import AnyCategory
from ...processors.wording import counted
from ...transport.bus import Bus
from ...transport.category_spec import CategorySpec
from ...transport.codecs.by_category import Codecs, encoded_messages
from ...transport.errors import BusError
from ...transport.internal_topics import create_missing_categories
from ...transport.messages import Outgoing
from ...transport.tables.bus_table import TEXT_KEY, BusTable
from ..errors import BackfillFailed, BackfillRefused
from ..warehouse.columns import OUTPUT_MARKS, Columns
from ..warehouse.footers import footer_of
from ..warehouse.layout import Days, EventFile
from ..warehouse.stored import StoredCategory
from ..warehouse.warehouse import WRITERS, Warehouse

CHUNK_RECORDS = 50_000
"""The number of records in a transaction, or up to twice as many."""
TRANSACTION_LIMIT_S = 60.0
MARKS = CategorySpec("penstock.backfills", buckets=1, compacted=True)
"""The category of marks."""

BatchSender = Callable[[str, int, int], None]
"""Receives a category, the number of its records on the bus, and their total."""


@dataclass(frozen=True)
class SentCategory:
    """The result of sending a category.

    Args:
        category: its name.
        records: the number of records in its batch, all of which are on the bus.
        sent_before: the number of records that an earlier run had sent.
    """

    category: str
    records: int
    sent_before: int


class SentMark(msgspec.Struct, frozen=True):
    """The progress of sending a category.

    Args:
        batch: the identity of the last batch.
        first: the first UTC day of its request.
        last: the last UTC day.
        records: the number of its records on the bus, in the order of sending.
        total: the number of its records.
        before: the ranges of days of earlier batches.
    """

    batch: str
    first: str
    last: str
    records: int
    total: int
    before: tuple[tuple[str, str], ...] = ()

    @property
    def days(self) -> Days:
        """The requested days of the batch."""
        return Days.of(self.first, self.last)

    @property
    def is_whole(self) -> bool:
        """Whether all of its records are on the bus."""
        return self.records == self.total

    def overlapping(self, days: Days) -> Days | None:
        """Return an earlier batch's range of days that overlaps others; None without one."""
        earlier = (Days.of(*ends) for ends in ((self.first, self.last), *self.before))
        return next((sent for sent in earlier if sent.first <= days.last and days.first <= sent.last), None)

    def outgoing(self, category: str) -> Outgoing:
        """Return the message of the mark."""
        return _TABLE.put(category, self)


_TABLE: BusTable[str, SentMark] = BusTable(MARKS, TEXT_KEY, msgspec.json.Decoder(SentMark).decode)


def _marks_on(bus: Bus) -> dict[str, SentMark]:
    """Return the current mark of each category; wait for open transactions."""
    return _TABLE.read(bus, wait_for_transactions=True)


def _mark_to_continue(category: str, mark: SentMark | None, batch: str, total: int, days: Days) -> SentMark:
    """Return the mark from which a batch is sent.

    Args:
        category: the category's name.
        mark: its current mark.
        batch: the identity of the batch.
        total: the number of its records.
        days: the requested days.

    Raises:
        BackfillRefused: another batch has sent some of these records or days.
    """
    if mark is None:
        return SentMark(batch, str(days.first), str(days.last), 0, total)
    if mark.batch == batch and mark.days == days:
        return mark
    if not mark.is_whole and mark.batch == batch:
        raise BackfillRefused(
            f"{category}: this batch was requested for {mark.days}, and the bus contains {mark.records:,} of {counted(mark.total, 'record')}. Nothing was "
            "sent. Repeat the backfill of those days, which continues after them."
        )
    if not mark.is_whole:
        raise BackfillRefused(
            f"{category}: the bus contains {mark.records:,} of {counted(mark.total, 'record')} of an earlier batch, of {mark.days}, and the folder contains "
            "another batch. Nothing was sent: records cannot be removed from a bus, so it would contain parts of both. Put the earlier batch back "
            "into its folder, and send all of it; or write this batch to files."
        )
    overlapping = mark.overlapping(days)
    if overlapping:
        raise BackfillRefused(
            f"{category}: the batch of {overlapping} is on the bus already. Nothing was sent: records cannot be removed from a bus, not even with "
            "`--overwrite`, so they would be there twice. Choose days that were not sent, or write the batch to files."
        )
    before = ((mark.first, mark.last), *mark.before)
    return SentMark(batch, str(days.first), str(days.last), 0, total, before)


def must_compute(bus: Bus, folder: Warehouse, categories: Sequence[AnyCategory], days: Days) -> bool:
    """Return whether a batch must be computed before it is sent; not if the folder has it and a part was sent.

    Raises:
        BackfillRefused: the whole batch was sent, another batch of these days was sent, or there are no categories.
    """
    if not categories:
        raise BackfillRefused("None of the processors writes to a category. Nothing was started or sent.")
    marks = _marks_on(bus)
    marked = [(marks[category.name], _Batch.of(folder, category)) for category in categories if category.name in marks]
    sent = [_mark_to_continue(batch.category.name, mark, batch.digest, batch.records, days) for mark, batch in marked]
    before = [mark for mark, (earlier, _) in zip(sent, marked, strict=True) if mark is earlier]
    if len(before) == len(categories) and all(mark.is_whole for mark in before):
        raise BackfillRefused(
            f"The batch of {days} is on the bus already, with {counted(sum(mark.total for mark in before), 'record')}. Nothing was sent: records "
            "cannot be removed from a bus, not even with `--overwrite`, so a second run would duplicate them."
        )
    return not before


def send_batch(bus: Bus, folder: Warehouse, category: AnyCategory, days: Days, sending: BatchSender) -> SentCategory:
    """Send the batch output of a category in a worker's format; continue after the records of an earlier run.

    Args:
        bus: the bus with the category.
        folder: the location of the batch output.
        category: the category.
        days: the requested days of the batch.
        sending: receives the progress after each transaction.

    Raises:
        BackfillRefused: another batch of these days was sent; nothing was sent now.
        BackfillFailed: the bus failed; the sent records are on the bus once, and the next run continues after them.
        WarehouseError: the folder cannot be read.
    """
    create_missing_categories(bus, MARKS)
    batch, codec = _Batch.of(folder, category), Codecs(bus).of(category)
    written = [category.name, MARKS.name]
    with closing(bus.transactional_writer(f"backfill.{category.name}", None, TRANSACTION_LIMIT_S, written)) as writer:
        # Only after the writer is open: until then an earlier sender may still commit.
        mark = _mark_to_continue(category.name, _marks_on(bus).get(category.name), batch.digest, batch.records, days)
        sent = sent_before = mark.records
        try:
            for records in batch.parts(sent_before):
                writer.send(category.name, encoded_messages(category, codec, records))
                reached = msgspec.structs.replace(mark, records=sent + len(records))
                writer.send(MARKS.name, [reached.outgoing(category.name)])
                writer.flush()
                writer.commit([])
                sent = reached.records
                sending(category.name, sent, mark.total)
        except BusError as error:
            raise BackfillFailed(
                f"{category.name}: {error} The bus contains the first {sent:,} of {counted(mark.total, 'record')}, each once. Run "
                "the same backfill again: it continues after them."
            ) from error
    return SentCategory(category.name, batch.records, sent_before)


@dataclass(frozen=True)
class _Batch:
    """The batch output of a category.

    Args:
        category: the category.
        stored: its files.
        counts: the number of records of each file, in the order of sending.
    """

    category: AnyCategory
    stored: StoredCategory
    counts: dict[EventFile, int]

    @staticmethod
    def of(folder: Warehouse, category: AnyCategory) -> _Batch:
        """Read the files' footers."""
        schema = pa.schema([*Columns(category.record).schema, *OUTPUT_MARKS])
        stored = StoredCategory.of(folder, category.name, schema)
        files, sizes = stored.listing.all_files, stored.listing.sizes
        with ThreadPoolExecutor(WRITERS) as pool:
            footers = pool.map(lambda file: footer_of(folder, file, sizes[file]), files)
            return _Batch(
                category, stored, {file: footer.num_rows for file, footer in zip(files, footers, strict=True)}
            )

    @property
    def digest(self) -> str:
        """The identity of this batch: Spark gives every file a unique name."""
        files = "\n".join(f"{file.path} {self.stored.listing.sizes[file]}" for file in self.counts)
        return hashlib.sha256(files.encode()).hexdigest()

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(self.counts.values())

    def parts(self, start: int) -> Iterator[list[object]]:
        """Yield the records from a number on, one list per transaction; one empty list for an empty batch.

        So an empty batch has a mark too, and is not computed again.
        """
        part: list[object] = []
        for records in self._in_order(start):
            part += records
            if len(part) >= CHUNK_RECORDS:
                yield part
                part = []
        if part or not self.records:
            yield part

    def _in_order(self, start: int) -> Iterator[list[object]]:
        """Yield the records from a number on, always in the same order: day by day, each file in order of event time."""
        columns = Columns(self.category.record)
        for file, count in self.counts.items():
            if start < count:
                rows = pa.Table.from_batches(self.stored.read_files([file], self.stored.schema.names))
                # The sort is stable: records of the same time keep the order of the file.
                in_order = rows.sort_by("_event_time").slice(start)
                for batch in in_order.to_batches(CHUNK_RECORDS):
                    yield columns.records(batch)
            start = max(start - count, 0)
