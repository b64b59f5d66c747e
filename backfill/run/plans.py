"""Spark plans for each kind of processor: the files to read, the shuffle, and the step.

stateless     the requested days                      -> mapped
aggregator    the days that its windows overlap       -> partials -> by key and window -> merged
stateful      from the beginning, in blocks           -> by part of the keys, in bus order -> reduced; outputs from the first day on
              if an output may replace an earlier one -> by bucket, in order of arrival; an aggregator's by key, in order of its windows
by time       the whole archive, in one of two orders; outputs of the requested days:
  arrival     by bucket, in order of arrival          -> the shard's operator with its watermark and late events
  event time  by key, in order of event time          -> reduced; no event is late
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from enum import Enum
from functools import partial, reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it
from pyspark.sql.window import Window

from ...processors.apps import App
from ...processors.declare import Aggregator, AnyCategory, Partials, Processor, Sink, Stateful, as_tuple, plan_of
from ...processors.time import GlobalWindow
from ..archive import archive_schema_of
from ..errors import BackfillRefused
from ..outputs import OutputBlocks, kept
from ..sources import ALL_DAYS, BatchEvents, in_days, spark_schema
from ..steps import (
    PARTIALS,
    RANGE_OFFSETS,
    BatchStep,
    EventBlocks,
    Inputs,
    OutputRows,
    PartOf,
    ReadEvents,
    Split,
    arrival_mapper_step,
    arrival_order_step,
    bus_order,
    by_arrival,
    by_event_time,
    event_time_step,
    file_mapper_step,
    file_packing_step,
    file_partials_step,
    mapper_step,
    merge_step,
    merged_inputs,
    packing_step,
    partials_step,
    reducer_step,
    slot_of,
)
from ..warehouse import DAY_MS, Days, day_of

_NUMBER = "_number"
_NEWEST = "_newest"

StepOver = Callable[[AnyCategory], BatchStep]
"""Returns a processor's step over one of its inputs."""


def expect_no_loop(app: App) -> None:
    """Raise BackfillRefused for a processor in a loop."""
    loop = next((loop for loop in map(app.loop_of, app.processors) if loop is not None), None)
    if loop is not None:
        raise BackfillRefused(
            f"{app.name} has a loop: {loop}. A run in Spark reads each category once, and does not repeat until nothing circulates. Nothing was started. "
            "Run the processors outside of the loop one by one (path/app.py:Processor). For the loop, send the archived events to the bus again."
        )


class Plan(NamedTuple):
    """The Spark plan of a processor.

    Args:
        blocks: its outputs as of `OutputBlocks`, not yet computed.
        note: a remark for the reader of the result.
    """

    blocks: DataFrame
    note: str


class Order(Enum):
    """The order of events, for processors whose result depends on it."""

    ARRIVAL = "arrival"
    """Order on the bus, bucket by bucket: the stream's result, including late events."""
    EVENT_TIME = "event-time"
    """Order of event time, key by key: the stream's result if no event had been late."""


def order_of(processor: type[Processor], asked: Order | None, *, archived: bool = True) -> Order | None:
    """Return the order of a processor's events; None if its result does not depend on the order.

    Args:
        processor: its class.
        asked: the requested order; None for order of arrival if it is known, otherwise of event time.
        archived: whether all its inputs are archived, with their arrival times.

    Raises:
        BackfillRefused: the processor cannot run in the requested order.
    """
    _refuse_live_only(processor)
    reads_watermark = issubclass(processor, Stateful) and asked is Order.ARRIVAL  # it may read the watermark
    if not (_depends_on_order(processor) or reads_watermark):
        return None
    known = archived and not plan_of(processor).waits_for_upstream
    if asked is Order.ARRIVAL and not known:
        reason = (
            "uses upstream watermarks, and the archive does not record when they arrived"
            if archived
            else "reads outputs of this run or inputs outside the archive, which have no order of arrival"
        )
        raise BackfillRefused(
            f"{processor.__name__} {reason}. Nothing was started. Run it in order of event time (`--order event-time`): the result is the same "
            "except for late events."
        )
    order = asked or (Order.ARRIVAL if known else Order.EVENT_TIME)
    if order is Order.EVENT_TIME and _merges_several_streams(processor):
        names = ", ".join(category.name for category in plan_of(processor).sources)
        raise BackfillRefused(
            f"{processor.__name__} reads several categories ({names}), and its monoid depends on the order of arrival of their events. "
            "Nothing was started. Run it in order of arrival (`--order arrival`), or choose a commutative monoid."
        )
    if order is Order.EVENT_TIME and merges_within_messages(processor):
        raise BackfillRefused(
            f"{processor.__name__} reads messages with several events each, and its monoid depends on the order of arrival of the events. Nothing was "
            "started. Run it in order of arrival (`--order arrival`), or choose a commutative monoid."
        )
    return order


