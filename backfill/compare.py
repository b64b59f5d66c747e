"""Stream against batch: where the archived output of the stream and the output of a backfill differ, value by value.

archive --values--> last update of each key and time, where the outputs are updates --|
                                                                                      |--> counted for each key and time
batch   --values----------------------------------------------------------------------|
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it

from ..processors.apps import App, AppName
from ..processors.categories import AnyCategory
from ..processors.errors import DeclarationError
from ..processors.kinds import Aggregator
from .columns import Columns
from .comparing import PAIRS, VALUES, Compared, look_again, shown, values_of
from .errors import BackfillRefused
from .failures import told
from .hadoop import Folders
from .outputs import OUTPUT_MARKS
from .session import spark_session
from .sources import Source, in_days, spark_schema
from .warehouse import Warehouse, open_warehouse

EXAMPLES = 10
"""How many examples of each kind of difference are kept."""


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
class Comparison:
    """How the two agree on one category.

    Args:
        category: its name.
        processors: the names of the classes that write it.
        equal: how many records both have.
        only_stream: how many only the stream has.
        only_batch: how many only the batch has.
        different: how many both have for the same key and event time, but with another value.
        examples: up to ten differences of each kind.
    """

    category: str
    processors: tuple[str, ...]
    equal: int
    only_stream: int
    only_batch: int
    different: int
    examples: tuple[Difference, ...]

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not (self.only_stream or self.only_batch or self.different)


def compare(
    app_name: AppName, warehouse: Warehouse, output: str, first: date, last: date, *, master: str = "local[*]"
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

    Raises:
        BackfillRefused: a category is missing on either side; nothing was compared.
        DeclarationError: aggregators and others write one category, so that its records cannot be told apart.
    """
    app = app_name.load()
    writers = {category: _updates(app, category) for category in _written(app)}
    stream, batch = warehouse.location, open_warehouse(output).location
    path = str(app_name.path.resolve())
    with spark_session(master) as spark, told("Comparing"):
        sides = Source(spark, stream), Source(spark, batch)
        for side in sides:
            _refuse_missing(Folders(spark, side.location), writers)
        return [
            _Comparing(category, path, str(first), str(last)).run(*sides, _names(app, category), updates=updates)
            for category, updates in writers.items()
        ]


def _written(app: App) -> list[AnyCategory]:
    return list({c.name: c for processor in app.processors for c in processor.outputs()}.values())


def _names(app: App, category: AnyCategory) -> tuple[str, ...]:
    return tuple(p.__name__ for p in app.processors if category.name in {c.name for c in p.outputs()})


def _updates(app: App, category: AnyCategory) -> bool:
    kinds = {issubclass(app.processor(name), Aggregator) for name in _names(app, category)}
    if len(kinds) > 1:
        raise DeclarationError(
            f"Category {category.name} is written by {', '.join(_names(app, category))}: an aggregator's records are updates, "
            "the others' are not, and they cannot be told apart. Give the aggregator a category of its own."
        )
    return kinds.pop()


def _refuse_missing(folders: Folders, categories: Iterable[AnyCategory]) -> None:
    missing = [category.name for category in categories if not folders.has(category.name)]
    if missing:
        raise BackfillRefused(
            f"{folders.root} has no {', '.join(missing)}. Nothing was compared. Archive the stream's outputs and run the "
            "backfill of the same processors first, or name one processor (path/app.py:Processor)."
        )


