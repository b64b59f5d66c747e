"""Detection of idle buckets, which no longer hold back the low watermark.

A bucket is silent as long as consecutive requests for its end offset confirm that every event was read. A gap between two answers (an
outage, a stopped process, a suspended machine) ends the silence, because events may have been delayed in the gap.

An idle bucket lets the others pass only up to the event time that they had reached when the last confirmation began. What arrives together
with their next events is unread until then, although its bucket has been silent for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from .watermarks import NEVER_MS

ASK_EVERY_S = 1.0
"""The time between two requests for end offsets; shorter if `idle_after` is short."""
LONGEST_GAP_S = 15.0
"""The longest time between two answers of one silence; shorter if `idle_after` is short."""


@dataclass(frozen=True)
class IdleTimeout:
    """The silence after which a bucket is idle, and the times that depend on it.

    Args:
        idle_after_s: the silence, in seconds.
    """

    idle_after_s: float

    @property
    def ask_every_s(self) -> float:
        """The time between two requests, in seconds."""
        return min(max(self.idle_after_s / 4, ASK_EVERY_S / 10), ASK_EVERY_S)

    @property
    def gap_s(self) -> float:
        """The longest time between two answers of one silence, in seconds. A slow answer does not exceed it."""
        return min(max(self.idle_after_s / 4, 3 * self.ask_every_s), LONGEST_GAP_S)


class IdleDetector:
    """The confirmed silence of one bucket. Times are seconds of a clock that also runs while the machine is suspended.

    Args:
        timeout: the silence after which the bucket is idle.
    """

    def __init__(self, timeout: IdleTimeout) -> None:
        self._timeout = timeout
        self._heard_s = -inf
        self._since_s = inf
        self._confirmed_s = -inf

    def interrupt(self, now_s: float) -> None:
        """Record that events arrived or are still unread."""
        self._heard_s, self._since_s, self._confirmed_s = now_s, inf, -inf

    def confirm(self, asked_s: float) -> None:
        """Record that every event of the bucket was read, according to a request sent at `asked_s`."""
        if asked_s < self._heard_s:
            return
        if not 0 <= asked_s - self._confirmed_s <= self._timeout.gap_s:
            self._since_s = asked_s
        self._confirmed_s = asked_s

    def is_quiet(self, now_s: float) -> bool:
        """Return whether to request the end offset: no event has arrived for a while."""
        return now_s - self._heard_s >= self._timeout.ask_every_s

    def is_idle(self, now_s: float) -> bool:
        """Return whether the silence is long enough and was confirmed recently."""
        return now_s - self._confirmed_s <= self._timeout.gap_s and self.lasted_s >= self._timeout.idle_after_s

    @property
    def lasted_s(self) -> float:
        """The seconds of confirmed silence; below zero without any."""
        return self._confirmed_s - self._since_s


class IdleLimit:
    """The event time up to which one idle writer or bucket does not hold back the others.

    The others reach a time -> a question, at some length of a log -> a confirmation from when the log was longer -> the limit is that time
    """

    def __init__(self) -> None:
        self.limit_ms = NEVER_MS
        self._asked: tuple[int, int] | None = None

    def wants(self, time_ms: int) -> bool:
        """Return whether to ask for a confirmation, so that the others may pass up to a time (milliseconds since 1970, UTC)."""
        return self._asked is None and time_ms > self.limit_ms

    def ask(self, time_ms: int, log_end: int) -> None:
        """Ask whether the idleness lasts, unless an earlier question has no answer yet.

        Args:
            time_ms: the event time that the others have reached (milliseconds since 1970, UTC).
            log_end: the length of the log of confirmations, or less, since they have reached it.
        """
        if self.wants(time_ms):
            self._asked = (time_ms, log_end)

    def confirm(self, as_of: float) -> None:
        """Answer the question, if the idleness was confirmed when the log had the length `as_of`. An equal length proves nothing."""
        if self._asked is not None and as_of > self._asked[1]:
            self.limit_ms, self._asked = self._asked[0], None
