"""Reducer in order of event time, one key at a time: timers, ordered delivery, joins, and windows that follow events.

No event is late: a key's events are sorted by event time, and the watermark is the time of the last event. After a key's last event the
watermark advances to the newest event of all keys, and timers up to there fire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, cast

from ...processors.declare import Aggregator, AnyCategory, Processor, Stateful
from ...processors.keyed_state import EmptyState
from ...processors.operators import (
    Operator,
    PartialFolder,
    SessionOperator,
    SlidingAggregate,
    StatefulOperator,
    StepResult,
    results_of,
    tie_breaker,
)
from ...processors.time import OrderedTime, Sliding
from ..spark import BATCH_EVENTS, Batches, Transform
from ..warehouse import Days
from .inputs import InputEvent, Inputs
from .step import guarded


def event_time_step(inputs: Inputs, within: Days, until_ms: int) -> Transform:
    """Return the step for Spark, on partitions of complete keys, sorted by key, event time, input, bucket and offset.

    Args:
        inputs: the processor and its inputs.
        within: the days of the outputs, by their event time.
        until_ms: the final watermark of each key (milliseconds since 1970, UTC).
    """
    return partial(_run, inputs, within, until_ms)


def _run(inputs: Inputs, within: Days, until_ms: int, batches: Batches) -> Batches:
    return guarded(inputs.steps[0], _by_key(inputs, within, until_ms, batches))


def _by_key(inputs: Inputs, within: Days, until_ms: int, batches: Batches) -> Batches:
    operator_of_key = _operators(inputs.processor)
    for _, of_key in groupby(inputs.events(batches), key=lambda event: event.key):
        operator = operator_of_key()
        for events in _chunks(inputs, of_key):
            yield from inputs.steps[0].output_rows(outputs_within(inputs, inputs.feed(operator, events), within))
        rest = operator.advance(dict.fromkeys(inputs.names, until_ms), {})
        yield from inputs.steps[0].output_rows(outputs_within(inputs, rest.outputs, within))


def _operators(processor: Processor) -> Callable[[], Operator | SortedSlidingWindows]:
    """Return a function that returns an operator for the next key."""
    if not isinstance(processor, Aggregator):
        return lambda: StatefulOperator(cast("Stateful", processor), EmptyState(), OrderedTime())
    if isinstance(processor.window, Sliding):
        # All keys share one folder, which each key leaves empty: its check of the monoid's laws takes longer than most keys.
        return partial(SortedSlidingWindows, processor, processor.window.size_ms, PartialFolder(processor))
    return lambda: SessionOperator(processor, EmptyState(), OrderedTime())


def _chunks(inputs: Inputs, of_key: Iterator[InputEvent]) -> Iterator[list[InputEvent]]:
    """Yield a key's events in chunks; with ordered delivery, events of the same time in the order of a worker."""
    ordered = isinstance(inputs.processor, Stateful) and inputs.processor.ordered
    chunk: list[InputEvent] = []
    for _, of_time in groupby(of_key, key=lambda event: (event.time, event.input)):
        events = list(of_time)
        chunk += sorted(events, key=_tie) if ordered else events
        if len(chunk) >= BATCH_EVENTS:
            yield chunk
            chunk = []
    yield chunk


def _tie(event: InputEvent) -> bytes:
    return tie_breaker(event.event)


def outputs_within(inputs: Inputs, outputs: Sequence[Any], within: Days) -> list[Any]:
    """Return the outputs whose event time lies in the days."""
    rows = inputs.steps[0].opened.rows
    rows.expect_no_tombstones(outputs)
    start_ms, end_ms = within.start_ms, within.end_ms
    return [output for output, time in zip(outputs, rows.times_of(outputs), strict=True) if start_ms <= time < end_ms]


class SortedSlidingWindows:
    """Sliding windows of one key, whose events are sorted by event time: a window is complete when the next time arrives.

    Args:
        processor: an aggregator with sliding windows.
        size_ms: the length of the windows.
        folding: an empty folder of its partials.
    """

    def __init__(self, processor: Aggregator, size_ms: int, folding: PartialFolder) -> None:
        self._processor = processor
        self._folding = folding
        self._aggregate = SlidingAggregate(processor.monoid, size_ms)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Process the next events; return the windows that end before the last event."""
        spread = self._processor.window.assign(category.event_times_of(events))
        rejected = self._folding.fold(events, category.keys_of(events), spread, stop_at_error=stop_at_error)
        return StepResult(self._results(sorted(self._folding.panes)[:-1]), rejected)

    def advance(self, promised: Mapping[str, int], idle: Mapping[str, int]) -> StepResult:  # noqa: ARG002 - the key has no more events
        """Return the last window."""
        return StepResult(self._results(list(self._folding.panes)), [])

    def _results(self, starts: Iterable[int]) -> list[Any]:
        outputs: list[Any] = []
        for start in starts:
            window = self._processor.window.window(start)
            [(key, partial)] = self._folding.panes.pop(start).items()
            outputs += results_of(self._processor, key, window, self._aggregate.add(window.end - 1, partial))
        return outputs
