"""Crash loops: workers that crash again and again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

CRASH_LOOP_RESTARTS = 3
"""The number of restarts within an hour that makes a crash loop."""
RECOVERED_S = 60.0
"""The least time without a restart that ends a crash loop, in seconds."""


def crash_loop_since(restarts_ms: Sequence[int], now_ms: int) -> int | None:
    """Return the first restart of a crash loop that has not ended (milliseconds since 1970, UTC); None without one.

    A crash loop ends when the worker has run for twice the longest pause between its last restarts, and at least `RECOVERED_S`: after a repair it
    ends within minutes, and a worker that crashes every ten minutes stays in its loop between the crashes.

    Args:
        restarts_ms: the restarts of the last hour, in ascending order (milliseconds since 1970, UTC).
        now_ms: the current time.
    """
    last_ms = restarts_ms[-CRASH_LOOP_RESTARTS:]
    if len(last_ms) < CRASH_LOOP_RESTARTS:
        return None
    longest_ms = max(after - before for before, after in pairwise(last_ms))
    has_ended = now_ms - last_ms[-1] >= max(2 * longest_ms, RECOVERED_S * 1000)
    return None if has_ended else restarts_ms[0]
