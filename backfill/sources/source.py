"""Where the archive is, and how Spark reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from functools import reduce
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import StructType

from ...processors.declare.categories import AnyCategory
from ..archive.archived_rows import archive_schema
from ..errors import BackfillRefused
from ..spark.hadoop import Folders
from ..warehouse.columns import DAY_COLUMN, OUTPUT_MARKS, Columns
from ..warehouse.layout import DAY_MS, By, Days, StoredFile, folder_of
from ..warehouse.listing import superseded_among
from ..warehouse.notes import ARCHIVE, ArchiveSettings, decoded
from ..warehouse.read_errors import type_mismatch_message
from ..warehouse.schema_evolution import ColumnTypeMismatch, merged, relaxed, stored_as
from ..warehouse.warehouse import Warehouse
from .bus_part import BusPart
from .files import TASKS_PER_CORE, Files, Planned
from .handoff_offsets import HandoffOffsets
from .open_segments import OpenSegments, read_open_segments


class Source(NamedTuple):
    """Where events are, and who reads them.

    Args:
        spark: the session.
        archive: where the archive is.
        made: folders of categories that come from this run itself, and not from the archive.
        bus: what is read from the bus, behind the archive's end; None for nothing.
        ends: by category, where the archive ends; a category that is missing is read as its files are, with what an archiver that
            died, or is at work, has written behind its position.
    """

    spark: SparkSession
    archive: Warehouse
    made: Mapping[str, str] = MappingProxyType({})
    bus: BusPart | None = None
    ends: Mapping[str, HandoffOffsets] = MappingProxyType({})

    @property
    def location(self) -> str:
        """The root of the archive, as Spark calls it."""
        return self.archive.location

    def events(self, category: AnyCategory) -> DataFrame:
        """Return all events of a category, as the archive has them; where the bus is read, too, those up to its end.

        Those that come from the run itself lie in one bucket, where their event time says, and when: no bus has put them in an order.
        """
        columns = Columns(category.record)
        if category.name not in self.made:
            borders = self._borders(category.name)
            if borders is None:
                return self.read(category.name, archive_schema(columns))
            return self._on_both_sides(category, borders)
        found = self._read(self.made[category.name], pa.schema([*columns.schema, *OUTPUT_MARKS]))
        placed = found.withColumns(
            {"_bucket": F.lit(0), "_offset": F.col("_event_time"), "_arrived": F.col("_event_time")}
        )
        return placed.select(*archive_schema(columns).names, DAY_COLUMN)

    def _borders(self, category: str) -> HandoffOffsets | None:
        return self.bus.borders[category] if self.bus else self.ends.get(category)

    def _on_both_sides(self, category: AnyCategory, borders: HandoffOffsets) -> DataFrame:
        """Return what the archive has before its borders, and the bus behind them, where it is read too."""
        schema = archive_schema(Columns(category.record))
        sides: list[DataFrame] = []
        if borders.segment_events:
            open_from = OpenSegments.at(borders.offsets, borders.segment_events)
            sides.append(self.read(category.name, schema, open_from).where(_before(borders.offsets)))
        live = self.bus.events(self.spark, category) if self.bus else None
        if live is not None:
            sides.append(live.withColumn(DAY_COLUMN, _day_of_event_time()))
        if not sides:
            return self.spark.createDataFrame([], spark_schema(schema).add(DAY_COLUMN, "string"))
        return reduce(DataFrame.unionAll, sides)

    def files(self, category: AnyCategory) -> Files | None:
        """Return the files of a category, where it is an archived one and all of it is read: tasks may read them themselves."""
        in_part = category.name in self.made or self.bus or category.name in self.ends
        terms = None if in_part else self._terms(category.name)
        if terms is None:
            return None
        schema = archive_schema(Columns(category.record))
        self._expect_fit(category.name, schema, terms)
        return Files(self.archive, category.name, schema, terms.by is By.EVENT_TIME)

    def planned(self, files: Files, days: Days) -> Planned:
        """Say which task reads which of an archived category's files, for some days of event time."""
        return files.planned(days, self.spark.sparkContext.defaultParallelism * TASKS_PER_CORE)

    def _terms(self, category: str) -> ArchiveSettings | None:
        """Return how a category is archived; None where no archiver has noted that."""
        folders = Folders(self.spark, self.location)
        place = f"{folders.of(category)}/{ARCHIVE}"
        content = folders.content(place)
        return None if content is None else decoded(content, ArchiveSettings, place)

    def read(self, category: str, schema: pa.Schema, open_from: OpenSegments | None = None) -> DataFrame:
        """Return what is stored of a category, with the day of its event time.

        Args:
            category: its name.
            schema: the columns that are wanted.
            open_from: from where on its files may change; None for the last segment of each bucket.
        """
        terms, folder = self._terms(category), f"{self.location}/{folder_of(category)}"
        if terms is None:
            return self._read(folder, schema, open_from)
        self._expect_fit(category, schema, terms)
        return self._archived(folder, schema, terms, open_from)

    def _expect_fit(self, category: str, schema: pa.Schema, terms: ArchiveSettings) -> None:
        """Raise BackfillRefused where the archive holds what a record type of today does not."""
        try:
            merged(terms.arrow, schema)
        except ColumnTypeMismatch as other:
            raise BackfillRefused(type_mismatch_message(f"{self.location}/{folder_of(category)}", other)) from other

    def _archived(
        self, folder: str, schema: pa.Schema, terms: ArchiveSettings, open_from: OpenSegments | None
    ) -> DataFrame:
        """Return an archived category as a record type of today has it."""
        stored = stored_as(schema, terms.arrow)
        found = self._read(folder, stored, open_from).select(
            *(F.col(f"`{one.name}`").cast(from_arrow_type(relaxed(one.type))).alias(one.name) for one in schema),
            DAY_COLUMN,
        )
        if terms.by is By.EVENT_TIME:
            return found
        return found.withColumn(DAY_COLUMN, _day_of_event_time())

    def _read(self, folder: str, schema: pa.Schema, open_from: OpenSegments | None = None) -> DataFrame:
        found = self.spark.read.schema(spark_schema(schema).add(DAY_COLUMN, "string")).parquet(folder)
        files = _files_among(found.inputFiles())
        superseded = superseded_among(files)
        open_from = open_from or OpenSegments.last_of(files)
        growing = {file for file in files if open_from.is_growing(file)} - superseded
        beyond = {file for file in files if open_from.is_beyond(file)}
        passed_over = _forms(files[file] for file in superseded | growing | beyond)
        settled = found.where(~F.col("_metadata.file_path").isin(passed_over)) if passed_over else found
        return settled.unionAll(read_open_segments(self.spark, self.archive, growing, schema)) if growing else settled