def _refuse_live_only(processor: type[Processor]) -> None:
    """Refuse what depends on the state of the bus while a stream runs."""
    for category in plan_of(processor).side_inputs:
        raise BackfillRefused(
            f"{processor.__name__} reads the table of category {category.name}, whose rows are those on the bus when a live event arrives. Nothing was "
            "started. Join with a penstock.TableJoin, which has the rows of each event's time in backfills, too, or declare a file or a store as the "
            "source."
        )
    if issubclass(processor, Stateful) and processor.schedules:
        raise BackfillRefused(
            f"{processor.__name__} has schedules ({', '.join(processor.schedules)}), which fire by the time of day, and a backfill has none. Nothing was "
            "started. Backfill a processor without them, for example its base class without `schedules` and `on_schedule`."
        )
    if issubclass(processor, Aggregator) and processor.emit.differences and not issubclass(processor, Partials):
        raise BackfillRefused(
            f"{processor.__name__} writes differences, which depend on the times of the stream's checkpoints. "
            "Nothing was started. Backfill a processor that writes complete results (`differences=False`)."
        )


def _depends_on_order(processor: type[Processor]) -> bool:
    """Return whether the result depends on the order of events of several keys or inputs."""
    if issubclass(processor, Partials):
        return False  # however the events of a window are split, their partials combine to the same result
    if issubclass(processor, Aggregator):
        return plan_of(processor).windows_end or _merges_several_streams(processor) or merges_within_messages(processor)
    return issubclass(processor, Stateful) and (
        plan_of(processor).has_timers or processor.ordered or len(plan_of(processor).sources) > 1
    )


def _merges_in_bus_order(processor: type[Processor]) -> bool:
    return issubclass(processor, Aggregator) and not _by_key_and_time(processor) and not processor.monoid.commutative


def _merges_several_streams(processor: type[Processor]) -> bool:
    return _merges_in_bus_order(processor) and len(plan_of(processor).sources) > 1


def merges_within_messages(processor: type[Processor]) -> bool:
    """Return whether a result depends on the order of events of one message: partials are sorted by offset, which these events share."""
    return _merges_in_bus_order(processor) and any(category.splits_messages for category in plan_of(processor).sources)


def _by_key_and_time(processor: type[Processor]) -> bool:
    """Return whether the processor can process each key's events in order of event time."""
    return issubclass(processor, Stateful) or (
        issubclass(processor, Aggregator) and plan_of(processor).windows_follow_events
    )


def _replaces_outputs(processor: type[Processor]) -> bool:
    """Return whether an output may replace an earlier one, so that the outputs of an event key must keep their order."""
    plan = plan_of(processor)
    return bool(plan.sinks) or any(category.compacted for category in plan.outputs)


def plan(processor: type[Processor], source: BatchEvents, days: Days, order: Order | None, step_over: StepOver) -> Plan:
    """Return the Spark plan of a processor for a range of days, in the order that `order_of` returns."""
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
    """Return the days of event time that a run over some days reads."""
    if order is not None:
        return ALL_DAYS
    if issubclass(processor, Stateful):
        return Days(date.min, days.last)
    if issubclass(processor, Aggregator):
        return _days_of_windows(processor, days)[0]
    return days


