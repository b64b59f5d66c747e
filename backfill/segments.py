"""Segments: the stretch of a bucket's offsets that shares a file name, held until it is full.

A bucket is cut at multiples of a fixed number of offsets, so that whoever archives it, and however often, writes files of the
same names. A segment is one file for each day that its events happened on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .errors import WarehouseError
from .layout import StoredFile, day_of
from .warehouse import Warehouse

WRITERS = 8
"""How many files are written at a time."""
_LOOSE_BATCHES = 64
"""How many small batches of one day are held before they become one: each costs memory of its own."""


class Segment:
    """The events of one segment, by day.

    Args:
        category: the category's name.
        bucket: the bucket's number.
        start: the segment's first offset.
        schema: the columns of its files.
    """

    def __init__(self, category: str, bucket: int, start: int, schema: pa.Schema) -> None:
        self._category = category
        self._bucket = bucket
        self.start = start
        self._schema = schema
        self._days: dict[str, list[pa.RecordBatch]] = {}
        self._unwritten: set[str] = set()

    def restore(self, files: Iterable[StoredFile], warehouse: Warehouse, before: int) -> None:
        """Take up what was written of this segment, as far as it lies before an offset: the rest is read again."""
        for file in files:
            table = _fitted(pq.read_table(BytesIO(warehouse.read(file)), partitioning=None), self._schema, file)
            kept = table.filter(pc.less(table.column("_offset"), pa.scalar(before, pa.int64())))
            self._days[file.day] = kept.to_batches()
            if kept.num_rows < table.num_rows:
                self._unwritten.add(file.day)

    def add(self, batch: pa.RecordBatch) -> None:
        """Append events, in order of offset."""
        days = [day_of(time) for time in batch.column("_event_time").to_pylist() if time is not None]
        for day in dict.fromkeys(days):
            part = batch if days.count(day) == len(days) else batch.take(_places(days, day))
            held = self._days.setdefault(day, [])
            held.append(part)
            self._unwritten.add(day)
            if len(held) > _LOOSE_BATCHES:
                held[:] = pa.Table.from_batches(held, self._schema).combine_chunks().to_batches()

    def unwritten(self) -> list[str]:
        """Return the days that have changed since they were last written."""
        return sorted(self._unwritten)

    def write(self, day: str, warehouse: Warehouse) -> None:
        """Write the file of one day."""
        content = BytesIO()
        pq.write_table(pa.Table.from_batches(self._days[day], self._schema), content, compression="zstd")
        warehouse.write(StoredFile(self._category, day, self._bucket, self.start), content.getvalue())
        self._unwritten.discard(day)


def write_changed(segments: Iterable[Segment], warehouse: Warehouse) -> int:
    """Write what has changed in segments; return how many files.

    Several at a time, since each one waits for its disk or network: on HDFS that made it four times as fast.
    """
    changed = [(segment, day) for segment in segments for day in segment.unwritten()]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda file: file[0].write(file[1], warehouse), changed))
    return len(changed)


def _places(days: Sequence[str], wanted: str) -> pa.Array[pa.Int64Scalar]:
    return pa.array([at for at, day in enumerate(days) if day == wanted], pa.int64())


def _fitted(table: pa.Table, schema: pa.Schema, file: StoredFile) -> pa.Table:
    """Bring a file that an older record type wrote to today's columns."""
    try:
        return pa.Table.from_arrays(
            [
                table.column(field.name).cast(field.type)
                if field.name in table.column_names
                else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
                for field in schema
            ],
            schema=schema,
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise WarehouseError(
            f"{file.path} has columns of other types than its record has today, and it is not full yet, so that it cannot "
            f"be continued: {error}. Nothing was changed. Archive the new type under another category."
        ) from error
