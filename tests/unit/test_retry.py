"""Retries, backoff and the logging of outages."""

from __future__ import annotations

from itertools import islice

import pytest

from penstock.processors import CallRetry, LogRateLimiter, OutageLog, backoff
from penstock.processors.retry import LOG_EVERY_S


class Clock:
    """A clock that only pauses advance."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s

    def pause(self, seconds: float) -> None:
        """Advance the time, by a millisecond at least."""
        self.now_s += max(seconds, 0.001)


class Interrupted(Exception):
    """An attempt failed."""


def test_pauses_are_below_a_bound_that_doubles() -> None:
    """The bound doubles up to the longest pause."""
    for _ in range(50):
        pauses = list(islice(backoff(1.0, 6.0), 5))

        assert all(0 <= pause_s <= bound_s for pause_s, bound_s in zip(pauses, (1, 2, 4, 6, 6), strict=True))


@pytest.mark.parametrize("failures", [0, 1, 5])
def test_a_retry_returns_the_first_success_and_reports_the_first_error(failures: int) -> None:
    """Other errors are not retried."""
    clock, attempts, reported = Clock(), 0, list[Exception]()

    def attempt() -> int:
        nonlocal attempts
        attempts += 1
        if attempts <= failures:
            raise Interrupted(str(attempts))
        return attempts

    retry = CallRetry(1e6, clock=clock, pause=clock.pause)

    assert retry.call(attempt, Interrupted, reported.append) == failures + 1
    assert [str(error) for error in reported] == ["1"][:failures]
    with pytest.raises(ZeroDivisionError):
        retry.call(lambda: 1 // 0, Interrupted, reported.append)


def test_a_repeated_line_is_logged_once_per_interval() -> None:
    """The first line is logged at once."""
    now = iter([5.0, 6.0, 5.0 + LOG_EVERY_S, 6.0 + LOG_EVERY_S])
    limiter = LogRateLimiter(clock=lambda: next(now))

    assert [limiter.is_due() for _ in range(4)] == [True, False, True, False]


def test_an_outage_is_logged_at_its_start_and_its_end() -> None:
    """An outage soon after another is measured, but not logged again at once."""
    clock = Clock()
    outage = OutageLog(clock=clock)
    started = outage.is_due(), outage.is_due()
    clock.pause(10)
    ended = outage.duration_s(), outage.end(), outage.end()
    outage.begin()
    again = outage.is_due()
    clock.pause(3)

    assert started == (True, False)
    assert ended == (10.0, 10.0, None)
    assert (again, outage.end()) == (False, 3.0)
