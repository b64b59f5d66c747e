"""What goes by event time key by key (timers, ordered delivery, joins, windows that follow events), as a reducer: one key at a time, each timer between the events it lies between.

Nothing is late here: events of a key come sorted by their time, and the watermark is that of the last one. Where the events end, it
goes on to the newest event of all, and timers up to there fire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, cast

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.processor import Processor
from ...processors.declare.stateful import Stateful
from ...processors.keyed_state.changes import EmptyState
from ...processors.operators import Operator, SessionOperator, StatefulOperator
from ...processors.operators.aggregator import PartialFolder
from ...processors.operators.ordered_delivery import tie_of
from ...processors.time.shard_time import InOrder
from ...processors.time.windows import Sliding
from ..spark.batches import Batches, Transform
from ..spark.session import BATCH_EVENTS
from ..warehouse.layout import Days
from .inputs import Arrived, Inputs
from .sliding import SortedSliding
from .step import guarded


def timer(inputs: Inputs, within: Days, until_ms: int) -> Transform:
    """Return the step as Spark runs it, on partitions that hold whole keys, sorted by key, event time, input, bucket and offset.

    Args:
        inputs: whose.
        within: of which days outputs are given, by their own event time.
        until_ms: up to where timers fire when a key has no more events (milliseconds since 1970, UTC).
    """
    return partial(_run, inputs, within, until_ms)


def _run(inputs: Inputs, within: Days, until_ms: int, batches: Batches) -> Batches:
    return guarded(inputs.steps[0], _by_key(inputs, within, until_ms, batches))


def _by_key(inputs: Inputs, within: Days, until_ms: int, batches: Batches) -> Batches:
    core_of_key = _cores(inputs.processor)
    for _, of_key in groupby(inputs.events(batches), key=lambda one: one.key):
        core = core_of_key()
        for events in _in_turn(inputs, of_key):
            yield from inputs.steps[0].give(inside(inputs, inputs.feed(core, events), within))
        rest = core.advance(dict.fromkeys(inputs.names, until_ms), ())
        yield from inputs.steps[0].give(inside(inputs, rest.outputs, within))


def _cores(processor: Processor) -> Callable[[], Operator | SortedSliding]:
    """Return what begins the core of a key."""
    if not isinstance(processor, Aggregator):
        return lambda: StatefulOperator(cast("Stateful", processor), EmptyState(), InOrder())
    if isinstance(processor.window, Sliding):
        # One for all keys, each of which leaves it empty: it tries the monoid's laws, which takes longer than most keys do.
        return partial(SortedSliding, processor, processor.window.size_ms, PartialFolder(processor))
    return lambda: SessionOperator(processor, EmptyState(), InOrder())


def _in_turn(inputs: Inputs, of_key: Iterator[Arrived]) -> Iterator[list[Arrived]]:
    """Give a key's events; where they are to come in order, those of one time as a worker delivers them."""
    ordered = isinstance(inputs.processor, Stateful) and inputs.processor.ordered
    turn: list[Arrived] = []
    for _, of_time in groupby(of_key, key=lambda one: (one.time, one.input)):
        events = list(of_time)
        turn += sorted(events, key=_tie) if ordered else events
        if len(turn) >= BATCH_EVENTS:
            yield turn
            turn = []
    yield turn


def _tie(arrived: Arrived) -> bytes:
    return tie_of(arrived.event)


def inside(inputs: Inputs, outputs: Sequence[Any], within: Days) -> list[Any]:
    """Keep the outputs that belong to the days asked for."""
    start_ms, end_ms = within.start_ms, within.end_ms
    times = _times(inputs.processor, outputs)
    return [output for output, time in zip(outputs, times, strict=True) if start_ms <= time < end_ms]


def _times(processor: Processor, outputs: Iterable[Any]) -> Iterator[int]:
    fields = {category.record: category.event_time for category in processor.outputs()}
    return (getattr(output, fields[type(output)]) for output in outputs)