def _files_among(paths: Iterable[str]) -> dict[StoredFile, str]:
    """Return the files of an archive among those that Spark lists."""
    files: dict[StoredFile, str] = {}
    for path in paths:
        root, folder, name = path.rsplit("/", 2)
        file = StoredFile.parse(root.rpartition("/")[2].removeprefix("category="), folder, name)
        if file is not None:
            files[file] = path
    return files


def _forms(paths: Iterable[str]) -> list[str]:
    """Return paths as Spark lists them, and as its column has them: with file:/ for file:///."""
    return [form for path in paths for form in (path, path.replace("file:///", "file:/"))]


def _before(borders: Mapping[int, int]) -> Column:
    """Keep the events before each bucket's border."""
    conditions = [(F.col("_bucket") == bucket) & (F.col("_offset") < offset) for bucket, offset in borders.items()]
    return reduce(Column.__or__, conditions, F.lit(False))


def _day_of_event_time() -> Column:
    """Return the UTC day of an event's own time, as `day_of` names it."""
    first, last = (f"{_day_number(day) * DAY_MS}L" for day in (date.min, date.max))
    time = f"greatest({first}, least({last}, _event_time))"
    return F.expr(f"cast(date_from_unix_date(cast(({time} - pmod({time}, {DAY_MS}L)) div {DAY_MS}L as int)) as string)")


def _day_number(day: date) -> int:
    return day.toordinal() - date(1970, 1, 1).toordinal()


def spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's name for columns."""
    return from_arrow_schema(schema)


def in_days(first: str | None, last: str) -> Column:
    """Keep the files of some days; from the earliest on where there is no first."""
    until: Column = F.col(DAY_COLUMN) <= last
    return until if first is None else until & (F.col(DAY_COLUMN) >= first)
