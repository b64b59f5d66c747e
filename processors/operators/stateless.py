"""The operator of a stateless processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from ..declare import AnyCategory, ColumnEvents, ErrorPolicy, Routes, Stateless, independent, plan_of
from ..errors import USER_CODE_ERRORS
from ..keyed_state import StateReader
from ..time import ShardTime, Times
from .base import CheckpointResult, Rejected, StepResult, late_among, time_of
from .column_steps import ProcessedColumns

_NOTHING = ()
"""What a filter returns for most events: Python has one empty tuple."""


class StatelessOperator:
    """Maps events to outputs.

    Args:
        processor: the processor.
        saved: the shard's saved event time.
        time: the shard's event time. Default: as the processor declares.
    """

    def __init__(self, processor: Stateless, saved: StateReader, time: ShardTime | None = None) -> None:
        plan = plan_of(processor)
        self._processor = processor
        # Only dead letters need the event of an invalid output; other invalid outputs stop the worker when it sends them.
        self._routes = (
            Routes(type(processor), processor.output_sizes) if processor.on_error is not ErrorPolicy.STOP else None
        )
        self._retries = plan.retry_chain is not None
        self._outputs_can_change = plan.outputs_can_change
        self._columns = ProcessedColumns(processor) if plan.stream_columns is not None else None
        self.time = time or time_of(processor, saved)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:  # noqa: ARG002 - the error action of each event decides
        """Process the events of one bucket, in order."""
        if self._columns is not None and isinstance(events, ColumnEvents):
            at_once = self._columns.of(category, events)
            if at_once is not None:
                return StepResult(at_once, [], self._observed(category, events.time_array, []))
        process = self._processor.for_batch(category, events)
        outputs: list[Any] = []
        rejected: list[Rejected] = []
        processed, unmatched = len(events), 0
        extend, can_change = outputs.extend, self._outputs_can_change
        causes: list[int] = []
        before = 0
        for at, event in enumerate(events):
            try:
                produced = process(event)
                if produced is _NOTHING:
                    continue
                extend(independent(produced) if can_change else produced)
                if self._routes is not None and len(outputs) > before:
                    self._routes.expect(outputs[before:])
                causes.extend(repeat(at, len(outputs) - before))
                before = len(outputs)
            except USER_CODE_ERRORS as error:
                del outputs[before:]
                action = plan_of(self._processor).error_action(error)
                if action.dropped:
                    unmatched += 1
                    continue
                rejected.append(Rejected(at, error))
                if action.stops:
                    processed = at
                    break
        late = self._observed(category, category.time_array_of(events)[:processed], rejected)
        return StepResult(outputs, rejected, late, unmatched=unmatched, causes=causes)

    def _observed(self, category: AnyCategory, times: Times, rejected: Sequence[Rejected]) -> int:
        """Advance event time by processed events; return the number of late ones."""
        before_ms = self.time.low_ms
        if self._retries:
            self.time.release(category.name, times.tolist())
            self._hold(category, rejected, times)
        return late_among(times, self.time.observe(category.name, times), before_ms)

    def _hold(self, category: AnyCategory, rejected: Sequence[Rejected], times: Times) -> None:
        """Hold the watermark for the events that wait for their next attempt."""
        for at, error in rejected:
            if at < len(times) and plan_of(self._processor).retried_in(category, error) is not None:
                self.time.hold(int(times[at]))

    def advance(self, upstream: Mapping[str, int], idle: Mapping[str, int]) -> StepResult:
        """Advance event time; no output depends on it."""
        self.time.advance(upstream, idle)
        return StepResult([], [])

    def tick(self, now_ms: int) -> StepResult:  # noqa: ARG002 - the protocol
        """Return nothing: there are no timers."""
        return StepResult([], [])

    def drain(self) -> CheckpointResult:
        """Return nothing: there is no state."""
        return CheckpointResult([], {})
