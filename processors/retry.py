"""Retries, backoff, outages, and log lines about them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0
LOG_EVERY_S = 30.0
"""The least time between two log lines about the same outage."""

FIRST_WAIT_PAUSE_S = 10.0
LONGEST_WAIT_PAUSE_S = 300.0
"""The pauses between two log lines about one wait: the first, and the bound of all."""

T = TypeVar("T")


def backoff(first_s: float = FIRST_PAUSE_S, longest_s: float = LONGEST_PAUSE_S) -> Iterator[float]:
    """Yield the seconds to pause before each further attempt, without end. They are random, below a bound that doubles up to `longest_s`."""
    bound_s = min(first_s, longest_s)
    while True:
        # Full jitter: workers that lose a store at the same moment do not all return at the same moment.
        yield random.uniform(0, bound_s)  # noqa: S311 - no secret
        bound_s = min(2 * bound_s, longest_s)


@dataclass(frozen=True)
class CallRetry:
    """Repeats a call until it succeeds or a time limit ends.

    Args:
        limit_s: seconds from the first failure on.
        first_s: the bound of the first pause.
        longest_s: the bound of later pauses.
        is_stopping: ends the retries early.
        clock: monotonic seconds.
        pause: sleeps for some seconds.
    """

    limit_s: float
    first_s: float = FIRST_PAUSE_S
    longest_s: float = LONGEST_PAUSE_S
    is_stopping: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    @property
    def summary(self) -> str:
        """A sentence for the error at the limit."""
        return f"It was retried for up to {self.limit_s:.0f} s."

    def call(self, attempt: Callable[[], T], retryable: type[Exception], on_outage: Callable[[Exception], None]) -> T:
        """Return the result of the first successful attempt.

        Args:
            attempt: the call. It must be repeatable after an unknown outcome.
            retryable: the error to retry after. The last one is raised at the limit.
            on_outage: gets the first error.
        """
        try:
            return attempt()
        except retryable as error:
            on_outage(error)
            last = error
        deadline_s = self.clock() + self.limit_s
        pauses = backoff(self.first_s, self.longest_s)
        while self.clock() < deadline_s and not self.is_stopping():
            self.pause(min(next(pauses), max(deadline_s - self.clock(), 0)))
            try:
                return attempt()
            except retryable as error:
                last = error
        raise last


class RetrySchedule:
    """The time of the next attempt, for a thread that does other work meanwhile.

    Args:
        first_s: the bound of the first pause.
        longest_s: the bound of later pauses.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._bounds_s = first_s, longest_s
        self.record_success()

    def record_success(self) -> None:
        """Allow the next attempt at once."""
        self._pauses = backoff(*self._bounds_s)
        self.due_s = 0.0
        """The time of the next attempt, by the monotonic clock."""

    def record_failure(self) -> None:
        """Postpone the next attempt."""
        self.due_s = time.monotonic() + next(self._pauses)


class LogRateLimiter:
    """Limits a repeated log line: due at first, then once in an interval. Thread-safe.

    Args:
        every_s: the interval.
        clock: monotonic seconds.
    """

    def __init__(self, every_s: float = LOG_EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._logged_s: float | None = None
        self._lock = threading.Lock()

    def is_due(self) -> bool:
        """Return whether to log the line now. The caller then logs it."""
        with self._lock:
            now_s = self._clock()
            if self._logged_s is not None and now_s - self._logged_s < self._every_s:
                return False
            self._logged_s = now_s
            return True


class OutageLog:
    """The duration of an outage, and when to log it: at its start, then once in an interval, and at its end. For one thread.

    Args:
        every_s: the interval, also between two outages.
        clock: monotonic seconds.
    """

    def __init__(self, every_s: float = LOG_EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limiter = LogRateLimiter(every_s, clock)
        self._since_s: float | None = None

    def begin(self) -> None:
        """Record an outage, unless one is in progress."""
        if self._since_s is None:
            self._since_s = self._clock()

    def is_due(self) -> bool:
        """Return whether to log the outage now. An outage that is logged is recorded."""
        due = self._limiter.is_due()
        if due:
            self.begin()
        return due

    def duration_s(self) -> float:
        """Return the duration of the outage so far; 0 without one."""
        return 0.0 if self._since_s is None else self._clock() - self._since_s

    def end(self) -> float | None:
        """End the outage; return its duration in seconds, or None without a recorded one."""
        duration_s, was_recorded = self.duration_s(), self._since_s is not None
        self._since_s = None
        return duration_s if was_recorded else None


class WaitLog:
    """When to log a wait: at its start, and then after pauses that double. Thread-safe: threads that wait for the same service log it once.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s: float | None = None
        self._due_s, self._pause_s = 0.0, FIRST_WAIT_PAUSE_S
        self._lock = threading.Lock()

    def is_due(self, since_s: float | None = None) -> bool:
        """Return whether to log the wait now. Begins it, unless it is in progress.

        Args:
            since_s: the begin of the wait, by the clock; None for now.
        """
        with self._lock:
            now_s = self._clock()
            if self._since_s is None:
                self._since_s = now_s if since_s is None else since_s
                self._due_s, self._pause_s = now_s, FIRST_WAIT_PAUSE_S
            if now_s < self._due_s:
                return False
            self._due_s, self._pause_s = now_s + self._pause_s, min(2 * self._pause_s, LONGEST_WAIT_PAUSE_S)
            return True

    def __str__(self) -> str:
        """The duration and the start of the wait; empty at its start, or without one."""
        since_s = self._since_s
        waited_s = 0.0 if since_s is None else self._clock() - since_s
        if waited_s < 1:
            return ""
        since = datetime.fromtimestamp(time.time() - waited_s, UTC)
        return f"for {waited_s:.0f} s, since {since:%H:%M:%S} UTC"

    def end(self) -> float | None:
        """End the wait; return its duration in seconds, or None without one."""
        with self._lock:
            since_s, self._since_s = self._since_s, None
        return None if since_s is None else self._clock() - since_s
