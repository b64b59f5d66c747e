"""An aggregator in two halves: partials where the events lie, and one merge for each key and window.

    events --partials--> (key, start of window, bucket, first offset, partial) --shuffled, sorted--> merged --> result

The partials of a slot are merged in bus order, so that a monoid need not be commutative. What they are made of must then lie in
bus order too; see `plans.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

import pyarrow as pa

from ...processors.declare.aggregator import Aggregator
from ...processors.keyed_state.changes import EmptyState
from ...processors.operators import AggregatorOperator
from ...processors.operators.aggregator import Slot, results_of
from ...processors.time.shard_time import NoShardTime
from ..sources.files import Planned
from ..spark.batches import Batches, Transform
from ..spark.session import BATCH_EVENTS
from .columnar import Reading
from .step import Step, guarded

FLUSH_EVENTS = 200_000
"""After how many events a task hands its partials on: so many slots it holds at most."""

_PARTIALS: dict[str, pa.DataType] = {
    "key": pa.string(),
    "start": pa.int64(),
    "bucket": pa.int32(),
    "offset": pa.int64(),
    "partial": pa.binary(),
}
PARTIALS = pa.schema(_PARTIALS)
"""The partial of a key and window, and where the first of the events lay among which it was made."""


def partials(step: Step) -> Transform:
    """Return the first half as Spark runs it, on events."""
    return partial(_run_partials, step)


def file_partials(step: Step, planned: Planned) -> Transform:
    """Return the first half as Spark runs it, on files that a task reads itself."""
    return partial(_run_on_files, step, planned)


def merger(step: Step) -> Transform:
    """Return the second half as Spark runs it, on partitions that hold whole slots, sorted by slot, bucket and offset."""
    return partial(_run_merger, step)


def _run_partials(step: Step, batches: Batches) -> Batches:
    return guarded(step, _partials(step, batches))


def _run_on_files(step: Step, planned: Planned, tasks: Batches) -> Batches:
    files = planned.named(tasks)
    if cast("Aggregator", step.opened.processor).takes_columns():
        return guarded(step, _column_partials(step, Reading(step, planned, files)))
    return guarded(step, _partials(step, planned.read(files, step.fields, BATCH_EVENTS)))


def _run_merger(step: Step, batches: Batches) -> Batches:
    return guarded(step, _merged(step, batches))


def _partials(step: Step, batches: Batches) -> Batches:
    core = AggregatorOperator(cast("Aggregator", step.opened.processor), EmptyState(), NoShardTime())
    held, first = 0, (0, 0)
    for batch in step.taken(batches):
        if not held and batch.num_rows:
            first = (batch.column("_bucket")[0].as_py(), batch.column("_offset")[0].as_py())
        fed = step.feed(core, step.columns.records(batch), batch, 0)
        step.counters.events_in.add(batch.num_rows)
        step.counters.set_aside.add(len(fed.rejected))
        held += batch.num_rows
        if held >= FLUSH_EVENTS:
            yield from _handed_on(step, core.take_partials(), *first)
            held = 0
    yield from _handed_on(step, core.take_partials(), *first)


def _column_partials(step: Step, reading: Reading) -> Batches:
    combine = cast("Aggregator", step.opened.processor).monoid.combine
    held: dict[Slot, Any] = {}
    first = (0, 0)
    for folded in reading.folded():
        first = first if held else (folded.bucket, folded.offset)
        for slot, value in zip(folded.slots, folded.partials, strict=True):
            held[slot] = combine(held[slot], value) if slot in held else value
        if len(held) >= FLUSH_EVENTS:
            yield from _handed_on(step, held, *first)
            held = {}
    yield from _handed_on(step, held, *first)


def _handed_on(step: Step, taken: Mapping[Slot, Any], bucket: int, offset: int) -> Batches:
    encode = cast("Aggregator", step.opened.processor).monoid.encode
    slots, values = list(taken), list(taken.values())
    for start in range(0, len(slots), BATCH_EVENTS):
        part = slots[start : start + BATCH_EVENTS]
        columns: list[list[Any]] = [
            [key for key, _ in part],
            [window for _, window in part],
            [bucket] * len(part),
            [offset] * len(part),
            [encode(value) for value in values[start : start + BATCH_EVENTS]],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, PARTIALS, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=PARTIALS)


def _merged(step: Step, batches: Batches) -> Batches:
    processor = cast("Aggregator", step.opened.processor)
    outputs: list[Any] = []
    for (key, start), slot in groupby(_rows(batches), key=itemgetter(0)):
        decoded = (processor.monoid.decode(encoded) for _, encoded in slot)
        value = next(decoded)
        for later in decoded:
            value = processor.monoid.combine(value, later)
        outputs.extend(results_of(processor, key, processor.window.window(start), value))
        if len(outputs) >= BATCH_EVENTS:
            yield from step.give(outputs)
            outputs = []
    yield from step.give(outputs)


def _rows(batches: Batches) -> Iterator[tuple[tuple[str, int], bytes]]:
    for batch in batches:
        keys, starts, encoded = (batch.column(name).to_pylist() for name in ("key", "start", "partial"))
        yield from zip(zip(keys, starts, strict=True), encoded, strict=True)
