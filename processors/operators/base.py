"""The protocol of operators, and its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..declare import AnyCategory, Processor, plan_of
from ..errors import UserCodeError
from ..keyed_state import Changes, StateReader
from ..time import ShardTime, Times

NO_EVENT = -1
"""The cause of an output that no event caused: the output of a timer."""


class Rejected(NamedTuple):
    """An event for which its processor raised an exception."""

    at: int
    """Its index in the batch."""
    error: UserCodeError


class StepResult(NamedTuple):
    """The result of a batch, or of the passing of time.

    Args:
        outputs: records, in order.
        rejected: the events whose processing raised. With `stop_at_error`, it contains one event at most, and later events were not processed.
        late: the number of events behind the watermark.
        dropped: the number of late events that are in no window.
        unmatched: the number of events that were dropped because their lookup found no row.
        causes: for each output, the index of the event whose processing returned it, or `NO_EVENT`; None for outputs in columns and
            for windows.
    """

    outputs: Sequence[Any]
    rejected: list[Rejected]
    late: int = 0
    dropped: int = 0
    unmatched: int = 0
    causes: Sequence[int] | None = None


class CheckpointResult(NamedTuple):
    """The outputs and changes that a checkpoint sends and saves."""

    outputs: list[Any]
    changes: Changes


class LowWatermark(Protocol):
    """A low watermark."""

    @property
    def low_ms(self) -> int:
        """No earlier event is expected any more (milliseconds since 1970, UTC)."""
        ...


class Operator(Protocol):
    """The step of one shard. Calls: `feed`, `advance` and `tick` any number of times, then `drain`, and again."""

    @property
    def time(self) -> LowWatermark:
        """The event time of the shard."""
        ...

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Process events of one bucket, in order, and everything that becomes due between them.

        Raises:
            Deferred: nothing was processed; feed the events again.
            Halted: nothing was processed, nor will it be.
        """
        ...

    def advance(self, upstream: Mapping[str, int], idle: Mapping[str, int]) -> StepResult:
        """Return the outputs that become due through upstream watermarks and idle inputs; see `ShardTime.advance`."""
        ...

    def tick(self, now_ms: int) -> StepResult:
        """Return the outputs that are due by the wall clock (milliseconds since 1970, UTC)."""
        ...

    def drain(self) -> CheckpointResult:
        """Return the changes since the last drain; they count as saved state from then on."""
        ...


def time_of(processor: Processor, saved: StateReader) -> ShardTime:
    """Return the event time of a shard, as its processor declares it."""
    return ShardTime(plan_of(processor).input_watermarks, saved)


def processed_count(events: Sequence[Any], rejected: Sequence[Rejected], *, stop_at_error: bool) -> int:
    """Return the number of events that were processed: all, or those before the event at which the operator stopped."""
    return rejected[0].at if stop_at_error and rejected else len(events)


def due_before(time_ms: int, low_ms: int, before_ms: int) -> int:
    """Return the watermark up to which timers fire, and sessions end, before an event is processed.

    What becomes due through an event's own watermark is due before the event, because the event is not part of it. An event behind its own
    watermark may be: a watermark jumps when its bound shrinks, and the event was on time until then.

    Args:
        time_ms: the event time (milliseconds since 1970, UTC).
        low_ms: the low watermark after the event.
        before_ms: the low watermark before the event.
    """
    return low_ms if time_ms >= low_ms else before_ms


def late_among(times: Sequence[int] | Times, lows: Sequence[int] | Times, before_ms: int) -> int:
    """Return the number of late events, from the watermark before the first and after each event."""
    observed = np.asarray(times, np.int64)
    if not len(observed) or observed.min() >= lows[-1]:
        return 0
    before_each = np.concatenate(([before_ms], lows[:-1]))
    return int(np.count_nonzero(observed < before_each))
