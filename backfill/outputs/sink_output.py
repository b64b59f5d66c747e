"""Batch output written to sinks: in order, by one writer, and continued after a crash.

    <folder>/category=…/ds=…/*.parquet --in parts--> `SinkWriter.write` --> a mark on the bus

A sink that supports it saves the position of a part in the transaction with its rows, so each row is written once. With another one, a crash
repeats the last part with the same identity: a Parquet file is replaced, and a request has the same `Idempotency-Key`. At most once, the mark
comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import msgspec

from ...processors.declare import (
    RefusedRow,
    Semantics,
    Sink,
    SinkBatch,
    SinkFenced,
    SinkRefused,
    SinkUnreachable,
    SinkWriter,
    write_accepted,
)
from ...transport import Bus, BusError, Writer, create_missing_categories
from ..errors import BackfillFailed, BackfillRefused
from ..steps import name_in_batch
from ..warehouse import Days, Warehouse
from .sent_marks import MARKS, Appending, Sending, SentMark, marks_on
from .stored_batch import StoredBatch

WRITER = "backfill"
"""The name of the writer in a sink, in place of a processor's. Workers keep the sink's shards."""
_APPENDED = Appending("it contains", "written", "rows are only appended, also with `--overwrite`")


@dataclass(frozen=True)
class FilledSink:
    """The result of writing the rows of a sink.

    Args:
        sink: its name.
        rows: the number of rows in its batch.
        written_before: the number of rows that an earlier run had written.
        refused: the number of rows that the sink refused now.
        reason: why it refused the first of them; empty without any.
    """

    sink: str
    rows: int
    written_before: int
    refused: int
    reason: str


class _Position(msgspec.Struct, frozen=True):
    """The position that a sink saves with a part: the batch, and the number of its rows that were written."""

    batch: str
    rows: int


_decode = msgspec.json.Decoder(_Position).decode


def expect_writable(sinks: Sequence[Sink]) -> None:
    """Check that sinks can be written, before rows are computed for them.

    Raises:
        BackfillRefused: a sink does not answer, cannot be written as declared, or there are none.
    """
    if not sinks:
        raise BackfillRefused(
            "None of the processors writes to a sink. Nothing was started. Omit `--output sinks` to write to a folder."
        )
    for sink in sinks:
        try:
            with closing(sink.open()) as writer:
                writer.claim(WRITER, 0)
        except (SinkUnreachable, SinkRefused) as error:
            raise BackfillRefused(f"{error} Nothing was started.") from error


def must_compute_rows(bus: Bus, folder: Warehouse, sinks: Sequence[Sink], days: Days) -> bool:
    """Return whether rows must be computed before they are written; not if the folder has them and an earlier run began to write them.

    Raises:
        BackfillRefused: all rows, or those of another batch of these days, were appended.
    """
    return _APPENDED.must_compute(
        bus, sinks, days, lambda sink, mark: _mark_of(sink, mark, _stored(folder, sink), days)
    )


def _stored(folder: Warehouse, sink: Sink) -> StoredBatch:
    return StoredBatch.of(folder, name_in_batch(sink), sink.record)


def _mark_of(sink: Sink, mark: SentMark | None, batch: StoredBatch, days: Days) -> SentMark:
    """Return the mark from which rows are written. Rows that replace others are written again after a whole batch, and after another one."""
    if not sink.replaces_rows:
        return _APPENDED.mark_to_continue(sink.name, mark, batch, days)
    if mark is None or mark.is_whole or not mark.is_of(batch, days):
        return SentMark.begin(batch, days)
    return mark


def write_rows(bus: Bus, folder: Warehouse, sink: Sink, days: Days, sending: Sending) -> FilledSink:
    """Write the batch output of a sink; continue after the rows of an earlier run.

    Args:
        bus: contains the marks.
        folder: the location of the batch output.
        sink: the sink.
        days: the requested days of the batch.
        sending: receives the progress after each part.

    Raises:
        BackfillRefused: another batch of these days was written; nothing was written now.
        BackfillFailed: the sink or the bus failed; the next run continues after the written rows.
        WarehouseError: the folder cannot be read.
    """
    create_missing_categories(bus, MARKS)
    batch = _stored(folder, sink)
    mark = _mark_of(sink, marks_on(bus).get(sink.name), batch, days)
    try:
        with closing(sink.open()) as writer, closing(bus.writer()) as marks:
            return _SinkBackfill(sink, writer, marks, batch, mark).run(sending)
    except (SinkUnreachable, SinkFenced, SinkRefused, BusError) as error:
        raise BackfillFailed(
            f"{sink.name}: {error} Run the same backfill again after that: it continues after the rows that were written."
        ) from error


@dataclass(frozen=True)
class _SinkBackfill:
    """One run over the rows of a sink.

    Args:
        sink: the sink.
        writer: its writer.
        marks: writes the marks.
        batch: the rows.
        mark: the mark from which rows are written.
    """

    sink: Sink
    writer: SinkWriter
    marks: Writer
    batch: StoredBatch
    mark: SentMark

    def run(self, sending: Sending) -> FilledSink:
        """Write all parts that are left."""
        begin = rows = max(self.mark.records, self._position())
        self._save(begin)  # so the batch is not computed again if not even its first part can be written
        refused: list[RefusedRow] = []
        for part in filter(None, self.batch.parts(begin)):
            refused += self._write(part, rows)
            rows += len(part)
            sending(self.sink.name, rows, self.batch.records)
        reason = refused[0].reason if refused else ""
        return FilledSink(self.sink.name, self.batch.records, begin, len(refused), reason)

    @property
    def _semantics(self) -> Semantics:
        """The strongest that the sink supports."""
        order = (Semantics.EXACTLY_ONCE, Semantics.AT_LEAST_ONCE, Semantics.AT_MOST_ONCE)
        return next(each for each in order if each in self.sink.semantics)

    def _position(self) -> int:
        """Claim the sink, and return the number of rows of this batch that it contains, as far as it knows."""
        saved = self.writer.claim(WRITER, 0)
        position = _decode(saved) if saved else None
        return position.rows if position and position.batch == self._identity else 0

    @property
    def _identity(self) -> str:
        """The batch and its days."""
        return f"{self.mark.batch} {self.mark.days}"

    def _write(self, part: Sequence[object], before: int) -> Sequence[RefusedRow]:
        exactly, after = self._semantics is Semantics.EXACTLY_ONCE, before + len(part)
        position = msgspec.json.encode(_Position(self._identity, after)).decode() if exactly else ""
        # The name takes the place of an input, which is a folder in some sinks: days in parts would share it with other days.
        first = {f"{WRITER}-{self.mark.first}-{self.mark.last}": before}
        rows = SinkBatch(WRITER, 0, first, part, position, self._semantics)
        refused: list[RefusedRow] = []
        if self._semantics is Semantics.AT_MOST_ONCE:
            self._save(after)
        write_accepted(self.writer, rows, lambda _, found: refused.extend(found))
        if self._semantics is not Semantics.AT_MOST_ONCE:
            self._save(after)
        return refused

    def _save(self, rows: int) -> None:
        """Save the mark: durable on return."""
        self.marks.send(MARKS.name, [msgspec.structs.replace(self.mark, records=rows).outgoing(self.sink.name)])
        self.marks.flush()
