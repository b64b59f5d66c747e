"""Files of the archive that an archiver may write anew while Spark reads them: those of each bucket's open segment.

Spark notes a file's length when it lists it, and passes over whatever lies beyond; of a file that has grown since that may be all of it,
and nothing is said. So such a file is read whole, as what it is when it is opened; where another archiver has gone on with the bucket since,
as what that one has written in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ..spark.batches import Batches
from ..spark.failures import carried
from ..spark.session import BATCH_EVENTS
from ..warehouse.columns import DAY_COLUMN
from ..warehouse.layout import StoredFile
from ..warehouse.listing import read_events
from ..warehouse.read_errors import naming_file
from ..warehouse.schema_evolution import fitted, merged, table_of
from ..warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class OpenSegments:
    """From where on a category's files may change.

    Args:
        segments: by bucket, the first offset of the segment that is open.
    """

    segments: Mapping[int, int]

    @staticmethod
    def last_of(files: Iterable[StoredFile]) -> OpenSegments:
        """Return it where only the files are known: each bucket's last segment."""
        last: dict[int, int] = {}
        for file in files:
            last[file.bucket] = max(file.last_segment, last.get(file.bucket, 0))
        return OpenSegments(last)

    @staticmethod
    def at(borders: Mapping[int, int], segment_events: int) -> OpenSegments:
        """Return it for positions up to which buckets are archived."""
        return OpenSegments({number: offset - offset % segment_events for number, offset in borders.items()})

    def is_growing(self, file: StoredFile) -> bool:
        """Tell whether a file is that of an open segment."""
        return not file.is_compacted and file.segment == self.segments.get(file.bucket)

    def is_beyond(self, file: StoredFile) -> bool:
        """Tell whether all of a file lies behind the open segment."""
        return file.segment > self.segments.get(file.bucket, -1)


def read_open_segments(
    spark: SparkSession, warehouse: Warehouse, files: Collection[StoredFile], schema: pa.Schema
) -> DataFrame:
    """Return the events of files of a category, at least one, each as it is when it is read.

    Args:
        spark: the session.
        warehouse: where they are.
        files: which.
        schema: the columns that they have.
    """
    # As in all that Spark reads of files: what was written before a field existed lacks it.
    with_day = pa.schema([*(field.with_nullable(True) for field in schema), pa.field(DAY_COLUMN, pa.string())])
    names = pa.table({name: [getattr(file, name) for file in sorted(files)] for name in StoredFile._fields})
    of_tasks = spark.createDataFrame(names).repartition(len(files))
    return of_tasks.mapInArrow(partial(_run, with_day, warehouse), from_arrow_schema(with_day))


def _run(schema: pa.Schema, warehouse: Warehouse, batches: Batches) -> Batches:
    with carried("Reading the archive"):
        for batch in batches:
            for file in batch.to_pylist():
                yield from _events(warehouse, StoredFile(**file), schema)


def _events(warehouse: Warehouse, file: StoredFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with naming_file(f"{warehouse.location}/{file.path}"):
        table = table_of(read_events(warehouse, file))
        merged(table.schema.remove_metadata(), schema)
    dated = table.append_column(DAY_COLUMN, pa.repeat(pa.scalar(file.day), table.num_rows))
    yield from fitted(dated, schema, file).to_batches(BATCH_EVENTS)
