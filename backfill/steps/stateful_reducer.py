"""Stateful processor as a reducer: the events of a part of the keys, bucket by bucket, in the order of the bus.

Its state is a temporary RocksDB, so that the keys of a part need not fit in memory. Events before the range warm up the state without output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa

from ...processors import runs_of
from ...processors.declare import Stateful
from ...processors.operators import StatefulOperator
from ...processors.time import UntrackedTime
from ..errors import BackfillFailed
from ..sources import PlannedFiles
from ..spark import BATCH_EVENTS, Batches, Transform
from ..warehouse import Days
from .event_blocks import EventBlocks
from .scratch_state import DRAINED_EVENTS, scratch_state
from .step import BatchStep, guarded, places_in


def packing_step(step: BatchStep, blocks: EventBlocks) -> Transform:
    """Return the step for Spark before the shuffle, on events."""
    return partial(_run_packing, step, blocks)


def file_packing_step(step: BatchStep, blocks: EventBlocks, planned: PlannedFiles) -> Transform:
    """Return the step for Spark before the shuffle, on files that a task reads directly."""
    return partial(_run_packing_files, step, blocks, planned)


def reducer_step(step: BatchStep, blocks: EventBlocks, within: Days) -> Transform:
    """Return the step for Spark after the shuffle, on the sorted blocks of a part of the keys."""
    return partial(_run, step, blocks, within)


def _run_packing(step: BatchStep, blocks: EventBlocks, batches: Batches) -> Batches:
    return guarded(step, blocks.packed(batches))


def _run_packing_files(step: BatchStep, blocks: EventBlocks, planned: PlannedFiles, tasks: Batches) -> Batches:
    files = planned.files_of(tasks)
    return guarded(step, blocks.packed(planned.read(files, blocks.schema.names, BATCH_EVENTS)))


def _run(step: BatchStep, blocks: EventBlocks, within: Days, rows: Batches) -> Batches:
    return guarded(step, _reduced(step, within, blocks.unpacked(rows)))


def _reduced(step: BatchStep, within: Days, batches: Batches) -> Batches:
    processor, unsaved = cast("Stateful", step.opened.processor), 0
    with scratch_state(processor, 0) as state:
        # The events of some keys determine no watermark.
        operator = StatefulOperator(processor, state, UntrackedTime())
        for batch in step.accepted(batches):
            events = step.columns.records(batch)
            expect_keys(step, batch, events)
            for inside, start, end in _runs(step.input.event_times_of(events), within):
                result = step.feed(operator, events[start:end], places_in(batch, start))
                if inside:
                    step.counters.events_in.add(end - start)
                    step.counters.rejected.add(len(result.rejected))
                    yield from step.output_rows(result.outputs)
            unsaved += len(events)
            if unsaved >= DRAINED_EVENTS:
                state.save(operator.drain().changes)
                unsaved = 0


def expect_keys(step: BatchStep, batch: pa.RecordBatch, events: Sequence[Any]) -> None:
    """Raise BackfillFailed unless the archived keys, by which events were grouped, are the declared keys."""
    if batch.column("_key").to_pylist() != step.input.keys_of(events):
        raise BackfillFailed(
            f"Category {step.category} was archived with another key than it declares now, so that events of one key are not "
            f"together and {step.processor} cannot process them. Nothing was published. Declare the former key, or archive the "
            "category again under another name."
        )


def _runs(times: Sequence[int], within: Days) -> Iterator[tuple[bool, int, int]]:
    """Split a batch into runs of events inside or outside of the range: (inside, start, end)."""
    at = np.array(times, np.int64)
    inside = (within.start_ms <= at) & (at < within.end_ms)
    for start, end in runs_of(inside):
        yield bool(inside[start]), start, end
