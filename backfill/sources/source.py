"""DataFrames over archived categories, and over the bus beyond the archive's end."""

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

from ...processors.declare import AnyCategory
from ..archive import archive_schema, archive_schema_of
from ..errors import BackfillRefused
from ..spark import Folders
from ..warehouse import (
    ARCHIVE,
    DAY_COLUMN,
    DAY_MS,
    OUTPUT_MARKS,
    ArchivedFile,
    ArchiveSettings,
    ColumnTypeMismatch,
    DayOf,
    Days,
    Listing,
    OpenSegments,
    RecordColumns,
    Warehouse,
    decoded,
    folder_of,
    merged,
    relaxed,
    stored_as,
    superseded_among,
    type_mismatch_message,
)
from .bus_part import BusPart
from .files import TASKS_PER_CORE, Files, PlannedFiles
from .handoff_offsets import HandoffOffsets
from .open_segments import read_open_segments


class BatchEvents(NamedTuple):
    """The events of a batch run.

    Args:
        spark: the session.
        archive: the archive.
        made: the folders of categories that this run or an earlier one writes, by category.
        bus: the part that is read from the bus, beyond the archive's end; None for none.
        ends: the end of the archive by category. Without an end, all files of a category are read, including files beyond the archiver's
            committed position.
    """

    spark: SparkSession
    archive: Warehouse
    made: Mapping[str, str] = MappingProxyType({})
    bus: BusPart | None = None
    ends: Mapping[str, HandoffOffsets] = MappingProxyType({})

    @property
    def location(self) -> str:
        """The root of the archive, as a Spark path."""
        return self.archive.location

    def events(self, category: AnyCategory) -> DataFrame:
        """Return all events of a category in the archive's columns, with those on the bus if the run reads it.

        Events that a batch run wrote have no order on a bus: they are in bucket 0, with their event time as offset and arrival time.
        """
        if category.name not in self.made:
            handoffs = self._borders(category.name)
            if handoffs is None:
                return self.read(category.name, archive_schema_of(category))
            return self._on_both_sides(category, handoffs)
        columns = RecordColumns(category.record)
        found = self._read(self.made[category.name], pa.schema([*columns.schema, *OUTPUT_MARKS]))
        placed = found.withColumns(
            {"_bucket": F.lit(0), "_offset": F.col("_event_time"), "_arrived": F.col("_event_time")}
        )
        return placed.select(*archive_schema(columns).names, DAY_COLUMN)

    def _borders(self, category: str) -> HandoffOffsets | None:
        return self.bus.handoffs[category] if self.bus else self.ends.get(category)

    def _on_both_sides(self, category: AnyCategory, handoffs: HandoffOffsets) -> DataFrame:
        """Return the archived events before the handoff offsets, and the bus from there on if the run reads it."""
        schema = archive_schema_of(category)
        sides: list[DataFrame] = []
        if handoffs.segment_events:
            open_from = OpenSegments.at(handoffs.offsets, handoffs.segment_events)
            sides.append(self.read(category.name, schema, open_from).where(_before(handoffs.offsets)))
        live = self.bus.events(self.spark, category) if self.bus else None
        if live is not None:
            sides.append(live.withColumn(DAY_COLUMN, _day_of_event_time()))
        if not sides:
            return self.spark.createDataFrame([], spark_schema(schema).add(DAY_COLUMN, "string"))
        return reduce(DataFrame.unionAll, sides)

    def planned(self, category: AnyCategory, days: Days) -> PlannedFiles | None:
        """Assign the files of a category to tasks that read them directly, for days of event time; None unless an archiver has written the whole category."""
        found = self._files(category)
        return None if found is None else found[0].planned(found[1], days, self._tasks)

    def planned_until(self, category: AnyCategory, days: Days) -> PlannedFiles | None:
        """Assign files like `planned`, for all events up to the last one of the days in each bucket; see `Files.planned_until`."""
        found = self._files(category)
        return None if found is None else found[0].planned_until(found[1], days, self._tasks)

    @property
    def _tasks(self) -> int:
        return self.spark.sparkContext.defaultParallelism * TASKS_PER_CORE

    def _files(self, category: AnyCategory) -> tuple[Files, Listing] | None:
        in_part = category.name in self.made or self.bus or category.name in self.ends
        terms = None if in_part else self._terms(category.name)
        if terms is None:
            return None
        listing, schema = Listing.of(self.archive, category.name), archive_schema_of(category)
        if listing.others:
            return None
        self._expect_fit(category.name, schema, terms)
        return Files(self.archive, schema, terms.by is DayOf.EVENT_TIME), listing

    def _terms(self, category: str) -> ArchiveSettings | None:
        """Return the archive settings of a category; None if no archiver has written them."""
        folders = Folders(self.spark, self.location)
        place = f"{folders.of(category)}/{ARCHIVE}"
        content = folders.content(place)
        return None if content is None else decoded(content, ArchiveSettings, place)

    def read(self, category: str, schema: pa.Schema, open_from: OpenSegments | None = None) -> DataFrame:
        """Return the stored events of a category, with the day of their event time.

        Args:
            category: its name.
            schema: the columns to read.
            open_from: the segments that may still change; None for the last segment of each bucket.
        """
        terms, folder = self._terms(category), f"{self.location}/{folder_of(category)}"
        if terms is None:
            return self._read(folder, schema, open_from)
        self._expect_fit(category, schema, terms)
        return self._archived(folder, schema, terms, open_from)

    def _expect_fit(self, category: str, schema: pa.Schema, terms: ArchiveSettings) -> None:
        """Raise BackfillRefused if the archived columns do not fit the record type."""
        try:
            merged(terms.arrow, schema)
        except ColumnTypeMismatch as other:
            raise BackfillRefused(type_mismatch_message(f"{self.location}/{folder_of(category)}", other)) from other

    def _archived(
        self, folder: str, schema: pa.Schema, terms: ArchiveSettings, open_from: OpenSegments | None
    ) -> DataFrame:
        """Return an archived category in the columns of the current record type."""
        stored = stored_as(schema, terms.arrow)
        found = self._read(folder, stored, open_from).select(
            *(
                F.col(f"`{field.name}`").cast(from_arrow_type(relaxed(field.type))).alias(field.name)
                for field in schema
            ),
            DAY_COLUMN,
        )
        if terms.by is DayOf.EVENT_TIME:
            return found
        return found.withColumn(DAY_COLUMN, _day_of_event_time())

    def _read(self, folder: str, schema: pa.Schema, open_from: OpenSegments | None = None) -> DataFrame:
        found = self.spark.read.schema(spark_schema(schema).add(DAY_COLUMN, "string")).parquet(folder)
        paths = found.inputFiles()
        files = _files_among(paths)
        superseded = superseded_among(files)
        open_from = open_from or OpenSegments.last_of(files)
        growing = {file for file in files if open_from.is_growing(file)} - superseded
        beyond = {file for file in files if open_from.is_beyond(file)}
        excluded = superseded | growing | beyond
        forms = _forms(files[file] for file in excluded)
        closed = found.where(~F.col("_metadata.file_path").isin(forms)) if excluded else found
        if not growing:
            return closed
        live = read_open_segments(self.spark, self.archive, growing, schema)
        return live if len(excluded) == len(paths) else closed.unionAll(live)


