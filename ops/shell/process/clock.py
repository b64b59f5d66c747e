"""The clock of a worker: the system's, or one that a test controls.

The wall clock of a machine may jump: a virtual machine resumes, or its clock is set after the start. Schedules fire by it, and old data is
deleted by it, which no later correction takes back. So a jump counts only after it has lasted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from ....processors import human_duration
from ....transport import elapsed_s

_LOG = logging.getLogger("penstock.clock")

JUMP_MS = 60_000
"""A wall clock that moves this much further or less than the monotonic clock has jumped. Smaller steps are followed at once."""
CONFIRMED_AFTER_S = 60.0
"""How long a jump must last until it is followed."""


class MachineClock(Protocol):
    """A source of time."""

    def monotonic_s(self) -> float:
        """Return monotonic seconds from an arbitrary start, including the time while the machine is suspended."""
        ...

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        ...


class WallClock:
    """A wall clock whose jumps count only after they have lasted. Until then, it continues by the monotonic clock.

    Args:
        read_ms: reads the machine's wall clock (milliseconds since 1970, UTC).
        monotonic_s: reads monotonic seconds, including the time while the machine is suspended.
    """

    def __init__(self, read_ms: Callable[[], int], monotonic_s: Callable[[], float]) -> None:
        self._read_ms = read_ms
        self._monotonic_s = monotonic_s
        self._ahead_ms: int | None = None
        self._jumped: tuple[int, float] | None = None

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        now_s = self._monotonic_s()
        elapsed_ms = int(now_s * 1000)
        ahead_ms = self._read_ms() - elapsed_ms
        if self._ahead_ms is None or abs(ahead_ms - self._ahead_ms) < JUMP_MS or self._has_lasted(ahead_ms, now_s):
            self._ahead_ms, self._jumped = ahead_ms, None
        return elapsed_ms + self._ahead_ms

    def _has_lasted(self, ahead_ms: int, now_s: float) -> bool:
        """Return whether the machine's clock has been this far ahead for long enough."""
        by_ms, since_s = self._jumped or (ahead_ms + JUMP_MS, now_s)
        if abs(ahead_ms - by_ms) >= JUMP_MS:
            self._jumped = ahead_ms, now_s
            self._report(ahead_ms - (self._ahead_ms or 0))
            return False
        return now_s - since_s >= CONFIRMED_AFTER_S

    def _report(self, by_ms: int) -> None:
        _LOG.warning(
            "The clock of this machine has jumped %s by %s. Schedules, early results and expiries go on without the jump, and follow it if it lasts "
            "for %s. Check the machine's time synchronization.",
            "forward" if by_ms > 0 else "back",
            human_duration(abs(by_ms) / 1000),
            human_duration(CONFIRMED_AFTER_S),
        )


_WALL_CLOCK = WallClock(lambda: time.time_ns() // 1_000_000, elapsed_s)
"""The wall clock of this process."""


class SystemClock:
    """The clock of the system."""

    def monotonic_s(self) -> float:
        """Return monotonic seconds from an arbitrary start."""
        return elapsed_s()

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC; see `WallClock`."""
        return _WALL_CLOCK.now_ms()


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
