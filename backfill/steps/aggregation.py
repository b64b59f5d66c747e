"""Aggregator in two steps: partials per task, then one merge for each key and window.

    events --partials--> (key, start of window, bucket, first offset, partial) --shuffled, sorted--> merged --> result

The partials of a key and window are merged in bus order, so that a monoid need not be commutative. The events of each partial must
then be in bus order too; see `plans.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

import pyarrow as pa

from ...processors.declare import Aggregator, ErrorPolicy, KeyGroups, numbers_of, plan_of
from ...processors.keyed_state import EmptyState
from ...processors.operators import AggregatorOperator, results_of
from ...processors.time import UntrackedTime
from ..sources import PlannedFiles
from ..spark import BATCH_EVENTS, Batches, Transform
from .columnar import ColumnReader
from .step import BatchStep, guarded, places_in

FLUSH_EVENTS = 200_000
"""The number of events after which a task emits its partials, which bounds its memory."""

_PARTIALS: dict[str, pa.DataType] = {
    "key": pa.string(),
    "start": pa.int64(),
    "bucket": pa.int32(),
    "offset": pa.int64(),
    "partial": pa.binary(),
}
PARTIALS = pa.schema(_PARTIALS)
"""The partial of a key and window, and the position of the first event of its task."""


def partials_step(step: BatchStep) -> Transform:
    """Return the first step for Spark, on events."""
    return partial(_run_partials, step)


def file_partials_step(step: BatchStep, planned: PlannedFiles) -> Transform:
    """Return the first step for Spark, on files that a task reads directly."""
    return partial(_run_on_files, step, planned)


def merge_step(step: BatchStep) -> Transform:
    """Return the second step for Spark, on partitions of complete slots, sorted by slot, bucket and offset."""
    return partial(_run_merger, step)


def _run_partials(step: BatchStep, batches: Batches) -> Batches:
    return guarded(step, _partials(step, batches))


def _run_on_files(step: BatchStep, planned: PlannedFiles, tasks: Batches) -> Batches:
    files = planned.files_of(tasks)
    if plan_of(cast("Aggregator", step.opened.processor)).has_columns_step:
        return guarded(step, _column_partials(step, ColumnReader(step, planned, files)))
    return guarded(step, _partials(step, planned.read(files, step.fields, BATCH_EVENTS)))


def _run_merger(step: BatchStep, batches: Batches) -> Batches:
    return guarded(step, _merged(step, batches))


def _partials(step: BatchStep, batches: Batches) -> Batches:
    operator = AggregatorOperator(cast("Aggregator", step.opened.processor), EmptyState(), UntrackedTime())
    pending_events, first = 0, (0, 0)
    for batch in step.accepted(batches):
        if not pending_events and batch.num_rows:
            first = (batch.column("_bucket")[0].as_py(), batch.column("_offset")[0].as_py())
        _feed(step, operator, batch)
        step.counters.events_in.add(batch.num_rows)
        pending_events += batch.num_rows
        if pending_events >= FLUSH_EVENTS:
            yield from _emitted(step, operator.take_panes(), *first)
            pending_events = 0
    yield from _emitted(step, operator.take_panes(), *first)


def _feed(step: BatchStep, operator: AggregatorOperator, batch: pa.RecordBatch) -> None:
    result = step.feed(operator, step.columns.records(batch), places_in(batch))
    step.counters.rejected.add(len(result.rejected))


def _column_partials(step: BatchStep, reader: ColumnReader) -> Batches:
    operator = AggregatorOperator(cast("Aggregator", step.opened.processor), EmptyState(), UntrackedTime())
    first = (0, 0)
    for observed in reader.observed():
        first = first if operator.partials else places_in(observed.batch)(0)
        if observed.observations is None:
            for whole in reader.whole(observed.batch):
                _feed(step, operator, whole)
        else:
            _feed_observed(step, operator, observed.batch, observed.observations, observed.keys)
        if operator.partials >= FLUSH_EVENTS:
            yield from _emitted(step, operator.take_panes(), *first)
    yield from _emitted(step, operator.take_panes(), *first)


def _feed_observed(
    step: BatchStep,
    operator: AggregatorOperator,
    batch: pa.RecordBatch,
    observations: pa.Array[Any],
    keys: pa.Array[Any],
) -> None:
    result = operator.feed_observed(
        observations,
        KeyGroups.of(keys),
        numbers_of(batch.column("_event_time")),
        stop_at_error=step.opened.processor.on_error is ErrorPolicy.STOP,
    )
    step.expect_no_stop(result, places_in(batch))
    step.counters.rejected.add(len(result.rejected))


def _emitted(step: BatchStep, panes: Sequence[tuple[int, Mapping[str, Any]]], bucket: int, offset: int) -> Batches:
    encode_all = cast("Aggregator", step.opened.processor).monoid.encode_all
    keys = [key for _, pane in panes for key in pane]
    starts = [start for start, pane in panes for _ in pane]
    partials = [value for _, pane in panes for value in pane.values()]
    for begin in range(0, len(keys), BATCH_EVENTS):
        part = slice(begin, begin + BATCH_EVENTS)
        count = len(keys[part])
        columns: list[list[Any]] = [
            keys[part],
            starts[part],
            [bucket] * count,
            [offset] * count,
            encode_all(partials[part]),
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, PARTIALS, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=PARTIALS)


def _merged(step: BatchStep, batches: Batches) -> Batches:
    processor = cast("Aggregator", step.opened.processor)
    outputs: list[Any] = []
    for (key, start), slot in groupby(_rows(batches), key=itemgetter(0)):
        decoded = (processor.monoid.decode(encoded) for _, encoded in slot)
        value = next(decoded)
        for later in decoded:
            value = processor.monoid.combine(value, later)
        outputs.extend(results_of(processor, key, processor.window.window(start), value))
        if len(outputs) >= BATCH_EVENTS:
            yield from step.output_rows(outputs)
            outputs = []
    yield from step.output_rows(outputs)


def _rows(batches: Batches) -> Iterator[tuple[tuple[str, int], bytes]]:
    for batch in batches:
        keys, starts, encoded = (batch.column(name).to_pylist() for name in ("key", "start", "partial"))
        yield from zip(zip(keys, starts, strict=True), encoded, strict=True)
