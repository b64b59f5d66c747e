"""Batch output sent to the bus, each record exactly once even if the sender crashes.

    <folder>/category=…/ds=…/*.parquet --a file at a time, in order of event time--> transactions of records and a mark

Each transaction contains records and a mark with the number of records sent so far. After a crash, the next sender takes over the
transactional id, which aborts the open transaction, reads the mark, and continues from there.
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
"""The number of records in a transaction, or up to twice as many."""
TRANSACTION_LIMIT_S = 60.0

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


def must_compute(bus: Bus, folder: Warehouse, categories: Sequence[AnyCategory], days: Days) -> bool:
    """Return whether a batch must be computed before it is sent; not if the folder has it and a part was sent.

    Raises:
        BackfillRefused: the whole batch was sent, another batch of these days was sent, or there are no categories.
    """
    if not categories:
        raise BackfillRefused("None of the processors writes to a category. Nothing was started or sent.")
    marks = marks_on(bus)
    known = [(marks[one.name], _Batch.of(folder, one)) for one in categories if one.name in marks]
    sent = [begun(batch.category.name, mark, batch.digest, batch.records, days) for mark, batch in known]
    before = [mark for mark, (earlier, _) in zip(sent, known, strict=True) if mark is earlier]
    if len(before) == len(categories) and all(mark.is_whole for mark in before):
        raise BackfillRefused(
            f"All {sum(mark.total for mark in before):,} records of the batch of {days} are on the bus already. Nothing was sent: records "
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
                f"{category.name}: {error} The first {sent:,} of {mark.total:,} records are on the bus once. Run "
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
            return _Batch(category, stored, {file: one.num_rows for file, one in zip(files, footers, strict=True)})

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
