"""How Spark runs each kind of processor over the archive: which files, shuffled how, through which step.

stateless     the days asked for                      -> mapped
aggregator    the days that its windows reach into    -> partials -> by key and window -> merged
stateful      from the beginning, by key in bus order -> reduced, giving from the first day on
by time       all of the archive, in one of two orders, giving what lies in the days:
  arrival     by bucket, as the events came           -> the shard's own core, its watermark and what is late for it
  event time  by key, in order of event time          -> reduced; nothing is late
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from enum import Enum
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it
from pyspark.sql.window import Window

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor
from ...processors.declare.stateful import Stateful
from ...processors.time.watermarks import UpstreamWatermark
from ...processors.time.windows import GlobalWindow
from ..errors import BackfillRefused
from ..sources.coverage import EVER
from ..sources.source import Source, in_days, spark_schema
from ..steps.aggregation import PARTIALS, file_partials, merger, partials
from ..steps.arrival_order import arrival_order_step
from ..steps.event_time_order import timer
from ..steps.inputs import Inputs, by_arrival, by_event_time, merged
from ..steps.outputs import OutputRows, slot_of
from ..steps.stateful_reducer import reducer
from ..steps.stateless_mapper import file_mapper, mapper
from ..steps.step import Step
from ..warehouse.layout import Days, day_of

_ARRIVAL = ("_bucket", "_offset")
_TURN = "_turn"
_NEWEST = "_newest"

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


class Order(Enum):
    """In which order the events come of a processor whose result depends on that."""

    ARRIVAL = "arrival"
    """That in which they came to the bus, bucket by bucket: the stream's result, with what was late for it."""
    EVENT_TIME = "event-time"
    """That of event time, key by key: what the stream would give if nothing had ever come late."""


def order_of(processor: type[Processor], asked: Order | None, *, archived: bool = True) -> Order | None:
    """Return the order in which a processor's events are to come; None where its result is the same in any.

    Args:
        processor: its class.
        asked: the order that was asked for; None for the one that fits: arrival, where it is known.
        archived: whether all that it reads is archived, with when it arrived.

    Raises:
        BackfillRefused: it cannot run in that order.
    """
    _refuse_differences(processor)
    may_look = issubclass(processor, Stateful) and asked is Order.ARRIVAL  # at the watermark
    if not (_depends_on_order(processor) or may_look):
        return None
    known = archived and not isinstance(processor.watermark, UpstreamWatermark)
    if asked is Order.ARRIVAL and not known:
        why = (
            "goes by what was promised about its inputs, and the archive does not hold when which promise came"
            if archived
            else "reads what others give in this run, or what lies elsewhere than in the archive, which arrived nowhere"
        )
        raise BackfillRefused(
            f"{processor.__name__} {why}. Nothing was started. Run it in order of event time (`--order event-time`): the result is the same "
            "for all that was not late."
        )
    order = asked or (Order.ARRIVAL if known else Order.EVENT_TIME)
    if order is Order.EVENT_TIME and _merges_in_bus_order(processor) and len(processor.inputs()) > 1:
        names = ", ".join(category.name for category in processor.inputs())
        raise BackfillRefused(
            f"{processor.__name__} reads several categories ({names}), and its monoid combines in the order in which their events met. "
            "Nothing was started. Run it in the order of arrival (`--order arrival`), or choose a monoid that is commutative."
        )
    return order


def _refuse_differences(processor: type[Processor]) -> None:
    if issubclass(processor, Aggregator) and processor.emit.differences:
        raise BackfillRefused(
            f"{processor.__name__} writes differences, and how a window is divided into them depends on when they were written. "
            "Nothing was started. To have the windows, backfill a processor that writes them whole (`differences=False`)."
        )


def _depends_on_order(processor: type[Processor]) -> bool:
    """Tell whether it matters how the events of several keys, or inputs, come between one another."""
    if issubclass(processor, Aggregator):
        return processor.windows_end() or (_merges_in_bus_order(processor) and len(processor.inputs()) > 1)
    return issubclass(processor, Stateful) and (
        processor.has_timers() or processor.ordered or len(processor.inputs()) > 1
    )


def _merges_in_bus_order(processor: type[Processor]) -> bool:
    return issubclass(processor, Aggregator) and not _by_key_and_time(processor) and not processor.monoid.commutative


def _by_key_and_time(processor: type[Processor]) -> bool:
    """Tell whether one key's events are taken one after the other in order of event time."""
    return issubclass(processor, Stateful) or (issubclass(processor, Aggregator) and processor.windows_follow_events())


def plan(processor: type[Processor], source: Source, days: Days, order: Order | None, step_over: StepOver) -> Plan:
    """Return what Spark will do for a processor and a range of days, in the order that `order_of` gives."""
    if order is Order.ARRIVAL:
        return _arrived(processor, source, days, step_over)
    if order is Order.EVENT_TIME and _by_key_and_time(processor):
        return _timed(processor, source, days, step_over)
    if issubclass(processor, Aggregator):
        return _aggregated(processor, source, days, step_over)
    if issubclass(processor, Stateful):
        return _folded(processor, source, days, step_over)
    return _mapped(processor, source, days, step_over)


