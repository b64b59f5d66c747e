"""Files of an archived category that tasks read directly, for processors that need no shuffle before them.

Spark's reader turns columns into rows and back into columns for Python, which costs several times what most processors do with an
event. A task that knows its files reads only the needed columns, as columns.

    listing --planned--> files of each task, by size --mapped--> events of each file, in batches
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import groupby
from math import ceil
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from ..errors import WarehouseFileMissing
from ..warehouse import (
    WRITERS,
    ArchivedFile,
    Days,
    Listing,
    OpenSegments,
    Warehouse,
    fitted,
    footer_of,
    is_same,
    merged,
    naming_file,
    offsets_of,
    read_events,
)
from .coverage import ALL_DAYS

TASK_BYTES = 32 * 2**20
"""The most bytes that one task reads, except for a single larger file."""
ALL_OFFSETS = range(2**63)
"""The offsets of a file whose footer does not say them."""
TASKS_PER_CORE = 4
"""The least number of tasks per core, if there are enough files, so that the last tasks end at about the same time."""


@dataclass(frozen=True)
class Files:
    """The files of a category.

    Args:
        warehouse: the archive.
        schema: the columns of the current record type.
        by_event_time: whether the days of the files are days of event time instead of arrival.
    """

    warehouse: Warehouse
    schema: pa.Schema
    by_event_time: bool

    def planned(self, listing: Listing, days: Days, least: int) -> PlannedFiles:
        """Assign listed files to at least `least` tasks, if there are enough files, for events of some days of event time."""
        return self._assigned(self._with_days(listing, days), listing, days, least)

    def planned_until(self, listing: Listing, days: Days, least: int) -> PlannedFiles:
        """Assign listed files to tasks, for all events up to the last one, in each bucket, of some days of event time.

        The events end with a segment, so later events may follow.
        """
        last: dict[int, int] = {}
        for file in self._with_days(listing, days):
            last[file.bucket] = max(file.last_segment, last.get(file.bucket, -1))
        files = [file for file in listing.files if file.segment <= last.get(file.bucket, -1)]
        return replace(self._assigned(files, listing, ALL_DAYS, least), ends=self._open_ends(files, listing))

    def _open_ends(self, files: Iterable[ArchivedFile], listing: Listing) -> dict[int, int]:
        """Return the last offset, so far, of each bucket whose last segment is among some files: an archiver may add events to any of its days."""
        open_segments = OpenSegments.last_of(listing.files)
        growing = [file for file in files if open_segments.is_growing(file)]
        with ThreadPoolExecutor(WRITERS) as threads:
            offsets = list(threads.map(lambda file: self._offsets(file, listing.sizes[file]), growing))
        ends: dict[int, int] = {}
        for file, of_file in zip(growing, offsets, strict=True):
            ends[file.bucket] = max(of_file[-1], ends.get(file.bucket, -1))
        return ends

    def _offsets(self, file: ArchivedFile, size_bytes: int) -> range:
        try:
            footer = footer_of(self.warehouse, file, size_bytes)
        except WarehouseFileMissing:  # written again by a later owner of the bucket
            footer = pq.read_metadata(BytesIO(read_events(self.warehouse, file)))
        return offsets_of(footer) or ALL_OFFSETS

    def _with_days(self, listing: Listing, days: Days) -> list[ArchivedFile]:
        """Return the files that may have events of some days."""
        return [file for file in listing.files if not self.by_event_time or days.has(file.day)]

    def _assigned(self, files: Sequence[ArchivedFile], listing: Listing, days: Days, least: int) -> PlannedFiles:
        tasks = task_numbers([listing.sizes[file] for file in files], least)
        return PlannedFiles(
            self, days, [[file for _, file in of] for _, of in groupby(zip(tasks, files, strict=True), itemgetter(0))]
        )

    def read(
        self, files: Iterable[ArchivedFile], days: Days, columns: Sequence[str], rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the events of files, in the order of each file.

        Args:
            files: the files.
            days: the days of event time.
            columns: the columns of the record and of its marks.
            rows: the greatest number of events in a batch.

        Raises:
            BackfillFailed: a file cannot be read.
        """
        for file in files:
            with naming_file(f"{self.warehouse.location}/{file.path}"):
                for batch in self._batches(read_events(self.warehouse, file), file, columns, rows):
                    found = batch if self.by_event_time else _within(batch, days)
                    if found.num_rows:
                        yield found

    def _batches(
        self, content: bytes, file: ArchivedFile, columns: Sequence[str], rows: int
    ) -> Iterator[pa.RecordBatch]:
        stored = pq.ParquetFile(BytesIO(content))
        wanted = pa.schema([self.schema.field(name) for name in columns])
        merged(stored.schema_arrow.remove_metadata(), wanted)  # raises if a column does not fit the record
        there = [name for name in columns if name in stored.schema_arrow.names]
        for batch in stored.iter_batches(rows, columns=there):
            yield _as_wanted(batch, wanted, file)


