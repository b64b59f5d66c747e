"""Time as the worker sees it: real, or steered by a test."""

from __future__ import annotations

import time
from typing import Protocol

from ..transport.elapsed import elapsed_s


class Clock(Protocol):
    """Tells the time."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back, from an arbitrary start; they count on while the machine sleeps."""
        ...

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        ...


class SystemClock:
    """The machine's time."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back, from an arbitrary start."""
        return elapsed_s()

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


class SteeredClock:
    """Time that moves only when it is told to.

    Args:
        start_ms: where it begins, in milliseconds since 1970, UTC.
    """

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_ms += round(seconds * 1000)

    def monotonic_s(self) -> float:
        """Return seconds that never go back, from an arbitrary start."""
        return self._now_ms / 1000

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return self._now_ms
