"""The value of a sliding window, with three combinations per event, regardless of the number of events in the window.

Event time is cut into blocks of the window's size, so that a window lies in two blocks at most:

    previous block   the partials from each of its times to its end, combined backwards once the block is over
    current block    the partials from its start to the newest time, combined one by one
    the window       one partial of the previous block, combined with the partial of the current block

The block boundaries depend on event time alone. Equal events are therefore always combined in the same groups, and floats round the same
way, wherever a run begins.

Source: van Herk, "A fast algorithm for local minimum and maximum filters on rectangular and octagonal kernels", Pattern Recognition
Letters 13, 1992; for any monoid, as two stacks, Tangwongsan et al., "In-Order Sliding-Window Aggregation in Worst-Case Constant Time",
VLDB Journal 30, 2021.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..monoids import Monoid


class TimedPartial(NamedTuple):
    """A partial, and the event time of its first event."""

    time: int
    partial: Any


class SlidingAggregate:
    """The value of the window that ends with the newest event.

    Args:
        monoid: combines the partials.
        size_ms: the size of the window, in milliseconds.
    """

    def __init__(self, monoid: Monoid[Any], size_ms: int) -> None:
        self._combine = monoid.combine
        self._size_ms = size_ms
        # The previous block, latest first: each partial includes all later ones of the block.
        self._previous: list[TimedPartial] = []
        self._block = 0
        self._current: list[TimedPartial] = []
        self._current_total: Any = None

    def __len__(self) -> int:
        """Return the number of partials."""
        return len(self._previous) + len(self._current)

    def add(self, time: int, partial: Any) -> Any:
        """Add the partial of a time later than all earlier ones; return the value of the window that ends there."""
        if not self._current or time // self._size_ms != self._block:
            self._begin_block(time // self._size_ms)
        self._current_total = self._combine(self._current_total, partial) if self._current else partial
        self._current.append(TimedPartial(time, partial))
        while self._previous and self._previous[-1].time <= time - self._size_ms:
            self._previous.pop()
        return self._combine(self._previous[-1].partial, self._current_total) if self._previous else self._current_total

    def _begin_block(self, block: int) -> None:
        """Combine the finished block backwards; later windows do not include the block before it."""
        self._previous.clear()
        for time, partial in reversed(self._current):
            later = self._combine(partial, self._previous[-1].partial) if self._previous else partial
            self._previous.append(TimedPartial(time, later))
        self._block, self._current = block, []