@dataclass(frozen=True)
class _Comparing:
    category: AnyCategory
    app: str
    first: str
    last: str

    def run(self, stream: Source, batch: Source, processors: tuple[str, ...], *, updates: bool) -> Comparison:
        ours, theirs = self._values(stream.events(self.category)), self._values(self._of_batch(batch))
        compared = (_paired(_latest(ours), theirs) if updates else _counted(ours, theirs)).persist()
        try:
            return self._summed(compared, processors)
        finally:
            compared.unpersist()

    def _of_batch(self, batch: Source) -> DataFrame:
        stored = batch.read(self.category.name, pa.schema([*Columns(self.category.record).schema, *OUTPUT_MARKS]))
        return stored.withColumns({"_bucket": F.lit(None).cast("int"), "_offset": F.lit(None).cast("long")})

    def _values(self, stored: DataFrame) -> DataFrame:
        return stored.where(in_days(self.first, self.last)).mapInArrow(
            values_of(Compared(self.app, self.category.name)), spark_schema(VALUES)
        )

    def _summed(self, compared: DataFrame, processors: tuple[str, ...]) -> Comparison:
        changed = F.least("stream_more", "batch_more")
        [(equal, only_stream, only_batch, different)] = compared.agg(
            _total(F.col("equal")),
            _total(F.col("stream_more") - changed),
            _total(F.col("batch_more") - changed),
            _total(changed),
        ).collect()
        examples = (
            *(_only_stream(row) for row in _some(compared, F.col("stream_more") > F.col("batch_more"), only_stream)),
            *(_only_batch(row) for row in _some(compared, F.col("batch_more") > F.col("stream_more"), only_batch)),
            *(_different(row) for row in _some(compared, changed > 0, different)),
        )
        return Comparison(self.category.name, processors, equal, only_stream, only_batch, different, examples)


def _some(compared: DataFrame, wanted: Column, there_are: int) -> list[Row]:
    """Return the earliest examples; nothing is computed where there are none."""
    return compared.where(wanted).orderBy("time", "key").limit(EXAMPLES).collect() if there_are else []


def _only_stream(row: Row) -> Difference:
    return Difference("only stream", row["key"], row["time"], shown(row["stream"]), None)


def _only_batch(row: Row) -> Difference:
    return Difference("only batch", row["key"], row["time"], None, shown(row["batch"]))


def _different(row: Row) -> Difference:
    return Difference("different", row["key"], row["time"], shown(row["stream"]), shown(row["batch"]))


def _total(column: Column) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))


def _latest(values: DataFrame) -> DataFrame:
    """Keep the last update of each key and time."""
    return values.groupBy("key", "time").agg(F.max_by("value", F.struct("bucket", "offset")).alias("value"))


def _counted(stream: DataFrame, batch: DataFrame) -> DataFrame:
    """Count, for each key and time, the records that both have and those that one has more of, with an example of each."""
    both = stream.select("key", "time", "value", F.lit(1).alias("side")).unionAll(
        batch.select("key", "time", "value", F.lit(-1).alias("side"))
    )
    by_value = both.groupBy("key", "time", "value").agg(
        F.count("*").alias("occurrences"), F.sum("side").alias("surplus")
    )
    surplus = F.col("surplus")
    return by_value.groupBy("key", "time").agg(
        F.sum((F.col("occurrences") - F.abs(surplus)) / 2).cast("long").alias("equal"),
        F.sum(F.greatest(surplus, F.lit(0))).alias("stream_more"),
        F.sum(F.greatest(-surplus, F.lit(0))).alias("batch_more"),
        F.max(F.when(surplus > 0, F.col("value"))).alias("stream"),
        F.max(F.when(surplus < 0, F.col("value"))).alias("batch"),
    )


def _paired(stream: DataFrame, batch: DataFrame) -> DataFrame:
    """Put the two records of each key and time side by side, in the same columns as `_counted`."""
    joined = stream.select("key", "time", F.col("value").alias("stream")).join(
        batch.select("key", "time", F.col("value").alias("batch")), ["key", "time"], "full_outer"
    )
    judged = joined.mapInArrow(look_again(), spark_schema(PAIRS))
    return judged.select(
        "key",
        "time",
        F.col("alike").cast("long").alias("equal"),
        (~F.col("alike") & F.col("stream").isNotNull()).cast("long").alias("stream_more"),
        (~F.col("alike") & F.col("batch").isNotNull()).cast("long").alias("batch_more"),
        "stream",
        "batch",
    )