def _mapped(processor: type[Processor], source: BatchEvents, days: Days, step_over: StepOver) -> Plan:
    plan = plan_of(processor)
    outputs = OutputBlocks.of(processor)
    wanted = in_days(str(days.first), str(days.last))
    if _replaces_outputs(processor):
        rows = by_arrival(merged_inputs(processor, source, wanted), plan.sources[0].buckets)
        return Plan(outputs.packed(rows, arrival_mapper_step(_inputs(processor, step_over))), "")

    def frame(category: AnyCategory) -> DataFrame:
        step = step_over(category)
        planned = source.planned(category, days)
        if planned is None:
            return outputs.packed(source.events(category).where(wanted), mapper_step(step))
        return outputs.packed(planned.frame(source.spark), file_mapper_step(step, planned))

    return Plan(reduce(DataFrame.unionAll, map(frame, plan.sources)), "")


def _arrived(processor: type[Processor], source: BatchEvents, days: Days, step_over: StepOver) -> Plan:
    rows, read = _by_arrival(processor, source, inputs := _inputs(processor, step_over))
    step, outputs = arrival_order_step(inputs, read, days), OutputBlocks.of(processor)
    if issubclass(processor, Aggregator):
        updates = rows.mapInArrow(step, spark_schema(OutputRows(processor).schema))
        results = [number for number, each in enumerate(as_tuple(processor.writes)) if not isinstance(each, Sink)]
        blocks = outputs.packed(reduce(_last_updates, map(slot_of, results), updates), kept)
    else:
        blocks = outputs.packed(rows, step)
    return Plan(
        blocks,
        "reads the whole archive in order of arrival, bucket by bucket, including late events; outputs whose event time is in the days",
    )


def _by_arrival(processor: type[Processor], source: BatchEvents, inputs: Inputs) -> tuple[DataFrame, ReadEvents]:
    """Return the events of complete buckets in order of arrival, and how a task reads them: those of one input as blocks."""
    plan = plan_of(processor)
    sources, buckets = plan.sources, plan.sources[0].buckets
    if len(sources) > 1:
        return by_arrival(merged_inputs(processor, source), buckets), inputs.events
    blocks, shuffled = _blocks(source, sources[0], ALL_DAYS, inputs.steps[0], Split(PartOf.BUCKET, buckets))
    return shuffled, partial(inputs.events_in, blocks)


def _last_updates(frame: DataFrame, results: str) -> DataFrame:
    """Keep the last result of each key and event time in a column, and all other records."""
    is_result = F.col(results).isNotNull()
    newest = F.max(_NUMBER).over(Window.partitionBy(is_result, "_key", "_event_time"))
    numbered = frame.withColumn(_NUMBER, F.monotonically_increasing_id()).withColumn(_NEWEST, newest)
    return numbered.where(~is_result | (F.col(_NUMBER) == F.col(_NEWEST))).drop(_NUMBER, _NEWEST)


def _timed(processor: type[Processor], source: BatchEvents, days: Days, step_over: StepOver) -> Plan:
    rows = merged_inputs(processor, source)
    [(newest,)] = rows.agg(F.max("_event_time")).collect()
    step = event_time_step(_inputs(processor, step_over), days, newest or 0)
    return Plan(
        OutputBlocks.of(processor).packed(by_event_time(rows), step),
        "reads the whole archive in order of event time, without late events; outputs whose event time is in the days",
    )


def _inputs(processor: type[Processor], step_over: StepOver) -> Inputs:
    return Inputs([step_over(category) for category in plan_of(processor).sources])


def _folded(processor: type[Stateful], source: BatchEvents, days: Days, step_over: StepOver) -> Plan:
    [category] = plan_of(processor).sources
    step = step_over(category)
    parts = int(source.spark.conf.get("spark.sql.shuffle.partitions") or 1)
    split = Split(PartOf.BUCKET, category.buckets) if _replaces_outputs(processor) else Split(PartOf.KEY, parts)
    blocks, shuffled = _blocks(source, category, days, step, split)
    return Plan(
        OutputBlocks.of(processor).packed(shuffled, reducer_step(step, blocks, days)),
        "reads the archive from its beginning, since its state depends on all earlier events of a key",
    )