def _files_among(paths: Iterable[str]) -> dict[ArchivedFile, str]:
    """Return the archive files among Spark's input files, with their paths."""
    files: dict[ArchivedFile, str] = {}
    for path in paths:
        root, folder, name = path.rsplit("/", 2)
        file = ArchivedFile.parse(root.rpartition("/")[2].removeprefix("category="), folder, name)
        if file is not None:
            files[file] = path
    return files


def _forms(paths: Iterable[str]) -> list[str]:
    """Return paths in both of Spark's forms: its file listing has file:///, its metadata column file:/."""
    return [form for path in paths for form in (path, path.replace("file:///", "file:/"))]


def _before(handoffs: Mapping[int, int]) -> Column:
    """Return the condition for events before the handoff offset of each bucket."""
    conditions = [(F.col("_bucket") == bucket) & (F.col("_offset") < offset) for bucket, offset in handoffs.items()]
    return reduce(Column.__or__, conditions, F.lit(False))


def _day_of_event_time() -> Column:
    """Return the UTC day of the event time, formatted as by `day_of`."""
    first, last = (f"{_day_number(day) * DAY_MS}L" for day in (date.min, date.max))
    time = f"greatest({first}, least({last}, _event_time))"
    return F.expr(f"cast(date_from_unix_date(cast(({time} - pmod({time}, {DAY_MS}L)) div {DAY_MS}L as int)) as string)")


def _day_number(day: date) -> int:
    return day.toordinal() - date(1970, 1, 1).toordinal()


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema for an Arrow schema."""
    return from_arrow_schema(schema)


def in_days(first: str | None, last: str) -> Column:
    """Return the condition for files of some days; without a first day, from the earliest."""
    until: Column = F.col(DAY_COLUMN) <= last
    return until if first is None else until & (F.col(DAY_COLUMN) >= first)
