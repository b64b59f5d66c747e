"""The files of an archived category, read by the tasks themselves where nothing has to be brought together before the processor.

Spark's own reader makes rows of columns, and of rows columns again for Python, which costs several times what most processors do with an
event. A task that is told which files are its own reads them as columns, and only those columns that are looked at.

    listing --planned--> the files of each task, by size --mapped--> each file's events, batch by batch
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from math import ceil
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from ..warehouse.layout import Days, StoredFile
from ..warehouse.listing import Listing, read_events
from ..warehouse.read_errors import naming_file
from ..warehouse.schema_evolution import fitted, is_same, merged
from ..warehouse.warehouse import Warehouse

TASK_BYTES = 32 * 2**20
"""How much one task reads at most, but for a file that is larger."""
TASKS_PER_CORE = 4
"""So many tasks there are at least, where there are as many files: they take turns, and the last ones end at about the same time."""


@dataclass(frozen=True)
class Files:
    """The files of a category, of which a task may be told.

    Args:
        warehouse: where they are.
        category: the category's name.
        schema: the columns of its events as a record type of today has them.
        by_event_time: whether days are those of event time, and not of arrival.
    """

    warehouse: Warehouse
    category: str
    schema: pa.Schema
    by_event_time: bool

    def planned(self, days: Days, least: int) -> Planned:
        """Say which task reads which file, for the events of some days of event time; in at least so many tasks if there are as many files."""
        listing = Listing.of(self.warehouse, self.category)
        files = [file for file in listing.files if not self.by_event_time or days.has(file.day)]
        tasks = in_tasks([listing.sizes[file] for file in files], least)
        return Planned(
            self, days, [[file for _, file in of] for _, of in groupby(zip(tasks, files, strict=True), itemgetter(0))]
        )

    def read(
        self, files: Iterable[StoredFile], days: Days, columns: Sequence[str], rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Give the events of the days that lie in files, in the order of each file.

        Args:
            files: which.
            days: of event time.
            columns: which columns are wanted, of the record and of its marks.
            rows: how many events a batch may have.

        Raises:
            BackfillFailed: a file does not read.
        """
        for file in files:
            with naming_file(f"{self.warehouse.location}/{file.path}"):
                for batch in self._batches(read_events(self.warehouse, file), file, columns, rows):
                    found = batch if self.by_event_time else _within(batch, days)
                    if found.num_rows:
                        yield found

    def _batches(self, content: bytes, file: StoredFile, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        stored = pq.ParquetFile(BytesIO(content))
        wanted = pa.schema([self.schema.field(name) for name in columns])
        merged(stored.schema_arrow.remove_metadata(), wanted)  # raises where a column holds what the record does not
        there = [name for name in columns if name in stored.schema_arrow.names]
        for batch in stored.iter_batches(rows, columns=there):
            yield _as_wanted(batch, wanted, file)


@dataclass(frozen=True)
class Planned:
    """Which task reads which files.

    Args:
        files: where they are.
        days: of which days of event time the events are wanted.
        tasks: the files of each task.
    """

    files: Files
    days: Days
    tasks: Sequence[Sequence[StoredFile]]

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return a row for each task."""
        return spark.range(0, len(self.tasks), 1, max(len(self.tasks), 1))

    def named(self, rows: Iterable[pa.RecordBatch]) -> list[StoredFile]:
        """In a task: return the files that its rows are about."""
        return [file for batch in rows for task in batch.column(0).to_pylist() for file in self.tasks[task or 0]]

    def read(self, files: Sequence[StoredFile], columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """In a task: give the events in files; see `Files.read`."""
        return self.files.read(files, self.days, columns, rows)


def in_tasks(sizes: Sequence[int], least: int) -> Iterator[int]:
    """Give the task of each file, by size: neighbours together, in at least so many tasks if there are as many files."""
    limit = min(TASK_BYTES, ceil(sum(sizes) / least))
    task, held = 0, 0
    for at, size in enumerate(sizes):
        if at and held + size > limit:
            task, held = task + 1, 0
        held += size
        yield task


def _as_wanted(batch: pa.RecordBatch, wanted: pa.Schema, file: StoredFile) -> pa.RecordBatch:
    """Bring a batch to the columns of today: a missing one is null; records within it keep the fields that they have."""
    own = batch.schema.remove_metadata()
    if own == wanted.remove_metadata():
        return batch
    fields: list[pa.Field[Any]] = [
        own.field(one.name)
        if one.name in own.names and is_same(own.field(one.name).type, one.type)
        else one.with_nullable(True)
        for one in wanted
    ]
    [*found] = fitted(pa.Table.from_batches([batch]), pa.schema(fields), file).to_batches() or [batch.slice(0, 0)]
    return found[0]


def _within(batch: pa.RecordBatch, days: Days) -> pa.RecordBatch:
    times = batch.column("_event_time")
    since, before = pa.scalar(days.start_ms, pa.int64()), pa.scalar(days.end_ms, pa.int64())
    return batch.filter(pc.and_(pc.greater_equal(times, since), pc.less(times, before)))
