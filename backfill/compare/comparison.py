"""Comparison of stream and batch in Spark: the archived outputs of the stream against the outputs of a backfill.

archive --records--> last update of each key and time, for aggregates --|
                                                                        |--> pairs --comparer, in workers--> one summary per task --> Comparison
batch   --records-------------------------------------------------------|
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it
from pyspark.sql.window import Window

from ...processors import DeclarationError
from ...processors.apps import App, AppName
from ...processors.declare import AnyCategory, Partials, plan_of
from ..errors import BackfillRefused
from ..sources import BatchEvents, WantedDays, check_coverage, in_days, spark_schema
from ..spark import ship, spark_session, translated_errors
from ..warehouse import OUTPUT_MARKS, Days, RecordColumns, Warehouse, open_warehouse
from .comparer import STREAM_AND_BATCH, writes_updates
from .comparison_worker import (
    DIFFERING,
    RECORDS,
    SUMMARIES,
    ComparedCategory,
    decode_pair,
    decode_summary,
    differing,
    encoded_records,
    summarized,
)
from .difference_file import DifferenceFile
from .summary import Comparison, ComparisonSummary

_SIDE = "_side"


def compare(
    app_name: AppName,
    warehouse: Warehouse,
    output: str,
    first: date,
    last: date,
    *,
    master: str = "local[*]",
    differences: Path | None = None,
    allow_missing: bool = False,
    webhdfs: str | None = None,
) -> list[Comparison]:
    """Compare each category that the app writes, for outputs whose event time lies in the days `first` to `last`.

    Records of stateless and stateful processors are compared exactly, including how often they occur. Records of an aggregator are
    updates: the stream's last update of each key and event time counts, and floats may differ by rounding (see `RecordComparer`).

    If a processor's outputs fall on other days than their inputs, the first and last day may differ for that reason.

    Args:
        app_name: the app, or one processor of it.
        warehouse: the archive with the stream's outputs.
        output: the location of the backfill's outputs.
        first: the first UTC day.
        last: the last UTC day.
        master: the Spark master.
        differences: a local Parquet file for all differences; replaced once the comparison is complete.
        allow_missing: continue if days of the stream's outputs are missing or incomplete; see `coverage`.
        webhdfs: the WebHDFS address of an output on HDFS; by default as of `open_warehouse`.

    Raises:
        BackfillRefused: there are no days, no outputs, or one side has none of the outputs; nothing was compared.
        DeclarationError: an aggregator and another processor write one category, so that updates cannot be recognised.
        WarehouseError: the file of differences cannot be written.
    """
    if last < first:
        raise BackfillRefused(f"The first day, {first}, is later than the last day, {last}. Exchange them.")
    app = app_name.load()
    written = [_Written.of(app, category) for category in _outputs(app)]
    days = Days(first, last)
    computed = open_warehouse(output, webhdfs)
    # Before Spark starts, which takes longer than all of this.
    present = check_outputs(app, [category.category for category in written], warehouse, computed)
    incomplete = check_coverage(
        warehouse, [WantedDays(category.category, days, days) for category in written], allow_missing=allow_missing
    )
    with (
        spark_session(master) as spark,
        translated_errors("Comparing"),
        _optional_file(differences) as file,
    ):
        stream, batch = BatchEvents(spark, warehouse), BatchEvents(spark, computed)
        shipped = ship(spark.sparkContext, app_name, ())
        return [
            _CategoryComparison(
                category, ComparedCategory(shipped, category.name), days, stream, batch, present[category.name]
            ).run(file, incomplete.get(category.name, ""))
            for category in written
        ]


class _Written(NamedTuple):
    """A category that the app writes."""

    category: AnyCategory
    processors: tuple[str, ...]
    updates: bool

    @property
    def name(self) -> str:
        return self.category.name

    @staticmethod
    def of(app: App, category: AnyCategory) -> _Written:
        writers = [p for p in app.processors if category.name in {output.name for output in plan_of(p).outputs}]
        names = tuple(processor.__name__ for processor in writers)
        updates = {writes_updates(processor, category.name) for processor in writers}
        if len(updates) > 1:
            raise DeclarationError(
                f"{', '.join(names)} write to the same category, {category.name}. An aggregator's records are updates and the others' "
                "are not, so they cannot be compared. Declare a separate category for the aggregator."
            )
        return _Written(category, names, updates.pop())


def _outputs(app: App) -> list[AnyCategory]:
    """Return the outputs of an app without partials, of which a stream writes another number than a backfill."""
    compared = [processor for processor in app.processors if not issubclass(processor, Partials)]
    return list({c.name: c for processor in compared for c in plan_of(processor).outputs}.values())


@contextmanager
def _optional_file(path: Path | None) -> Iterator[DifferenceFile | None]:
    if path is None:
        yield None
    else:
        with DifferenceFile(path) as file:
            yield file


class CategoryFolders(Protocol):
    """Folders of categories at a location, such as a `Warehouse`."""

    @property
    def location(self) -> str:
        """The location."""
        ...

    def has(self, category: str) -> bool:
        """Return whether the folder of a category exists."""
        ...


class OutputsPresent(NamedTuple):
    """Which sides have a category; the other side counts as empty."""

    stream: bool
    batch: bool

    def note(self, category: str) -> str:
        """Return a remark about the missing side; empty if both sides have the category."""
        if self.stream and self.batch:
            return ""
        if self.stream:
            return f"The batch output has no {category}."
        if self.batch:
            return f"The archive has no {category}: the stream wrote no record to it, or it was not archived."
        return f"Neither the archive nor the batch output has {category}: no record was written to it."


ABSENT = OutputsPresent(stream=False, batch=False)


def check_outputs(
    app: App, written: Iterable[AnyCategory], archive: CategoryFolders, batch: CategoryFolders
) -> Mapping[str, OutputsPresent]:
    """Return which side has which category. A side with some of the outputs counts as complete: the others were empty.

    Args:
        app: the app.
        written: its outputs.
        archive: the stream's categories.
        batch: the backfill's categories.

    Raises:
        BackfillRefused: one side has some of the outputs and the other has none, or the archive has no category of the app.
    """
    names = [category.name for category in written]
    present = {name: OutputsPresent(archive.has(name), batch.has(name)) for name in names}
    in_stream, in_batch = (
        any(sides.stream for sides in present.values()),
        any(sides.batch for sides in present.values()),
    )
    if in_stream != in_batch:
        raise BackfillRefused(
            f"{(batch if in_stream else archive).location} has no {', '.join(names)}. Nothing was compared. Archive the stream's outputs and "
            "backfill the same processors first, or compare one processor (path/app.py:Processor)."
        )
    if not in_stream and not any(archive.has(category.name) for category in app.categories()):
        raise BackfillRefused(
            f"There are no outputs to compare: {archive.location} has no category of {app.name}, and {batch.location} has none of its outputs. "
            "Check both locations, and archive the app's categories first (penstock archive run)."
        )
    return present


@dataclass(frozen=True)
class _CategoryComparison:
    written: _Written
    compared: ComparedCategory
    days: Days
    stream: BatchEvents
    batch: BatchEvents
    present: OutputsPresent

    def run(self, file: DifferenceFile | None, incomplete: str) -> Comparison:
        pairs = None if self.present == ABSENT else _paired(self._stream_records(), self._batch_records())
        if pairs is None:
            summary = ComparisonSummary()
        elif file is None:
            summary = self._summary(pairs)
        else:
            pairs = pairs.persist()
            try:
                summary = self._summary(pairs)
                if summary.counts:
                    self._write(pairs, file)
            finally:
                pairs.unpersist()
        remarks = (self.present.note(self.written.name), incomplete and f"The archive of {incomplete}.")
        return summary.comparison(
            self.written.name, self.written.processors, STREAM_AND_BATCH, " ".join(filter(None, remarks))
        )

    def _summary(self, pairs: DataFrame) -> ComparisonSummary:
        total = ComparisonSummary()
        for row in pairs.mapInArrow(summarized(self.compared), spark_schema(SUMMARIES)).collect():
            total.merge(decode_summary(row["summary"]))
        return total

    def _write(self, pairs: DataFrame, file: DifferenceFile) -> None:
        found = pairs.mapInArrow(differing(self.compared), spark_schema(DIFFERING)).orderBy("time", "key")
        file.add(self.written.name, (decode_pair(row["pair"]) for row in found.toLocalIterator()))

    def _stream_records(self) -> DataFrame:
        if not self.present.stream:
            return _empty(self.stream)
        records = self._records(self.stream.events(self.written.category))
        return _last_updates(records) if self.written.updates else records

    def _batch_records(self) -> DataFrame:
        if not self.present.batch:
            return _empty(self.batch)
        schema = pa.schema([*RecordColumns(self.written.category.record).schema, *OUTPUT_MARKS])
        no_offsets = {"_bucket": F.lit(None).cast("int"), "_offset": F.lit(None).cast("long")}
        return self._records(self.batch.read(self.written.name, schema).withColumns(no_offsets))

    def _records(self, stored: DataFrame) -> DataFrame:
        wanted = in_days(str(self.days.first), str(self.days.last))
        return stored.where(wanted).mapInArrow(encoded_records(self.compared), spark_schema(RECORDS))


def _empty(source: BatchEvents) -> DataFrame:
    return source.spark.createDataFrame([], spark_schema(RECORDS))


def _last_updates(records: DataFrame) -> DataFrame:
    """Keep the last update of each key and time."""
    last = F.max_by("value", F.struct("bucket", "offset")).alias("value")
    return records.groupBy("key", "time").agg(last).select("key", "time", "value")


def _paired(stream: DataFrame, batch: DataFrame) -> DataFrame:
    """Return PAIRS: the number of equal records of a key and time, and the remaining records of both sides next to each other.

    All steps group by key and time, so that Spark shuffles once.
    """
    both = stream.select("key", "time", "value", F.lit(1).alias(_SIDE)).unionAll(
        batch.select("key", "time", "value", F.lit(-1).alias(_SIDE))
    )
    surplus, copy = F.col("surplus"), F.col("copy")
    by_value = (
        both.repartition("key", "time")
        .groupBy("key", "time", "value")
        .agg(F.count("*").alias("occurrences"), F.sum(_SIDE).alias("surplus"))
    )
    # Copy 0 of a value represents the records that both sides have, the other copies the surplus of one side.
    rows = by_value.withColumn("copy", F.explode(F.sequence(F.lit(0), F.abs(surplus).cast("int"))))
    side = F.when(copy == 0, F.lit(0)).otherwise(F.signum(surplus))
    number = F.row_number().over(Window.partitionBy("key", "time", _SIDE).orderBy("value", "copy"))
    numbered = rows.withColumn(_SIDE, side).withColumn("number", F.when(copy > 0, number).otherwise(0))
    equal = F.when(copy == 0, ((F.col("occurrences") - F.abs(surplus)) / 2)).otherwise(0)
    return (
        numbered.groupBy("key", "time", "number")
        .agg(
            F.sum(equal).cast("long").alias("equal"),
            F.max(F.when(F.col(_SIDE) > 0, F.col("value"))).alias("stream"),
            F.max(F.when(F.col(_SIDE) < 0, F.col("value"))).alias("batch"),
        )
        .drop("number")
    )
