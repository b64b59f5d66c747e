"""A batch's output sent to the bus, each record once, however often the sending dies.

    <folder>/category=…/ds=…/*.parquet --a file at a time, in order of event time--> transactions of records and a mark

A transaction carries so many records and the mark that says how far the batch is sent. Who goes on takes over the transactional id, which ends what
the dead one left open, reads the mark, and sends from there.
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
from ...transport.bus import Bus
from ...transport.codecs.by_category import Codecs
from ...transport.errors import BusError
from ...transport.internal_topics import create_missing_categories
from ...transport.messages import Outgoing
from ..errors import BackfillFailed, BackfillRefused
from ..warehouse.columns import OUTPUT_MARKS, Columns
from ..warehouse.footers import footer_of
from ..warehouse.layout import Days, EventFile
from ..warehouse.stored import StoredCategory
from ..warehouse.warehouse import WRITERS, Warehouse
from .sent_marks import MARKS, begun, marks_on

CHUNK_RECORDS = 50_000
"""How many records go in one transaction, or up to twice as many."""
TRANSACTION_LIMIT_S = 60.0

BatchSender = Callable[[str, int, int], None]
"""Told a category, how many records of its batch are on the bus, and how many there are."""


@dataclass(frozen=True)
class SentCategory:
    """What was sent of a category.

    Args:
        category: its name.
        records: how many records its batch has, all of which are on the bus.
        sent_before: how many of them an earlier run had sent.
    """

    category: str
    records: int
    sent_before: int


def is_to_be_computed(bus: Bus, folder: Warehouse, categories: Sequence[AnyCategory], days: Days) -> bool:
    """Tell whether a batch is to be computed before it is sent: not where it lies in the folder, and some of it was sent.

    Raises:
        BackfillRefused: all of it was sent, or other records of its days were, or it has no categories.
    """
    if not categories:
        raise BackfillRefused("Nothing of what is to be run writes to a category. Nothing was started or sent.")
    marks = marks_on(bus)
    known = [(marks[one.name], _Batch.of(folder, one)) for one in categories if one.name in marks]
    sent = [begun(batch.category.name, mark, batch.digest, batch.records, days) for mark, batch in known]
    before = [mark for mark, (earlier, _) in zip(sent, known, strict=True) if mark is earlier]
    if len(before) == len(categories) and all(mark.is_whole for mark in before):
        raise BackfillRefused(
            f"The batch of {days} is on the bus already, all {sum(mark.total for mark in before):,} records of it. Nothing was sent: records "
            "cannot be taken back from a bus, neither with `--overwrite`, and a second time they would be there twice."
        )
    return not before


def send_batch(bus: Bus, folder: Warehouse, category: AnyCategory, days: Days, sending: BatchSender) -> SentCategory:
    """Send what a batch run has written of a category, as a worker writes it; go on where an earlier run ended.

    Args:
        bus: where the category is.
        folder: where the batch's output is.
        category: which.
        days: the days that the batch was asked for.
        sending: told how far it is, after each transaction.

    Raises:
        BackfillRefused: other records of these days were sent; nothing was sent now.
        BackfillFailed: the bus failed; what was sent is there once, and the next run goes on behind it.
        WarehouseError: the folder.
    """
    create_missing_categories(bus, MARKS)
    batch, codec = _Batch.of(folder, category), Codecs(bus).of(category)
    written = [category.name, MARKS.name]
    with closing(bus.transactional_writer(f"backfill.{category.name}", None, TRANSACTION_LIMIT_S, written)) as writer:
        # Not before the writer is open: until then one that is not quite dead may still commit.
        mark = begun(category.name, marks_on(bus).get(category.name), batch.digest, batch.records, days)
        sent = sent_before = mark.records
        try:
            for records in batch.parts(sent_before):
                keys = [key.encode() for key in category.keys_of(records)]
                writer.send(category.name, map(Outgoing, keys, codec.encode(records)))
                reached = msgspec.structs.replace(mark, records=sent + len(records))
                writer.send(MARKS.name, [reached.outgoing(category.name)])
                writer.flush()
                writer.commit([])
                sent = reached.records
                sending(category.name, sent, mark.total)
        except BusError as error:
            raise BackfillFailed(
                f"{category.name}: {error} What was sent of its batch is on the bus once, up to {sent:,} of {mark.total:,} records. Start "
                "the same backfill again: it goes on there."
            ) from error
    return SentCategory(category.name, batch.records, sent_before)


@dataclass(frozen=True)
class _Batch:
    """What a batch run has written of a category.

    Args:
        category: which.
        stored: its files.
        counts: how many records each has, in the order in which they are sent.
    """

    category: AnyCategory
    stored: StoredCategory
    counts: dict[EventFile, int]

    @staticmethod
    def of(folder: Warehouse, category: AnyCategory) -> _Batch:
        """Look at it."""
        schema = pa.schema([*Columns(category.record).schema, *OUTPUT_MARKS])
        stored = StoredCategory.of(folder, category.name, schema)
        files, sizes = stored.listing.all_files, stored.listing.sizes
        with ThreadPoolExecutor(WRITERS) as pool:
            footers = pool.map(lambda file: footer_of(folder, file, sizes[file]), files)
            return _Batch(category, stored, {file: one.num_rows for file, one in zip(files, footers, strict=True)})

    @property
    def digest(self) -> str:
        """What tells this batch from all others: Spark gives every file that it writes a name of its own."""
        files = "\n".join(f"{file.path} {self.stored.listing.sizes[file]}" for file in self.counts)
        return hashlib.sha256(files.encode()).hexdigest()

    @property
    def records(self) -> int:
        """How many records it has."""
        return sum(self.counts.values())

    def parts(self, start: int) -> Iterator[list[object]]:
        """Give the records from a number on as they share transactions; where there are none, one part that is empty.

        So a batch without records has a mark, too, and is not computed again to find that out.
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
        """Give the records from a number on, in an order that is always the same: day by day, each file in order of event time."""
        columns = Columns(self.category.record)
        for file, count in self.counts.items():
            if start < count:
                rows = pa.Table.from_batches(self.stored.read_files([file], self.stored.schema.names))
                # Stable, so that records of one time stay in the file's order.
                in_order = rows.sort_by("_event_time").slice(start)
                for batch in in_order.to_batches(CHUNK_RECORDS):
                    yield columns.records(batch)
            start = max(start - count, 0)
