"""Outages of Kafka, during which workers cannot report: that time is no silence of a worker.

An observer notices an outage by requests without an answer. A later one, also of another observer, ends it.
"""

from __future__ import annotations

from typing import NamedTuple

SILENT_AFTER_S = 20.0
"""The age of the last report from which a worker counts as silent: it hangs, was killed, or cannot reach Kafka."""


class Outage(NamedTuple):
    """A time without answers from Kafka. Milliseconds since 1970, UTC.

    Args:
        since_ms: the last answer before it; 0 without one.
        until_ms: the first answer after it.
    """

    since_ms: int = 0
    until_ms: int = 0

    def seconds_since(self, report_ms: int) -> float:
        """Return the seconds of the outage after a report."""
        return max(0, self.until_ms - max(report_ms, self.since_ms)) / 1000

    def silent_s(self, report_ms: int, now_ms: int) -> float:
        """Return the seconds since a report, without those of the outage."""
        return (now_ms - report_ms) / 1000 - self.seconds_since(report_ms)


class OutageTracker:
    """Tracks the last outage. Observers that replace each other share it. One thread at a time."""

    def __init__(self) -> None:
        self.last = Outage()
        """The last outage that has ended."""
        self._is_answered = True
        self._answered_ms = 0
        """The last answer since which workers had time to report: outages that soon follow each other are one."""

    def note_unseen(self, since_ms: int, until_ms: int) -> None:
        """Note an outage that this process has not seen: all workers were silent at the same time, and report again."""
        self.last = Outage(since_ms, until_ms)

    def note_failure(self) -> None:
        """Note that Kafka does not answer."""
        self._is_answered = False

    def note_answer(self, now_ms: int) -> None:
        """Note that Kafka answers."""
        if not self._is_answered:
            self.last, self._is_answered = Outage(self._answered_ms, now_ms), True
        elif now_ms - self.last.until_ms > SILENT_AFTER_S * 1000:
            self._answered_ms = now_ms
