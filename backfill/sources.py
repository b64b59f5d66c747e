"""Where the archive is, and how Spark reads it."""

from __future__ import annotations

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


class Source(NamedTuple):
    """Where the archive is, and who reads it."""

    spark: SparkSession
    location: str

    def events(self, category: AnyCategory) -> DataFrame:
        """Return all archived events of a category."""
        return self.read(category.name, archive_schema(Columns(category.record)))

    def read(self, category: str, schema: pa.Schema) -> DataFrame:
        """Return what is stored of a category, with its day."""
        columns = spark_schema(schema).add(DAY_COLUMN, "string")
        return self.spark.read.schema(columns).parquet(f"{self.location}/{folder_of(category)}")


def spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's name for columns."""
    return from_arrow_schema(schema)


def in_days(first: str | None, last: str) -> Column:
    """Keep the files of some days; from the earliest on where there is no first."""
    until: Column = F.col(DAY_COLUMN) <= last
    return until if first is None else until & (F.col(DAY_COLUMN) >= first)