def _blocks(
    source: BatchEvents, category: AnyCategory, days: Days, step: BatchStep, split: Split
) -> tuple[EventBlocks, DataFrame]:
    """Return the blocks of all events up to the last one of the days in each bucket, perhaps with later ones."""
    schema, planned = archive_schema_of(category), source.planned_until(category, days)
    if planned is not None:
        blocks = EventBlocks.of(schema, split)
        return blocks, blocks.shuffled(planned.frame(source.spark), file_packing_step(step, blocks, planned))
    events = source.events(category)
    names = [name for name in schema.names if name in events.columns]
    # The offsets of a batch run's outputs are their event times.
    range_offsets = DAY_MS if category.name in source.made else RANGE_OFFSETS
    blocks = EventBlocks.of(pa.schema([schema.field(name) for name in names]), split, range_offsets)
    if days != ALL_DAYS:
        events = events.where(_up_to(_last_offsets(events.where(in_days(str(days.first), str(days.last))))))
    return blocks, blocks.shuffled(events.select(*names), packing_step(step, blocks))


def _last_offsets(events: DataFrame) -> dict[int, int]:
    return {row[0]: row[1] for row in events.groupBy("_bucket").agg(F.max("_offset")).collect()}


def _up_to(last: Mapping[int, int]) -> Column:
    """Return the condition for events up to the last event within the range, bucket by bucket."""
    conditions = [(F.col("_bucket") == bucket) & (F.col("_offset") <= offset) for bucket, offset in last.items()]
    return reduce(Column.__or__, conditions, F.lit(False))


def _aggregated(processor: type[Aggregator], source: BatchEvents, days: Days, step_over: StepOver) -> Plan:
    overlapped, note = _days_of_windows(processor, days)
    wanted = in_days(str(overlapped.first), str(overlapped.last))

    def partial_frame(category: AnyCategory) -> DataFrame:
        step = step_over(category)
        planned = source.planned(category, overlapped) if processor.monoid.commutative else None
        if planned is None:
            events = in_bus_order(processor, source.events(category).where(wanted))
            return events.mapInArrow(partials_step(step), spark_schema(PARTIALS))
        return planned.frame(source.spark).mapInArrow(file_partials_step(step, planned), spark_schema(PARTIALS))

    slots = reduce(DataFrame.unionAll, map(partial_frame, plan_of(processor).sources))
    if not isinstance(processor.window, GlobalWindow):
        slots = slots.where((F.col("start") >= days.start_ms) & (F.col("start") < days.end_ms))
    together = ["key"] if _replaces_outputs(processor) else ["key", "start"]
    by_slot = slots.repartition(*together).sortWithinPartitions("key", "start", "bucket", "offset")
    return Plan(OutputBlocks.of(processor).packed(by_slot, merge_step(step_over(plan_of(processor).sources[0]))), note)


def _days_of_windows(processor: type[Aggregator], days: Days) -> tuple[Days, str]:
    """Return the days that windows beginning in the range overlap, and a note."""
    if isinstance(processor.window, GlobalWindow):
        return Days(date.min, days.last), "its window never ends and includes all events up to the last day"
    # Windows are ordered by start: the last window that begins in the range also ends last.
    start = max(processor.window.assign([days.end_ms - 1]).starts)
    last = day_of(max(processor.window.window(start).end, days.end_ms) - 1)
    until = "" if last == str(date.max) else f"; events read up to {last}"
    return Days(days.first, date.fromisoformat(last)), f"windows that begin in the range{until}"


def in_bus_order(processor: type[Aggregator], events: DataFrame) -> DataFrame:
    """Sort events in bus order, in one range per task, if the monoid depends on the order of partials.

    Reading file by file is not enough: files of two days may contain alternating offsets of one segment.
    """
    if processor.monoid.commutative:
        return events
    return events.repartitionByRange("_bucket", "_offset").sortWithinPartitions(*bus_order(events))
