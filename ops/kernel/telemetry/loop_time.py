"""How the loop of a worker spends its time: busy, idle or blocked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...shell import MachineClock, SystemClock


class LoopTime:
    """The time for which a worker's loop has waited since its start. For the rest, it was busy. One thread measures; any thread reads.

    Args:
        clock: measures.
    """

    def __init__(self, clock: MachineClock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.idle_s = 0.0
        """Seconds without events to process."""
        self.blocked_s = 0.0
        """Seconds until a checkpoint ended, because Kafka, a store or a sink accepted less than the loop produced."""

    def now_s(self) -> float:
        """Return the time of the clock, in monotonic seconds."""
        return self._clock.monotonic_s()

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Count the block as idle, except for blocks in it that are blocked."""
        began_s, blocked_s = self._clock.monotonic_s(), self.blocked_s
        try:
            yield
        finally:
            self.idle_s += self._clock.monotonic_s() - began_s - (self.blocked_s - blocked_s)

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Count the block as blocked."""
        began_s = self._clock.monotonic_s()
        try:
            yield
        finally:
            self.blocked_s += self._clock.monotonic_s() - began_s