def days_read(processor: type[Processor], order: Order | None, days: Days) -> Days:
    """Return the days of event time whose events a run over some days reads."""
    if order is not None:
        return EVER
    if issubclass(processor, Stateful):
        return Days(date.min, days.last)
    if issubclass(processor, Aggregator):
        return _days_of_windows(processor, days)[0]
    return days


def _mapped(processor: type[Processor], source: Source, days: Days, step_over: StepOver) -> Plan:
    rows = spark_schema(OutputRows(processor).schema)
    wanted = in_days(str(days.first), str(days.last))

    def frame(category: AnyCategory) -> DataFrame:
        files, step = source.files(category), step_over(category)
        if files is None:
            return source.events(category).where(wanted).mapInArrow(mapper(step), rows)
        planned = source.planned(files, days)
        return planned.frame(source.spark).mapInArrow(file_mapper(step, planned), rows)

    return Plan(reduce(DataFrame.unionAll, map(frame, processor.inputs())), "")


def _arrived(processor: type[Processor], source: Source, days: Days, step_over: StepOver) -> Plan:
    rows = by_arrival(merged(processor, source), processor.inputs()[0].buckets)
    step = arrival_order_step(_inputs(processor, step_over), days)
    frame = rows.mapInArrow(step, spark_schema(OutputRows(processor).schema))
    if issubclass(processor, Aggregator) and processor.writes:
        frame = _last_updates(frame)
    return Plan(
        frame,
        "all of the archive in the order of arrival, bucket by bucket, with what was late for the stream; outputs whose own time lies in "
        "the days",
    )


def _last_updates(frame: DataFrame) -> DataFrame:
    """Keep the last result of each key and event time, and all else."""
    is_result = F.col(slot_of(0)).isNotNull()
    newest = F.max(_TURN).over(Window.partitionBy(is_result, "_key", "_event_time"))
    numbered = frame.withColumn(_TURN, F.monotonically_increasing_id()).withColumn(_NEWEST, newest)
    return numbered.where(~is_result | (F.col(_TURN) == F.col(_NEWEST))).drop(_TURN, _NEWEST)


def _timed(processor: type[Processor], source: Source, days: Days, step_over: StepOver) -> Plan:
    rows = merged(processor, source)
    [(newest,)] = rows.agg(F.max("_event_time")).collect()
    step = timer(_inputs(processor, step_over), days, newest or 0)
    return Plan(
        by_event_time(rows).mapInArrow(step, spark_schema(OutputRows(processor).schema)),
        "all of the archive in order of event time, in which nothing is late; outputs whose own time lies in the days",
    )


def _inputs(processor: type[Processor], step_over: StepOver) -> Inputs:
    return Inputs([step_over(category) for category in processor.inputs()])


def _folded(processor: type[Stateful], source: Source, days: Days, step_over: StepOver) -> Plan:
    [category] = processor.inputs()
    events = source.events(category)
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
    reach, note = _days_of_windows(processor, days)
    wanted = in_days(str(reach.first), str(reach.last))

    def lifted(category: AnyCategory) -> DataFrame:
        files, step = source.files(category), step_over(category)
        if files is None or not processor.monoid.commutative:
            events = in_bus_order(processor, source.events(category).where(wanted))
            return events.mapInArrow(partials(step), spark_schema(PARTIALS))
        planned = source.planned(files, reach)
        return planned.frame(source.spark).mapInArrow(file_partials(step, planned), spark_schema(PARTIALS))

    slots = reduce(DataFrame.unionAll, map(lifted, processor.inputs()))
    if not isinstance(processor.window, GlobalWindow):
        slots = slots.where((F.col("start") >= days.start_ms) & (F.col("start") < days.end_ms))
    frame = (
        slots.repartition("key", "start")
        .sortWithinPartitions("key", "start", "bucket", "offset")
        .mapInArrow(merger(step_over(processor.inputs()[0])), spark_schema(OutputRows(processor).schema))
    )
    return Plan(frame, note)


def _days_of_windows(processor: type[Aggregator], days: Days) -> tuple[Days, str]:
    """Return the days that the windows which begin in the range reach into."""
    if isinstance(processor.window, GlobalWindow):
        return Days(date.min, days.last), "its window never ends: all events are in it up to the last day"
    # Windows are told apart by their starts and follow one another: the last to begin in the range ends last.
    start = max(processor.window.spread([days.end_ms - 1]).starts)
    last = day_of(max(processor.window.window(start).end, days.end_ms) - 1)
    until = "" if last == str(date.max) else f"; events read up to {last}"
    return Days(days.first, date.fromisoformat(last)), f"windows that begin in the range{until}"


def in_bus_order(processor: type[Aggregator], events: DataFrame) -> DataFrame:
    """Where the order of partials counts, give each task a stretch of the bus's own order.

    The files alone do not: those of two days hold offsets of one segment by turns.
    """
    if processor.monoid.commutative:
        return events
    return events.repartitionByRange(*_ARRIVAL).sortWithinPartitions(*_ARRIVAL)
