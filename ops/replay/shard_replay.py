"""One shard of a replay: the processor's own core over a scratch state, in the time that the events tell.

    beats --time passes, events are fed--> outputs; what changed --a checkpoint is due--> scratch state

Nothing is written but the scratch state. What was before the span is fed for the state alone. Checkpoints are due by when events had
arrived, so updates of windows come where those of a worker came that kept up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from ...processors.declare.processor import ErrorPolicy, Processor
from ...processors.errors import Deferred, Halted
from ...processors.keyed_state.changes import EmptyState
from ...processors.operators import OrderedDeliveryOperator, StatefulOperator, StepResult, merge_of, open_operator
from ...processors.time.timers import Timer
from ...processors.time.windows import MILLISECOND
from ...state.local.overlay import Overlay
from ...state.protocols import Offsets, ShardState
from .counts import ReplayCounts
from .errors import ReplayStopped
from .event_source import Span
from .idle_inputs import ReplayIdleInputs
from .past_watermarks import PastWatermarks
from .source_events import SourceEvents
from .time_slices import TimeSlice, time_slices

_LOG = logging.getLogger("penstock.replay")
CHANGES_IN_MEMORY = 100_000
"""How many changes of a scratch state stay in memory."""
LOGGED = 20
"""How many of the events that are set aside are told one by one."""


class ReplayedBatch(NamedTuple):
    """What a shard gave.

    Args:
        number: the shard's bucket number.
        at_ms: when, as the replay's clock has it (milliseconds since 1970, UTC).
        outputs: records, in order.
        muted: whether it lies before the span.
    """

    number: int
    at_ms: int
    outputs: list[Any]
    state_only: bool


class ShardReplayer:
    """Plays one shard. One thread.

    Args:
        processor: opened.
        number: the shard's bucket number.
        state: its scratch state; None where it keeps none.
        borders: by category, the offset at which the span begins.
        span: the span.
        counts: counts what is done.
        promises: what was promised about the inputs.
    """

    def __init__(
        self,
        processor: Processor,
        number: int,
        state: ShardState | None,
        *,
        borders: Offsets,
        span: Span,
        counts: ReplayCounts,
        promises: PastWatermarks,
    ) -> None:
        self._processor = processor
        self._number = number
        self._state = state
        self._borders = borders
        self._span = span
        self._counts = counts
        self._overlay = Overlay(state or EmptyState(), merge_of(processor))
        self._core = open_operator(processor, self._overlay)
        self._silence = ReplayIdleInputs(processor)
        self._promises = promises
        self._position: Offsets = dict.fromkeys(borders, 0)
        self.is_warm = False
        """Whether the span has begun."""
        self._undrained = 0
        self._drained_ms: int | None = None

    def play(self, stream: Iterable[SourceEvents], ends: Offsets) -> Iterator[ReplayedBatch]:
        """Feed a stream to its end; give what comes of it, as it comes.

        Args:
            stream: the events of the shard's buckets, as they met.
            ends: by category, the offset at which the stream ends.

        Raises:
            ReplayStopped: at an event, as a worker would.
        """
        now_ms = self._span.since_ms or 0
        for beat in time_slices(stream):
            now_ms = beat.now_ms
            yield from self._play(beat)
        if not self.is_warm:
            yield from self._begin(now_ms)
        self._position = dict(ends)
        now_ms = max(now_ms, self._span.until_ms or now_ms)
        yield from self._pass_time(now_ms)
        yield from self._drain(now_ms)

    def timers_of(self, key: str) -> list[Timer]:
        """Return the timers that a key has set."""
        return self._core.timers_of(key) if isinstance(self._core, (StatefulOperator, OrderedDeliveryOperator)) else []

    def _play(self, beat: TimeSlice) -> Iterator[ReplayedBatch]:
        if self._is_due(beat.now_ms):
            yield from self._drain(beat.now_ms)
        yield from self._pass_time(beat.now_ms)
        for run in beat.runs:
            border = run.at_offset(self._borders[run.category.name])
            for part in (run.part(0, border), run.part(border, len(run.offsets))):
                if part.offsets:
                    yield from self._feed(
                        part, beat.now_ms, state_only=part.offsets[0] < self._borders[run.category.name]
                    )

    def _feed(self, seen: SourceEvents, now_ms: int, *, state_only: bool) -> Iterator[ReplayedBatch]:
        if not (state_only or self.is_warm):
            yield from self._begin(now_ms)
        self._silence.heard(seen.category.name, seen.arrived_ms[-1])
        self._position[seen.category.name] = seen.offsets[-1] + 1
        self._count(seen, state_only=state_only)
        if seen.refusal is not None:
            self._refuse(seen, 0, seen.refusal.reason, stops=seen.refusal.stops, state_only=state_only)
            return
        fed = self._fed(seen)
        self._counts.late += fed.late
        self._counts.dropped += fed.dropped
        self._counts.unmatched += fed.unmatched
        yield ReplayedBatch(self._number, now_ms, fed.outputs, state_only or not self.is_warm)
        for at, error in fed.rejected:
            fate = self._processor.fate_of(error)
            self._counts.exceptions += not state_only
            self._refuse(seen, at, fate.reason, stops=fate.stops, state_only=state_only, cause=error)

    def _fed(self, seen: SourceEvents) -> StepResult:
        try:
            return self._core.feed(
                seen.category, seen.events, stop_at_error=self._processor.on_error is ErrorPolicy.STOP
            )
        except (Deferred, Halted) as error:
            raise ReplayStopped(
                f"{seen.bucket} at offset {seen.offsets[0]:,}: {error} The replay ends there."
            ) from error

    def _count(self, seen: SourceEvents, *, state_only: bool) -> None:
        self._undrained += len(seen.offsets)
        if state_only:
            self._counts.warmed_up += len(seen.offsets)
        else:
            self._counts.events += len(seen.offsets)

    def _refuse(
        self, seen: SourceEvents, at: int, reason: str, *, stops: bool, state_only: bool, cause: Exception | None = None
    ) -> None:
        """Set an event aside, or stop there."""
        place = f"{seen.bucket} at offset {seen.offsets[at]:,}"
        if stops:
            raise ReplayStopped(
                f"{place}: {reason}. The replay ends there, as a worker would stop. To look at the event, its state and its timers, give "
                "--debug; to see what comes after it, begin behind it (`--from OFFSET --bucket NUMBER`)."
            ) from cause
        if state_only:
            return
        self._counts.dead_letters += 1
        if self._counts.dead_letters <= LOGGED:
            _LOG.warning("%s would go to the dead letters: %s", place, reason)

    def _begin(self, now_ms: int) -> Iterator[ReplayedBatch]:
        """End the warming up: what is due by where the span begins was due before it."""
        if self._span.since_ms is not None:
            yield from self._pass_time(self._span.since_ms)
        yield from self._drain(now_ms)
        self.is_warm = True

    def _pass_time(self, now_ms: int) -> Iterator[ReplayedBatch]:
        """Do what is due by the time of day, and by which inputs are silent."""
        idle, promised = self._silence.idle(now_ms), self._promises.known(self._number, self._position)
        fed = [self._core.advance(promised, idle)] if idle or promised else []
        outputs = list(chain.from_iterable(one.outputs for one in (*fed, self._core.tick(now_ms))))
        if outputs:
            yield ReplayedBatch(self._number, now_ms, outputs, not self.is_warm)

    def _is_due(self, now_ms: int) -> bool:
        """Tell whether a checkpoint is due."""
        every = self._processor.checkpoint
        if self._drained_ms is None:
            self._drained_ms = now_ms
        return self._undrained > 0 and (
            self._undrained >= every.events or now_ms - self._drained_ms >= every.time // MILLISECOND
        )

    def _drain(self, now_ms: int) -> Iterator[ReplayedBatch]:
        """Take out of the core what a checkpoint sends and saves."""
        drained = self._core.drain()
        self._overlay.add(drained.changes)
        self._undrained, self._drained_ms = 0, now_ms
        if self._state is not None and len(self._overlay.changes) > CHANGES_IN_MEMORY:
            self._state.save(self._overlay.seal())
            self._overlay.settle({})
        if drained.outputs:
            yield ReplayedBatch(self._number, now_ms, drained.outputs, not self.is_warm)
