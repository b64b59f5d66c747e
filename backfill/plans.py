"""How Spark runs each kind of processor over the archive: which files, shuffled how, through which step.

stateless    the days asked for                      -> mapped
stateful     from the beginning, by key in bus order -> reduced, giving from the first day on
aggregator   the days that its windows reach into    -> partials -> by key and window -> merged
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ..processors.categories import AnyCategory
from ..processors.kinds import Aggregator, Processor, Stateful
from ..processors.windows import Ever, Session
from .aggregating import PARTIALS, merger, partials
from .category_archive import archive_schema
from .columns import DAY_COLUMN, Columns
from .errors import BackfillRefused
from .folding import reducer
from .layout import Days, day_of, folder_of
from .mapping import mapper
from .outputs import OutputRows
from .steps import Step
from .timing import timer

_ARRIVAL = ("_bucket", "_offset")

StepOver = Callable[[AnyCategory], Step]
"""Gives a processor's step over one of its inputs."""


class Plan(NamedTuple):
    """What Spark will do for a processor.

    Args:
        frame: its output rows, as `OutputRows` has them; nothing is computed yet.
        note: what a reader of the result should know.
    """

    frame: DataFrame
    note: str


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


def refuse_what_batch_cannot(processor: type[Processor]) -> None:
    """Raise BackfillRefused for a processor whose result depends on how its inputs interleave."""
    if issubclass(processor, Aggregator) and processor.emit.differences:
        raise BackfillRefused(
            f"{processor.__name__} writes differences, and how a window is divided into them depends on when they were written. "
            "Nothing was started. To have the windows, backfill a processor that writes them whole (`differences=False`)."
        )
    ordered = issubclass(processor, Stateful) or (
        issubclass(processor, Aggregator)
        and (isinstance(processor.window, Session) or not processor.monoid.commutative)
    )
    if ordered and len(processor.inputs()) > 1:
        names = ", ".join(category.name for category in processor.inputs())
        raise BackfillRefused(
            f"{processor.__name__} reads several categories ({names}), and what it gives depends on the order in which their "
            "events meet; the archive keeps the order within each category only. Nothing was started. Name the other "
            "processors of the app one by one (path/app.py:Processor) to backfill those."
        )


def plan(processor: type[Processor], source: Source, days: Days, step_over: StepOver) -> Plan:
    """Return what Spark will do for a processor and a range of days."""
    if issubclass(processor, Aggregator) and isinstance(processor.window, Session):
        [category] = processor.inputs()
        return _timed(processor, source.events(category), days, step_over(category))
    if issubclass(processor, Aggregator):
        return _aggregated(processor, source, days, step_over)
    if issubclass(processor, Stateful):
        return _folded(processor, source, days, step_over)
    return _mapped(processor, source, days, step_over)


def _mapped(processor: type[Processor], source: Source, days: Days, step_over: StepOver) -> Plan:
    rows = spark_schema(OutputRows(processor).schema)
    wanted = in_days(str(days.first), str(days.last))
    frames = [
        source.events(category).where(wanted).mapInArrow(mapper(step_over(category)), rows)
        for category in processor.inputs()
    ]
    return Plan(reduce(DataFrame.unionAll, frames), "")


def _timed(processor: type[Processor], events: DataFrame, days: Days, step: Step) -> Plan:
    [(newest,)] = events.agg(F.max("_event_time")).collect()
    frame = (
        events.repartition("_key")
        .sortWithinPartitions("_key", "_event_time", *_ARRIVAL)
        .mapInArrow(timer(step, days, newest or 0), spark_schema(OutputRows(processor).schema))
    )
    return Plan(
        frame,
        "all of the archive in order of event time, in which nothing is late; outputs whose own time lies in the days",
    )


def _folded(processor: type[Stateful], source: Source, days: Days, step_over: StepOver) -> Plan:
    [category] = processor.inputs()
    events = source.events(category)
    if processor.has_timers() or processor.ordered:
        return _timed(processor, events, days, step_over(category))
    last = _last_offsets(events.where(in_days(str(days.first), str(days.last))))
    frame = (
        events.where(_up_to(last))
        .repartition("_key")
        .sortWithinPartitions("_key", *_ARRIVAL)
        .mapInArrow(reducer(step_over(category), days), spark_schema(OutputRows(processor).schema))
    )
    return Plan(frame, "read from the archive's beginning, since its state depends on all earlier events of a key")


def _last_offsets(events: DataFrame) -> dict[int, int]:
    return {row[0]: row[1] for row in events.groupBy("_bucket").agg(F.max("_offset")).collect()}


def _up_to(last: Mapping[int, int]) -> Column:
    """Keep what arrived no later than the last event within the range, bucket by bucket."""
    conditions = [(F.col("_bucket") == bucket) & (F.col("_offset") <= offset) for bucket, offset in last.items()]
    return reduce(Column.__or__, conditions, F.lit(False))


def _aggregated(processor: type[Aggregator], source: Source, days: Days, step_over: StepOver) -> Plan:
    taken, note = _days_of_windows(processor, days)
    lifted = [
        _in_bus_order(processor, source.events(category).where(taken)).mapInArrow(
            partials(step_over(category)), spark_schema(PARTIALS)
        )
        for category in processor.inputs()
    ]
    slots = reduce(DataFrame.unionAll, lifted)
    if not isinstance(processor.window, Ever):
        slots = slots.where((F.col("start") >= days.start_ms) & (F.col("start") < days.end_ms))
    frame = (
        slots.repartition("key", "start")
        .sortWithinPartitions("key", "start", "bucket", "offset")
        .mapInArrow(merger(step_over(processor.inputs()[0])), spark_schema(OutputRows(processor).schema))
    )
    return Plan(frame, note)


def _days_of_windows(processor: type[Aggregator], days: Days) -> tuple[Column, str]:
    """Return which days' files the windows that begin in the range reach into."""
    if isinstance(processor.window, Ever):
        return in_days(None, str(days.last)), "its window never ends: all events are in it up to the last day"
    # Windows are told apart by their starts and follow one another: the last to begin in the range ends last.
    start = max(processor.window.spread([days.end_ms - 1]).starts)
    last = day_of(max(processor.window.window(start).end, days.end_ms) - 1)
    return in_days(str(days.first), last), f"windows that begin in the range; events read up to {last}"


def _in_bus_order(processor: type[Aggregator], events: DataFrame) -> DataFrame:
    """Where the order of partials counts, give each task a stretch of the bus's own order.

    The files alone do not: those of two days hold offsets of one segment by turns.
    """
    if processor.monoid.commutative:
        return events
    return events.repartitionByRange(*_ARRIVAL).sortWithinPartitions(*_ARRIVAL)
