"""The clock of a worker: the system's, or one that a test controls."""

from __future__ import annotations

import time
from typing import Protocol

from ..transport.elapsed import elapsed_s


class Clock(Protocol):
    """A source of time."""

    def monotonic_s(self) -> float:
        """Return monotonic seconds from an arbitrary start, including the time while the machine is suspended."""
        ...

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        ...


class SystemClock:
    """The clock of the system."""

    def monotonic_s(self) -> float:
        """Return monotonic seconds from an arbitrary start."""
        return elapsed_s()

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


class SteeredClock:
    """A clock that advances only on request.

    Args:
        start_ms: its start, in milliseconds since 1970, UTC.
    """

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._now_ms += round(seconds * 1000)

    def monotonic_s(self) -> float:
        """Return monotonic seconds from an arbitrary start."""
        return self._now_ms / 1000

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return self._now_ms
