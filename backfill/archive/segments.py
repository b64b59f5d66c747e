"""Segments: the stretch of a bucket's offsets that shares a file name, held until it is full.

A bucket is cut at multiples of a fixed number of offsets, so that whoever archives it, and however often, writes files of the
same names. A segment is one file for each day that its events happened on.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from ..warehouse.columns import days_of
from ..warehouse.evolution import content_of, fitted, table_of
from ..warehouse.layout import StoredFile
from ..warehouse.notes import Addition, Closing, Late, late_from, late_note, read_note, write_note
from ..warehouse.seam import WRITERS, Warehouse

_LOOSE_BATCHES = 64
"""How many small batches of one day are held before they become one: each costs memory of its own."""


class Segment:
    """The events of one segment, by day.

    Args:
        category: the category's name.
        bucket: the bucket's number.
        start: the segment's first offset.
        schema: the columns of its files.
        clock: the column with the time by which events have their days.
        compacted: files in which events of finished segments are; what they hold is not written again.
    """

    def __init__(
        self,
        category: str,
        bucket: int,
        start: int,
        schema: pa.Schema,
        *,
        clock: str = "_event_time",
        compacted: Iterable[StoredFile] = (),
    ) -> None:
        self._category = category
        self._bucket = bucket
        self.start = start
        self._schema = schema
        self._clock = clock
        self._done = {file.day for file in compacted if file.holds(bucket, start)}
        self._days: dict[str, list[pa.RecordBatch]] = {}
        self._unwritten: set[str] = set()

    def restore(self, files: Iterable[StoredFile], warehouse: Warehouse, before: int) -> None:
        """Take up what was written of this segment, as far as it lies before an offset: the rest is read again."""
        for file in files:
            if file.is_compacted or not file.holds(self._bucket, self.start):
                continue
            table = fitted(table_of(warehouse.read(file)), self._schema, file)
            kept = table.filter(pc.less(table.column("_offset"), pa.scalar(before, pa.int64())))
            self._days[file.day] = kept.to_batches()
            if kept.num_rows < table.num_rows:
                self._unwritten.add(file.day)

    def add(self, batch: pa.RecordBatch) -> None:
        """Append events, in order of offset."""
        days = days_of(batch.column(self._clock))
        found = cast("list[str]", days.unique().to_pylist())
        for day in found:
            if day in self._done:
                continue
            part = batch if len(found) == 1 else batch.filter(pc.equal(days, pa.scalar(day)))
            held = self._days.setdefault(day, [])
            held.append(part)
            self._unwritten.add(day)
            if len(held) > _LOOSE_BATCHES:
                held[:] = pa.Table.from_batches(held, self._schema).combine_chunks().to_batches()

    def unwritten(self) -> list[str]:
        """Return the days that have changed since they were last written."""
        return sorted(self._unwritten)

    def write(self, day: str, warehouse: Warehouse, late_from: int | None) -> None:
        """Write the file of one day, then how much of it is late.

        Args:
            day: which.
            warehouse: where it goes.
            late_from: the offset from which on events of this day are late additions; None while none is.
        """
        table = pa.Table.from_batches(self._days[day], self._schema)
        warehouse.write(StoredFile(self._category, day, self._bucket, self.start), content_of(table))
        if late_from is not None:
            late = table.filter(pc.greater_equal(table.column("_offset"), pa.scalar(late_from, pa.int64())))
            self._note_late(day, warehouse, late.column("_arrived"))
        self._unwritten.discard(day)

    def _note_late(self, day: str, warehouse: Warehouse, arrived: pa.ChunkedArray[Any]) -> None:
        """Note the additions of this segment, in place of what was noted of it before."""
        place = late_note(self._category, day, self._bucket)
        noted = read_note(warehouse, place, Late) or Late(self._bucket, ())
        additions = {addition.segment: addition for addition in noted.additions}
        if len(arrived):
            first, last = pc.min(arrived).as_py(), pc.max(arrived).as_py()
            additions[self.start] = Addition(self.start, len(arrived), first, last)
        else:
            additions.pop(self.start, None)
        now = Late(self._bucket, tuple(additions[segment] for segment in sorted(additions)))
        if now != noted:
            write_note(warehouse, place, now)


class Unwritten(NamedTuple):
    """A segment that may have changed, and what is late for it.

    Args:
        segment: the segment.
        closings: the days that its bucket has closed, each from an offset on.
    """

    segment: Segment
    closings: tuple[Closing, ...]


def write_changed(segments: Iterable[Unwritten], warehouse: Warehouse) -> list[str]:
    """Write what has changed in segments; return the day of each file.

    Several at a time, since each one waits for its disk or network: on HDFS that made it four times as fast.
    """
    changed = [(one, day) for one in segments for day in one.segment.unwritten()]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(
            pool.map(
                lambda file: file[0].segment.write(file[1], warehouse, late_from(file[0].closings, file[1])), changed
            )
        )
    return [day for _, day in changed]
