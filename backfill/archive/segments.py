"""Segments: ranges of a bucket's offsets that share a file name, kept in memory until they are full.

A bucket is split at multiples of a fixed number of offsets, so every owner writes the same segments. A segment has one file for each day of
its events. An owner writes all events of a day under its own epoch, including the events that earlier owners have written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..warehouse import (
    WRITERS,
    Addition,
    ArchivedFile,
    Closing,
    Late,
    Warehouse,
    by_day,
    content_of,
    fitted,
    late_from,
    late_note,
    read_note,
    table_of,
    write_note,
)

_LOOSE_BATCHES = 64
"""The number of small batches of one day before they are combined: each one costs memory of its own."""


class Segment:
    """The events of one segment, by day.

    Args:
        category: the category's name.
        bucket: the bucket's number.
        start: the segment's first offset.
        epoch: the bucket's owner.
        schema: the columns of its files.
        clock: the column that assigns events to days.
        compacted: compacted files; events that they contain are not written again.
    """

    def __init__(
        self,
        category: str,
        bucket: int,
        start: int,
        epoch: int,
        schema: pa.Schema,
        *,
        clock: str = "_event_time",
        compacted: Iterable[ArchivedFile] = (),
    ) -> None:
        self._category = category
        self._bucket = bucket
        self.start = start
        self._epoch = epoch
        self._schema = schema
        self._clock = clock
        self._compacted = list(compacted)
        self._compacted_days = {file.day for file in self._compacted if file.contains(bucket, start)}
        self._days: dict[str, list[pa.RecordBatch]] = {}
        self._unwritten: set[str] = set()

    def starting_at(self, start: int) -> Segment:
        """Return an empty segment of the same bucket."""
        return Segment(
            self._category,
            self._bucket,
            start,
            self._epoch,
            self._schema,
            clock=self._clock,
            compacted=self._compacted,
        )

    def restore(self, files: Iterable[ArchivedFile], warehouse: Warehouse, before: int) -> None:
        """Restore the written events of this segment before an offset. Later events are read again."""
        for file in files:
            if file.is_compacted or not file.contains(self._bucket, self.start):
                continue
            table = fitted(table_of(warehouse.read(file)), self._schema, file)
            kept = table.filter(pc.less(table.column("_offset"), pa.scalar(before, pa.int64())))
            self._days[file.day] = kept.to_batches()
            if kept.num_rows < table.num_rows:
                self._unwritten.add(file.day)

    def add(self, batch: pa.RecordBatch) -> None:
        """Append events in offset order."""
        for day, part in by_day(batch, self._clock):
            if day in self._compacted_days:
                continue
            batches = self._days.setdefault(day, [])
            batches.append(part)
            self._unwritten.add(day)
            if len(batches) > _LOOSE_BATCHES:
                batches[:] = pa.Table.from_batches(batches, self._schema).combine_chunks().to_batches()

    def unwritten(self) -> list[str]:
        """Return the days that have changed since they were last written."""
        return sorted(self._unwritten)

    def write(self, day: str, warehouse: Warehouse, late: LateAdditions, late_from: int | None) -> ArchivedFile:
        """Write the file of one day, then its late additions. Return the file.

        Args:
            day: the day.
            warehouse: the destination.
            late: the bucket's late additions.
            late_from: the offset from which on events of this day are late; None while none is.
        """
        table = pa.Table.from_batches(self._days[day], self._schema)
        file = ArchivedFile(self._category, day, self._bucket, self.start, epoch=self._epoch)
        warehouse.write(file, content_of(table))
        if late_from is not None:
            additions = table.filter(pc.greater_equal(table.column("_offset"), pa.scalar(late_from, pa.int64())))
            late.record(day, self.start, self._addition(additions.column("_arrived")))
        self._unwritten.discard(day)
        return file

    def _addition(self, arrived: pa.ChunkedArray[Any]) -> Addition | None:
        if not len(arrived):
            return None
        return Addition(self.start, len(arrived), pc.min(arrived).as_py(), pc.max(arrived).as_py())


class UnwrittenSegment(NamedTuple):
    """A segment with possible changes, and its late additions.

    Args:
        segment: the segment.
        late: the late additions of its bucket.
        closings: the days that its bucket has closed, with their offsets.
    """

    segment: Segment
    late: LateAdditions
    closings: tuple[Closing, ...]

    def write(self, day: str, warehouse: Warehouse) -> ArchivedFile:
        """Write the file of one day."""
        return self.segment.write(day, warehouse, self.late, late_from(self.closings, day))


def write_changed(segments: Iterable[UnwrittenSegment], warehouse: Warehouse) -> list[ArchivedFile]:
    """Write the changed days of segments. Return the files.

    Several are written at a time, since each one waits for its disk or network: on HDFS this is four times as fast.
    """
    changed = [(unwritten, day) for unwritten in segments for day in unwritten.segment.unwritten()]
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(lambda change: change[0].write(change[1], warehouse), changed))


class LateAdditions:
    """The late additions of one bucket. Several threads may record days, each day by one thread at a time.

    Args:
        warehouse: the warehouse.
        category: the category's name.
        bucket: the bucket's number.
        epoch: the owner.
        note_epochs: the epoch of the previous owner's note by day.
    """

    def __init__(
        self, warehouse: Warehouse, category: str, bucket: int, epoch: int, note_epochs: Mapping[str, int]
    ) -> None:
        self._warehouse = warehouse
        self._category = category
        self._bucket = bucket
        self._epoch = epoch
        self._note_epochs = dict(note_epochs)

    def record(self, day: str, segment: int, addition: Addition | None) -> None:
        """Replace a segment's additions to a day; None for no additions."""
        old_epoch = self._note_epochs.get(day)
        old_note = late_note(self._category, day, self._bucket, old_epoch or self._epoch)
        old = read_note(self._warehouse, old_note, Late) or Late(self._bucket, ())
        additions = {other.segment: other for other in old.additions if other.segment != segment}
        if addition is not None:
            additions[segment] = addition
        new = Late(self._bucket, tuple(additions[start] for start in sorted(additions)))
        if new == old:
            return
        write_note(self._warehouse, late_note(self._category, day, self._bucket, self._epoch), new)
        self._note_epochs[day] = self._epoch
        if old_epoch not in {None, self._epoch}:
            self._warehouse.delete(old_note)
