"""Files of open segments, which an archiver may rewrite while Spark reads them.

Spark remembers a file's length from its listing and silently ignores the rest, which may be all of a file that has grown. So a task
reads such a file whole when it opens it. If another archiver has taken over the bucket, the task reads the file that replaced it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ..spark import BATCH_EVENTS, Batches, marked_errors
from ..warehouse import DAY_COLUMN, ArchivedFile, Warehouse, fitted, merged, naming_file, read_events, table_of
from .files import TASKS_PER_CORE


def read_open_segments(
    spark: SparkSession, warehouse: Warehouse, files: Collection[ArchivedFile], schema: pa.Schema
) -> DataFrame:
    """Return the events of at least one file, each in its state when a task reads it.

    Args:
        spark: the session.
        warehouse: the archive.
        files: the files.
        schema: their columns.
    """
    # A day of a bucket is a small file, and a task costs more than its events.
    tasks = min(len(files), spark.sparkContext.defaultParallelism * TASKS_PER_CORE)
    # Columns are nullable, as in every file that Spark reads: files older than a field lack it.
    with_day = pa.schema([*(field.with_nullable(True) for field in schema), pa.field(DAY_COLUMN, pa.string())])
    names = pa.table({name: [getattr(file, name) for file in sorted(files)] for name in ArchivedFile._fields})
    of_tasks = spark.createDataFrame(names).repartition(tasks)
    return of_tasks.mapInArrow(partial(_run, with_day, warehouse), from_arrow_schema(with_day))


def _run(schema: pa.Schema, warehouse: Warehouse, batches: Batches) -> Batches:
    with marked_errors("Reading the archive"):
        for batch in batches:
            for file in batch.to_pylist():
                yield from _events(warehouse, ArchivedFile(**file), schema)


def _events(warehouse: Warehouse, file: ArchivedFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with naming_file(f"{warehouse.location}/{file.path}"):
        table = table_of(read_events(warehouse, file))
        merged(table.schema.remove_metadata(), schema)
    dated = table.append_column(DAY_COLUMN, pa.repeat(pa.scalar(file.day), table.num_rows))
    yield from fitted(dated, schema, file).to_batches(BATCH_EVENTS)
