"""An aggregator in two halves: partials where the events lie, and one merge for each key and window.

    events --partials--> (key, start of window, bucket, first offset, partial) --shuffled, sorted--> merged --> result

The partials of a slot are merged in bus order, so that a monoid need not be commutative. What they are made of must then lie in
bus order too; see `plans.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

import pyarrow as pa

from ..processors.changes import NothingSaved
from ..processors.cores import AggregatorCore
from ..processors.cores.aggregator import results_of
from ..processors.kinds import Aggregator
from .session import BATCH_EVENTS
from .steps import Batches, Step, Transform, guarded

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
    """Return the first half as Spark runs it."""
    return partial(_run_partials, step)


def merger(step: Step) -> Transform:
    """Return the second half as Spark runs it, on partitions that hold whole slots, sorted by slot, bucket and offset."""
    return partial(_run_merger, step)


def _run_partials(step: Step, batches: Batches) -> Batches:
    return guarded(step, _partials(step, batches))


def _run_merger(step: Step, batches: Batches) -> Batches:
    return guarded(step, _merged(step, batches))


def _partials(step: Step, batches: Batches) -> Batches:
    core = AggregatorCore(cast("Aggregator", step.opened.processor), NothingSaved())
    held, first = 0, (0, 0)
    for batch in step.taken(batches):
        if not held and batch.num_rows:
            first = (batch.column("_bucket")[0].as_py(), batch.column("_offset")[0].as_py())
        fed = step.feed(core, step.columns.records(batch), batch, 0)
        step.counters.events_in.add(batch.num_rows)
        step.counters.set_aside.add(len(fed.rejected))
        held += batch.num_rows
        if held >= FLUSH_EVENTS:
            yield from _handed_on(core, step, *first)
            held = 0
    yield from _handed_on(core, step, *first)


def _handed_on(core: AggregatorCore, step: Step, bucket: int, offset: int) -> Batches:
    encode = cast("Aggregator", step.opened.processor).monoid.encode
    taken = core.take_partials()
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
