"""Processing of an archived bucket in order of arrival, which reproduces the stream's results.

The shard's own engine runs, with the watermark that the events determine, late events included. Its state is a temporary RocksDB, so a
bucket's keys need not fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Any

from ...processors.declare import CheckpointInterval
from ...processors.shard import Driven, IdleInputs, Scratch, ShardDriver, SourceEvents, TimeSlice, new_shard
from ...state.local import RocksShardState
from ..spark import BATCH_EVENTS, Batches, Transform
from ..warehouse import Days
from .event_time_order import outputs_within
from .inputs import InputEvent, Inputs, chunks
from .scratch_state import DRAINED_EVENTS, scratch_state
from .step import guarded

_NO_LIMIT = timedelta(days=36_500)


ReadEvents = Callable[[Batches], Iterator[InputEvent]]
"""Returns the events of a partition, such as `Inputs.events`."""


def arrival_order_step(inputs: Inputs, read: ReadEvents, within: Days) -> Transform:
    """Return the step for Spark, on partitions of complete buckets, sorted by bucket and arrival.

    Args:
        inputs: the processor's inputs.
        read: returns the events of a partition.
        within: the days of the outputs, by their own event time.
    """
    return partial(_run, inputs, read, within)


def _run(inputs: Inputs, read: ReadEvents, within: Days, batches: Batches) -> Batches:
    return guarded(inputs.steps[0], _by_bucket(inputs, read, within, batches))


def _by_bucket(inputs: Inputs, read: ReadEvents, within: Days, batches: Batches) -> Batches:
    for bucket, events in groupby(read(batches), key=lambda event: event.bucket):
        with scratch_state(inputs.processor, bucket) as state:
            for outputs in outputs_of(inputs, bucket, state, events):
                yield from inputs.steps[0].output_rows(outputs_within(inputs, outputs, within))


def outputs_of(
    inputs: Inputs, bucket: int, state: RocksShardState, events: Iterator[InputEvent]
) -> Iterator[list[Any]]:
    """Run a shard over its events; yield its outputs, and leave its final state in `state`.

    Raises:
        BackfillFailed: the processor stops at an event.
    """
    every = CheckpointInterval(events=DRAINED_EVENTS, time=_NO_LIMIT)
    driver = ShardDriver(new_shard(inputs.processor, bucket, state), Scratch(state.save, every, in_memory=0))
    for driven in driver.run(_slices(inputs, bucket, events), {}):
        if driven.events is not None:
            _count(inputs, driven, driven.events)
        yield list(driven.outputs)


def _count(inputs: Inputs, driven: Driven, events: SourceEvents) -> None:
    step = next(step for step in inputs.steps if step.category == events.category.name)
    for event in driven.rejected:
        if event.stops and event.cause is not None:
            raise step.stopped(events.number, events.offsets[event.at], event.cause)
    step.counters.events_in.add(len(events.offsets))
    step.counters.rejected.add(len(driven.rejected))


def _slices(inputs: Inputs, bucket: int, events: Iterator[InputEvent]) -> Iterator[TimeSlice]:
    """Split events into batches, also wherever an input becomes idle."""
    idle_inputs, idle = IdleInputs(inputs.processor), frozenset[str]()
    for chunk in chunks(events, BATCH_EVENTS):
        begin = 0
        for at, event in enumerate(chunk if len(inputs.steps) > 1 else ()):
            before, idle = idle, idle_inputs.idle(event.arrived)
            if at > begin and idle - before:
                yield _slice(inputs, bucket, chunk[begin:at])
                begin = at
            idle_inputs.heard(inputs.names[event.input], event.arrived)
        yield _slice(inputs, bucket, chunk[begin:])


def _slice(inputs: Inputs, bucket: int, events: Sequence[InputEvent]) -> TimeSlice:
    runs = [list(run) for _, run in groupby(events, key=lambda event: event.input)]
    return TimeSlice(
        events[0].arrived,
        [
            SourceEvents(
                inputs.steps[run[0].input].input,
                bucket,
                [event.event for event in run],
                [event.offset for event in run],
                [event.arrived for event in run],
            )
            for run in runs
        ],
    )
