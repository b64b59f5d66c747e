"""Stream against batch: where the archived output of the stream and the output of a backfill differ, value by value, and by how much.

archive --values--> last update of each key and time, where the outputs are updates --|
                                                                                      |--> paired --judged--> counted
batch   --values----------------------------------------------------------------------|
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it
from pyspark.sql.window import Window

from ...processors.declare.apps import App, AppName
from ...processors.declare.categories import AnyCategory
from ...processors.errors import DeclarationError
from ..errors import BackfillRefused
from ..sources.coverage import WantedDays, covered
from ..sources.source import Source, in_days, spark_schema
from ..spark.failures import told
from ..spark.hadoop import Folders
from ..spark.session import spark_session
from ..spark.shipping import place
from ..warehouse.columns import OUTPUT_MARKS, Columns
from ..warehouse.layout import Days
from ..warehouse.warehouse import Warehouse, open_warehouse
from .coverage_check import NOWHERE, OutputsPresent, check_outputs
from .difference_file import DifferenceFile
from .keyed_records import (
    DIFFERENT,
    JUDGED,
    ONLY_BATCH,
    ONLY_STREAM,
    VALUES,
    Compared,
    judged,
    shown,
    values_of,
    writers_of,
)

EXAMPLES = 10
"""How many examples of each kind of difference are kept."""

_SIDE = "_side"


@dataclass(frozen=True)
class Difference:
    """An example of where the two differ.

    Args:
        kind: what is the matter; "different" means that both have a record of that key and event time, but not the same.
        key: the output's key.
        event_time: the output's event time (milliseconds since 1970, UTC).
        stream: the stream's record, as plain values; None where there is none.
        batch: the batch's record, as plain values; None where there is none.
    """

    kind: Literal["only stream", "only batch", "different"]
    key: str | None
    event_time: int
    stream: Any
    batch: Any


@dataclass(frozen=True)
class FieldSummary:
    """How far the two lie apart in one field of the records that are different.

    Args:
        field: which one; places in lists are left out, as in ``ranking[].score``.
        differing: how many values differ.
        greatest: the greatest absolute difference; None where the values have no distance, as texts have none.
        mean: the mean absolute difference.
        greatest_relative: the greatest difference as a share of the larger value, from 0 to 2.
        mean_relative: the mean of these shares.
        beyond_error: how many lie beyond the error that the processor's monoid states; None where it states none, or none could be told.
    """

    field: str
    differing: int
    greatest: float | None
    mean: float | None
    greatest_relative: float | None
    mean_relative: float | None
    beyond_error: int | None


@dataclass(frozen=True)
class Comparison:
    """How the two agree on one category.

    Args:
        category: its name.
        processors: the names of the classes that write it.
        equal: how many records both have.
        only_stream: how many only the stream has.
        only_batch: how many only the batch has.
        different: how many both have for the same key and event time, but with another value.
        within_error: how many of the different ones lie in all that differs within the error that the processor's monoid states.
        fields: what differs within the different ones, by field.
        examples: up to ten differences of each kind.
        note: what else a reader should know; may be empty.
    """

    category: str
    processors: tuple[str, ...]
    equal: int = 0
    only_stream: int = 0
    only_batch: int = 0
    different: int = 0
    within_error: int = 0
    fields: tuple[FieldSummary, ...] = ()
    examples: tuple[Difference, ...] = ()
    note: str = ""

    @property
    def differing(self) -> int:
        """How many records differ by more than a stated error."""
        return self.only_stream + self.only_batch + self.different - self.within_error

    @property
    def share(self) -> float:
        """How many of all records differ by more than a stated error, from 0 to 1; 0 where there are none."""
        return (
            self.differing / (self.equal + self.only_stream + self.only_batch + self.different)
            if self.differing
            else 0.0
        )

    @property
    def agrees(self) -> bool:
        """Whether nothing differs by more than a stated error."""
        return not self.differing


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
) -> list[Comparison]:
    """Compare each category that the app writes, for the outputs whose event time lies in the days `first` to `last`.

    Records of stateless and stateful processors are compared as they are, floats to the last bit, and as often as they occur.
    Those of an aggregator are updates: of the stream the last one of each key and event time counts. There floats may differ
    in the tenth digit, since they round by how partials were grouped.

    Where a processor gives its outputs another day than their inputs have, the first and last day may differ for that reason.

    Args:
        app_name: the app, or one processor of it.
        warehouse: the archive with the stream's outputs.
        output: where the backfill wrote.
        first: the first UTC day.
        last: the last UTC day.
        master: where Spark runs.
        differences: a file on this machine that takes every difference as Parquet; it is replaced when all were found.
        allow_missing: go on where days of the stream's outputs are missing, or are not complete; see `coverage`.

    Raises:
        BackfillRefused: there is nothing to compare, or one side lacks all of the outputs; nothing was compared.
        DeclarationError: aggregators and others write one category, so that its records cannot be told apart.
        WarehouseError: the file of differences cannot be written.
    """
    if last < first:
        raise BackfillRefused(f"No day lies between {first} and {last}: give the earlier one first.")
    app = app_name.load()
    updates = {category: _updates(app, category) for category in _written(app)}
    days = Days(first, last)
    missing = covered(
        warehouse, [WantedDays(category, days, days) for category in updates], allow_missing=allow_missing
    )
    with spark_session(master) as spark, told("Comparing"), _differences_to(differences) as file:
        sides = Sides(Source(spark, warehouse), Source(spark, open_warehouse(output)))
        placed = place(spark.sparkContext, app_name, ())
        present = check_outputs(app, updates, *(Folders(spark, side.location) for side in sides))
        return [
            _Comparing(category, Compared(placed, category.name), days, sides, present[category.name]).run(
                _names(app, category), file, updates=updates[category], missing=missing.get(category.name, "")
            )
            for category in updates
        ]


def _written(app: App) -> list[AnyCategory]:
    return list({c.name: c for processor in app.processors for c in processor.outputs()}.values())


def _names(app: App, category: AnyCategory) -> tuple[str, ...]:
    return tuple(p.__name__ for p in app.processors if category.name in {c.name for c in p.outputs()})


def _updates(app: App, category: AnyCategory) -> bool:
    kinds = writers_of(app, category)
    if len(kinds) > 1:
        raise DeclarationError(
            f"Category {category.name} is written by {', '.join(_names(app, category))}: an aggregator's records are updates, "
            "the others' are not, and they cannot be told apart. Give the aggregator a category of its own."
        )
    return next(iter(kinds))


@contextmanager
def _differences_to(path: Path | None) -> Iterator[DifferenceFile | None]:
    if path is None:
        yield None
    else:
        with DifferenceFile(path) as file:
            yield file


class Sides(NamedTuple):
    """Where both results are."""

    stream: Source
    batch: Source


@dataclass(frozen=True)
class _Comparing:
    category: AnyCategory
    compared: Compared
    days: Days
    sides: Sides
    present: OutputsPresent

    def run(
        self, processors: tuple[str, ...], file: DifferenceFile | None, *, updates: bool, missing: str
    ) -> Comparison:
        note = " ".join(filter(None, (self.present.note(self.category.name), missing and f"The archive of {missing}.")))
        if self.present == NOWHERE:
            return Comparison(self.category.name, processors, note=note)
        ours, theirs = self._of_stream(), self._of_batch()
        found = _paired(_latest(ours) if updates else ours, theirs)
        found = found.mapInArrow(judged(self.compared), spark_schema(JUDGED)).persist()
        try:
            comparison = _summed(found, Comparison(self.category.name, processors, note=note))
            if file is not None and comparison.only_stream + comparison.only_batch + comparison.different:
                file.add(self.category.name, found.where("kind is not null").orderBy("time", "key").toLocalIterator())
        finally:
            found.unpersist()
        return comparison

    def _of_stream(self) -> DataFrame:
        source = self.sides.stream
        return self._values(source.events(self.category)) if self.present.stream else _nothing(source)

    def _of_batch(self) -> DataFrame:
        source = self.sides.batch
        if not self.present.batch:
            return _nothing(source)
        stored = source.read(self.category.name, pa.schema([*Columns(self.category.record).schema, *OUTPUT_MARKS]))
        nowhere = {"_bucket": F.lit(None).cast("int"), "_offset": F.lit(None).cast("long")}
        return self._values(stored.withColumns(nowhere))

    def _values(self, stored: DataFrame) -> DataFrame:
        wanted = in_days(str(self.days.first), str(self.days.last))
        return stored.where(wanted).mapInArrow(values_of(self.compared), spark_schema(VALUES))


def _nothing(source: Source) -> DataFrame:
    return source.spark.createDataFrame([], spark_schema(VALUES))


def _summed(found: DataFrame, empty: Comparison) -> Comparison:
    """Count, for each kind and field, with examples; nothing more is computed where all is equal."""
    kinds = {
        row["kind"]: row
        for row in found.groupBy("kind")
        .agg(F.count("*").alias("pairs"), F.sum("equal").alias("equal"), F.count_if("within_error").alias("within"))
        .collect()
    }
    counts = {kind: kinds[kind]["pairs"] if kind in kinds else 0 for kind in (ONLY_STREAM, ONLY_BATCH, DIFFERENT)}
    return replace(
        empty,
        equal=sum(row["equal"] for row in kinds.values()),
        only_stream=counts[ONLY_STREAM],
        only_batch=counts[ONLY_BATCH],
        different=counts[DIFFERENT],
        within_error=kinds[DIFFERENT]["within"] if DIFFERENT in kinds else 0,
        fields=_fields(found) if counts[DIFFERENT] else (),
        examples=tuple(_example(row) for kind, there_are in counts.items() if there_are for row in _some(found, kind)),
    )


def _fields(found: DataFrame) -> tuple[FieldSummary, ...]:
    fields = found.select(F.explode("fields").alias("one")).select("one.*")
    rows = (
        fields.groupBy(F.regexp_replace("field", r"\[\d+\]", "[]").alias("field"))
        .agg(
            F.count("*"),
            F.max("absolute"),
            F.avg("absolute"),
            F.max("relative"),
            F.avg("relative"),
            F.sum((~F.col("within_error")).cast("long")),  # null where none could be told
        )
        .orderBy("field")
        .collect()
    )
    return tuple(FieldSummary(*row) for row in rows)


def _some(found: DataFrame, kind: str) -> list[Row]:
    """Return the earliest examples."""
    return found.where(F.col("kind") == kind).orderBy("time", "key").limit(EXAMPLES).collect()


def _example(row: Row) -> Difference:
    stream, batch = (None if value is None else shown(value) for value in (row["stream"], row["batch"]))
    return Difference(row["kind"], row["key"], row["time"], stream, batch)


def _latest(values: DataFrame) -> DataFrame:
    """Keep the last update of each key and time."""
    newest = F.max_by("value", F.struct("bucket", "offset")).alias("value")
    return values.groupBy("key", "time").agg(newest).select("key", "time", "value")


def _paired(stream: DataFrame, batch: DataFrame) -> DataFrame:
    """Give, in the columns of JUDGED, how often both have the same for a key and time, and what each has beyond that, one beside the other.

    All steps are by key and time, so that they need one shuffle.
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
    # Copy 0 of a value stands for those that both have, the others for what is left of one side.
    rows = by_value.withColumn("copy", F.explode(F.sequence(F.lit(0), F.abs(surplus).cast("int"))))
    side = F.when(copy == 0, F.lit(0)).otherwise(F.signum(surplus))
    turn = F.row_number().over(Window.partitionBy("key", "time", _SIDE).orderBy("value", "copy"))
    numbered = rows.withColumn(_SIDE, side).withColumn("place", F.when(copy > 0, turn).otherwise(0))
    return (
        numbered.groupBy("key", "time", "place")
        .agg(
            F.sum(F.when(copy == 0, ((F.col("occurrences") - F.abs(surplus)) / 2)).otherwise(0))
            .cast("long")
            .alias("equal"),
            F.lit(None).cast("string").alias("kind"),
            F.max(F.when(F.col(_SIDE) > 0, F.col("value"))).alias("stream"),
            F.max(F.when(F.col(_SIDE) < 0, F.col("value"))).alias("batch"),
        )
        .drop("place")
    )
