"""The events that a shard waits for on its own retry categories. They hold its low watermark back."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

from .watermarks import FOREVER_MS, NEVER_MS


class InFlight:
    """The event times of the events in flight.

    A new owner of a bucket does not know the events that its predecessor sent: until all of them are read, the watermark stays.
    """

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._times: list[int] = []
        self._unread: dict[str, tuple[int, int]] = {}

    @property
    def earliest_ms(self) -> int:
        """The event time that the low watermark must not pass; `FOREVER_MS` if nothing is in flight."""
        if self._unread:
            return NEVER_MS
        while self._times and not self._counts[self._times[0]]:
            del self._counts[heapq.heappop(self._times)]
        return self._times[0] if self._times else FOREVER_MS

    @property
    def events(self) -> int:
        """The number of events in flight; those of a previous owner by their offsets."""
        return self._counts.total() + sum(end - position for position, end in self._unread.values())

    def add(self, time_ms: int) -> None:
        """Add an event that was sent."""
        if time_ms not in self._counts:
            heapq.heappush(self._times, time_ms)
        self._counts[time_ms] += 1

    def remove(self, times_ms: Iterable[int]) -> None:
        """Remove events that have returned. Times of a previous owner's events are ignored."""
        for time_ms in times_ms:
            if self._counts.get(time_ms):
                self._counts[time_ms] -= 1

    def expect(self, category: str, position: int, end: int) -> None:
        """Hold the watermark until the events of a previous owner are read.

        Args:
            category: the category.
            position: the next unread offset.
            end: the offset after the last event.
        """
        if position < end:
            self._unread[category] = position, end

    def reach(self, category: str, position: int) -> None:
        """Record the next unread offset of a category."""
        if category in self._unread:
            end = self._unread.pop(category)[1]
            self.expect(category, position, end)
