"""Where the archive is, and how Spark reads it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ..processors.categories import AnyCategory
from .category_archive import archive_schema
from .columns import DAY_COLUMN, Columns
from .layout import folder_of
from .outputs import OUTPUT_MARKS


class Source(NamedTuple):
    """Where events are, and who reads them.

    Args:
        spark: the session.
        location: the root of the archive.
        made: folders of categories that come from this run itself, and not from the archive.
    """

    spark: SparkSession
    location: str
    made: Mapping[str, str] = MappingProxyType({})

    def events(self, category: AnyCategory) -> DataFrame:
        """Return all events of a category, as the archive has them.

        Those that come from the run itself lie in one bucket, where their event time says, and when: no bus has put them in an order.
        """
        columns = Columns(category.record)
        if category.name not in self.made:
            return self.read(category.name, archive_schema(columns))
        found = self._read(self.made[category.name], pa.schema([*columns.schema, *OUTPUT_MARKS]))
        placed = found.withColumns(
            {"_bucket": F.lit(0), "_offset": F.col("_event_time"), "_arrived": F.col("_event_time")}
        )
        return placed.select(*archive_schema(columns).names, DAY_COLUMN)

    def read(self, category: str, schema: pa.Schema) -> DataFrame:
        """Return what is stored of a category, with its day."""
        return self._read(f"{self.location}/{folder_of(category)}", schema)

    def _read(self, folder: str, schema: pa.Schema) -> DataFrame:
        return self.spark.read.schema(spark_schema(schema).add(DAY_COLUMN, "string")).parquet(folder)


def spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's name for columns."""
    return from_arrow_schema(schema)


def in_days(first: str | None, last: str) -> Column:
    """Keep the files of some days; from the earliest on where there is no first."""
    until: Column = F.col(DAY_COLUMN) <= last
    return until if first is None else until & (F.col(DAY_COLUMN) >= first)
