"""The seam that the three cores fill, and the values that cross it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..declare.categories import AnyCategory
from ..declare.processor import Processor
from ..keyed_state.changes import Changes, StateReader
from ..time.shard_time import ShardTime

CACHED_KEYS = 100_000
"""How many keys' states a stateful shard keeps decoded between checkpoints."""


class Rejected(NamedTuple):
    """An event that its processor raised for."""

    at: int
    error: Exception


class StepResult(NamedTuple):
    """What one batch gave, or the passing of time.

    Args:
        outputs: records, in order.
        rejected: events that raised, by their index in the batch. Where the core was to stop at the first, that one
            is the last event it took.
        late: how many events came after their watermark.
        dropped: how many of them came too late for every window, and are in none.
        unmatched: how many events were left out because nothing was found outside that belongs to them.
    """

    outputs: list[Any]
    rejected: list[Rejected]
    late: int = 0
    dropped: int = 0
    unmatched: int = 0


class CheckpointResult(NamedTuple):
    """What a checkpoint has to send and save beside what was fed."""

    outputs: list[Any]
    changes: Changes


class LowWatermark(Protocol):
    """A low watermark."""

    @property
    def low_ms(self) -> int:
        """Before which no event is expected any more (milliseconds since 1970, UTC)."""
        ...


class Operator(Protocol):
    """One shard's step. Calls: `feed` and `tick` any number of times, then `drain`, and again."""

    @property
    def time(self) -> LowWatermark:
        """How far its event time is."""
        ...

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Process the events of one bucket, in order, and what becomes due on the way.

        Raises:
            Deferred: nothing was processed; give the events again.
            Halted: nothing was processed, nor will it be.
        """
        ...

    def advance(self, promised: Mapping[str, int], idle: Collection[str]) -> StepResult:
        """Do what becomes due by what is known from elsewhere of the inputs; see `ShardTime.advance`."""
        ...

    def tick(self, now_ms: int) -> StepResult:
        """Do what is due at a time of day (milliseconds since 1970, UTC)."""
        ...

    def drain(self) -> CheckpointResult:
        """Hand over what changed since the last drain; it is part of the saved state from then on."""
        ...


def time_of(processor: Processor, saved: StateReader) -> ShardTime:
    """Return what follows the event time of a shard as its processor declares."""
    return ShardTime(processor.watermark, [category.name for category in processor.inputs()], saved)


def taken(events: Sequence[Any], rejected: Sequence[Rejected], *, stop_at_error: bool) -> int:
    """Return how many events of a batch were processed: all, or those before the one at which the core stopped."""
    return rejected[0].at if stop_at_error and rejected else len(events)


def late_among(times: Sequence[int], lows: Sequence[int], before_ms: int) -> int:
    """Return how many events came after the watermark, given what it was before the first and after each of them."""
    if not times or min(times) >= lows[-1]:
        return 0
    return sum(time < low for time, low in zip(times, (before_ms, *lows), strict=False))