@dataclass(frozen=True)
class PlannedFiles:
    """The assignment of files to tasks.

    Args:
        files: all files of the category.
        days: the days of event time to read.
        tasks: the files of each task.
        ends: the last offset to read, for buckets whose files may grow before all tasks have read them.
    """

    files: Files
    days: Days
    tasks: Sequence[Sequence[ArchivedFile]]
    ends: Mapping[int, int] = field(default_factory=dict)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return a frame with one row per task."""
        return spark.range(0, len(self.tasks), 1, max(len(self.tasks), 1))

    def files_of(self, rows: Iterable[pa.RecordBatch]) -> list[ArchivedFile]:
        """Return the files of the tasks that the rows name. Runs in a task."""
        return [file for batch in rows for task in batch.column(0).to_pylist() for file in self.tasks[task or 0]]

    def read(self, files: Sequence[ArchivedFile], columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the events in files; see `Files.read`. Runs in a task."""
        for file in files:
            for batch in self.files.read([file], self.days, columns, rows):
                yield batch if file.bucket not in self.ends else _until(batch, self.ends[file.bucket])


def task_numbers(sizes: Sequence[int], least: int) -> Iterator[int]:
    """Yield the task number of each file: neighbours share a task, up to a size that results in at least `least` tasks."""
    limit = min(TASK_BYTES, ceil(sum(sizes) / least))
    task, task_bytes = 0, 0
    for at, size in enumerate(sizes):
        if at and task_bytes + size > limit:
            task, task_bytes = task + 1, 0
        task_bytes += size
        yield task


def _as_wanted(batch: pa.RecordBatch, wanted: pa.Schema, file: ArchivedFile) -> pa.RecordBatch:
    """Convert a batch to the current columns: missing columns are null, nested records keep their stored fields."""
    own = batch.schema.remove_metadata()
    if own == wanted.remove_metadata():
        return batch
    fields: list[pa.Field[Any]] = [
        own.field(field.name)
        if field.name in own.names and is_same(own.field(field.name).type, field.type)
        else field.with_nullable(True)
        for field in wanted
    ]
    [*found] = fitted(pa.Table.from_batches([batch]), pa.schema(fields), file).to_batches() or [batch.slice(0, 0)]
    return found[0]


def _until(batch: pa.RecordBatch, last: int) -> pa.RecordBatch:
    return batch.filter(pc.less_equal(batch.column("_offset"), pa.scalar(last, pa.int64())))


def _within(batch: pa.RecordBatch, days: Days) -> pa.RecordBatch:
    times = batch.column("_event_time")
    since, before = pa.scalar(days.start_ms, pa.int64()), pa.scalar(days.end_ms, pa.int64())
    return batch.filter(pc.and_(pc.greater_equal(times, since), pc.less(times, before)))
