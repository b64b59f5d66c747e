"""A driver that feeds recorded events to a shard, as the live worker does: for replay, batch jobs and the dashboard's dry run.

    time slice --drain, if a checkpoint is due--> --pass_time--> --feed, up to an event that stops--> results

The arrival times of the events replace the wall clock: they determine idle inputs and wall-clock timers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..declare import CheckpointInterval
from ..errors import Deferred, Halted
from ..keyed_state import Changes
from ..operators import StepResult
from ..time import FOREVER_MS
from .batches import RejectedEvent
from .idle_inputs import IdleInputs
from .position import Offsets
from .shard import FedBatch, S, Shard
from .source_events import SourceEvents
from .time_slices import TimeSlice
from .uncommitted import Uncommitted

CHANGES_IN_MEMORY = 100_000
"""The number of unsaved changes of a scratch state that stay in memory."""


class Driven(NamedTuple):
    """One result of a shard.

    Args:
        now_ms: the wall-clock time of the result (milliseconds since 1970, UTC).
        outputs: records, in order.
        state_only: whether the outputs belong to earlier events, which only build state.
        events: the events that were fed; None for the passing of time and for checkpoints.
        rejected: the rejected events, up to the first that stops the shard.
        result: the operator's result.
    """

    now_ms: int
    outputs: Sequence[Any]
    state_only: bool
    events: SourceEvents | None = None
    rejected: Sequence[RejectedEvent] = ()
    result: StepResult = StepResult([], [])


@dataclass(frozen=True)
class Scratch:
    """How a driven shard saves its state.

    Args:
        save: saves changes; None for a stateless processor.
        every: when a checkpoint is due.
        in_memory: the number of changes that may stay unsaved.
    """

    save: Callable[[Changes], None] | None
    every: CheckpointInterval
    in_memory: int = CHANGES_IN_MEMORY


class ShardDriver:
    """Drives one shard. One thread.

    Args:
        shard: new; its `state_only_until` are the offsets at which outputs begin to count.
        scratch: how its state is saved.
        watermarks: returns the upstream watermarks of a position.
        begins_ms: the time at which outputs begin to count, if no event says so.
    """

    def __init__(
        self,
        shard: Shard[S],
        scratch: Scratch,
        *,
        watermarks: Callable[[Offsets], Mapping[str, int]] = lambda _: {},
        begins_ms: int | None = None,
    ) -> None:
        self.shard = shard
        self.is_live = False
        """Whether outputs count: an event was fed that does not only build state."""
        self._scratch = scratch
        self._watermarks = watermarks
        self._begins_ms = begins_ms
        self._idle = IdleInputs(shard.processor)
        self._uncommitted: Uncommitted | None = None

    def run(self, slices: Iterable[TimeSlice], ends: Offsets, until_ms: int | None = None) -> Iterator[Driven]:
        """Feed a stream to its end, and yield each result.

        Args:
            slices: the events of all inputs, in the order of their arrival.
            ends: by category, the offset at which the stream ends.
            until_ms: the time at which it ends, if later than the last event (milliseconds since 1970, UTC).
        """
        now_ms = arrived_ms = self._begins_ms or 0
        for now_ms, runs in slices:
            if self._is_due(now_ms):
                yield self.drain(now_ms)
            yield self.pass_time(now_ms)
            for events in runs:
                yield from self._feed_spans(events, now_ms)
                arrived_ms = events.arrived_ms[-1]
        if not self.is_live:
            yield from self._go_live(now_ms)
        self.shard.position.update(ends)
        end_ms = max(now_ms, arrived_ms, now_ms if until_ms is None else until_ms)
        yield self.pass_time(end_ms)
        yield self.drain(end_ms)

    def _feed_spans(self, events: SourceEvents, now_ms: int) -> Iterator[Driven]:
        border = events.at_offset(self.shard.state_only_until.get(events.category.name, 0))
        if border > 0:
            yield self.feed(events.part(0, border), now_ms, state_only=True)
        if border < len(events.offsets):
            if not self.is_live:
                yield from self._go_live(now_ms)
            yield self.feed(events.part(border, len(events.offsets)), now_ms)

    def _go_live(self, now_ms: int) -> Iterator[Driven]:
        """Let outputs count from now on. Results that were due before do not count."""
        if self._begins_ms is not None:
            yield self.pass_time(self._begins_ms)
        yield self.drain(now_ms)
        self.is_live = True

    def feed(self, events: SourceEvents, now_ms: int, *, state_only: bool = False) -> Driven:
        """Feed events of one input."""
        category = events.category.name
        self._idle.heard(category, events.arrived_ms[-1])
        self.shard.position[category] = events.offsets[-1] + 1
        if self._uncommitted is not None:
            self._uncommitted.add(len(events.offsets), 0)
        result, rejected = self._fed(events)
        return Driven(now_ms, result.outputs, state_only or not self.is_live, events, rejected, result)

    def _fed(self, events: SourceEvents) -> FedBatch:
        try:
            return self.shard.feed(events.category, events.accepted)
        except (Deferred, Halted) as error:
            return FedBatch(StepResult([], []), [RejectedEvent(0, str(error), "", stops=True, cause=error)])

    def pass_time(self, now_ms: int) -> Driven:
        """Produce the outputs that are due by the wall clock, upstream watermarks and idle inputs."""
        upstream = self._watermarks(self.shard.position)
        outputs = self.shard.pass_time(upstream, dict.fromkeys(self._idle.idle(now_ms), FOREVER_MS), now_ms)
        return Driven(now_ms, outputs, not self.is_live)

    def drain(self, now_ms: int) -> Driven:
        """Return the outputs of a checkpoint, and save the changes if they are too many for memory."""
        outputs = self.shard.drain()
        self._uncommitted = Uncommitted(now_ms / 1000)
        if len(self.shard.overlay.changes) > self._scratch.in_memory:
            self.save()
        return Driven(now_ms, outputs, not self.is_live)

    def save(self) -> None:
        """Save all changes in the scratch state, if there is one."""
        if self._scratch.save is not None:
            self._scratch.save(self.shard.overlay.snapshot())
            self.shard.overlay.finish({})

    def _is_due(self, now_ms: int) -> bool:
        if self._uncommitted is None:
            self._uncommitted = Uncommitted(now_ms / 1000)
        return self._uncommitted.due(self._scratch.every, now_ms / 1000)
