"""The value of a stretch of time that moves on with the events, at three merges for each of them, however many lie in it.

Time is cut into blocks as long as the stretch, which then lies in two of them at most:

    the block before   from each of its times to its end, merged    all at once, backwards, when the block is over
    this block         from its beginning to the newest time, merged           one by one
    the stretch        one of the former, and the latter, merged

Where blocks begin follows from time alone. So the same partials are merged in the same groups wherever one begins to follow them, and
even floats round alike.

Source: van Herk, "A fast algorithm for local minimum and maximum filters on rectangular and octagonal kernels", Pattern Recognition
Letters 13, 1992; for any monoid, as two stacks, Tangwongsan et al., "In-Order Sliding-Window Aggregation in Worst-Case Constant Time",
VLDB Journal 30, 2021.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..monoids import Monoid


class TimedPartial(NamedTuple):
    """A partial, and the event time of what it is made of; or the time from which on it is."""

    time: int
    partial: Any


class SlidingAggregate:
    """What lies in the last stretch of time up to the newest event.

    Args:
        monoid: how partials combine.
        size_ms: how long the stretch is.
    """

    def __init__(self, monoid: Monoid[Any], size_ms: int) -> None:
        self._combine = monoid.combine
        self._size_ms = size_ms
        self._before: list[
            TimedPartial
        ] = []  # of the block before, each with all that follows in it; the earliest is the last
        self._block = 0
        self._here: list[TimedPartial] = []
        self._sum: Any = None  # of this block

    def __len__(self) -> int:
        """Return how many partials are held."""
        return len(self._before) + len(self._here)

    def add(self, time: int, partial: Any) -> Any:
        """Move on to a time, later than all before it, with its partial; return the value of the stretch up to there."""
        if not self._here or time // self._size_ms != self._block:
            self._begin_block(time // self._size_ms)
        self._sum = self._combine(self._sum, partial) if self._here else partial
        self._here.append(TimedPartial(time, partial))
        while self._before and self._before[-1].time <= time - self._size_ms:
            self._before.pop()
        return self._combine(self._before[-1].partial, self._sum) if self._before else self._sum

    def _begin_block(self, block: int) -> None:
        """Merge the block that is over, from its end; no stretch reaches back to the one before that any more."""
        self._before.clear()
        for time, partial in reversed(self._here):
            later = self._combine(partial, self._before[-1].partial) if self._before else partial
            self._before.append(TimedPartial(time, later))
        self._block, self._here = block, []
