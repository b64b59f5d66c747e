"""The operator of a stateless processor."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from typing import Any

from ..declare.categories import AnyCategory
from ..declare.processor import ErrorPolicy
from ..declare.routes import Routes
from ..declare.stateless import Stateless
from ..errors import USER_CODE_ERRORS
from ..keyed_state.changes import StateReader
from ..time.shard_time import ShardTime
from .base import CheckpointResult, Rejected, StepResult, late_among, time_of

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
        self._processor = processor
        # Only dead letters need the event of an invalid output; other invalid outputs stop the worker when it sends them.
        self._routes = Routes(type(processor)) if processor.on_error is ErrorPolicy.DEAD_LETTER else None
        self.time = time or time_of(processor, saved)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:  # noqa: ARG002 - the error action of each event decides
        """Process the events of one bucket, in order."""
        process = self._processor.for_batch(category, events)
        outputs: list[Any] = []
        rejected: list[Rejected] = []
        processed, unmatched = len(events), 0
        extend = outputs.extend
        causes: list[int] | None = [] if self._processor.trace_context else None
        before = 0
        for at, event in enumerate(events):
            try:
                produced = process(event)
                if produced is _NOTHING:
                    continue
                extend(produced)
                if self._routes is not None and len(outputs) > before:
                    self._routes.expect(outputs[before:])
                if causes is not None:
                    causes.extend(repeat(at, len(outputs) - before))
                before = len(outputs)
            except USER_CODE_ERRORS as error:
                del outputs[before:]
                action = self._processor.error_action(error)
                if action.dropped:
                    unmatched += 1
                    continue
                rejected.append(Rejected(at, error))
                if action.stops:
                    processed = at
                    break
        before_ms = self.time.low_ms
        times = category.time_array_of(events)[:processed]
        late = late_among(times, self.time.observe(category.name, times), before_ms)
        return StepResult(outputs, rejected, late, unmatched=unmatched, causes=causes)

    def advance(self, upstream: Mapping[str, int], idle: Collection[str]) -> StepResult:
        """Advance event time; no output depends on it."""
        self.time.advance(upstream, idle)
        return StepResult([], [])

    def tick(self, now_ms: int) -> StepResult:  # noqa: ARG002 - the protocol
        """Return nothing: there are no timers."""
        return StepResult([], [])

    def drain(self) -> CheckpointResult:
        """Return nothing: there is no state."""
        return CheckpointResult([], {})
