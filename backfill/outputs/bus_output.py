"""Batch output sent to the bus, each record exactly once even if the sender crashes.

    <folder>/category=…/ds=…/*.parquet --in parts--> transactions of records and a mark

Each transaction contains records and a mark with the number of records sent so far. After a crash, the next sender takes over the
transactional id, which aborts the open transaction, reads the mark, and continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import msgspec

from ...processors import counted
from ...processors.declare import AnyCategory
from ...transport import Bus, BusError, create_missing_categories
from ...transport.codecs import Codecs, encoded_messages
from ..errors import BackfillFailed, BackfillRefused
from ..warehouse import Days, Warehouse
from .sent_marks import MARKS, Appending, Sending, marks_on
from .stored_batch import StoredBatch

TRANSACTION_LIMIT_S = 60.0
_BUS = Appending("the bus contains", "on the bus", "records cannot be removed from a bus, not even with `--overwrite`")


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
    return _BUS.must_compute(
        bus,
        categories,
        days,
        lambda category, mark: _BUS.mark_to_continue(category.name, mark, _stored(folder, category), days),
    )


def _stored(folder: Warehouse, category: AnyCategory) -> StoredBatch:
    return StoredBatch.of(folder, category.name, category.record)


def send_batch(bus: Bus, folder: Warehouse, category: AnyCategory, days: Days, sending: Sending) -> SentCategory:
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
    batch, codec = _stored(folder, category), Codecs(bus).of(category)
    written = [category.name, MARKS.name]
    with closing(bus.transactional_writer(f"backfill.{category.name}", None, TRANSACTION_LIMIT_S, written)) as writer:
        # Only after the writer is open: until then an earlier sender may still commit.
        mark = _BUS.mark_to_continue(category.name, marks_on(bus).get(category.name), batch, days)
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
