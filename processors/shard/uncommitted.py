"""The work since the last checkpoint, and whether the next one is due."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ..declare import CheckpointInterval

MAX_DELAY_S = 1.0
"""How long a checkpoint waits for the end of the previous one before the worker stops reading for it."""


@dataclass
class Uncommitted:
    """The work since the last checkpoint.

    Args:
        since_s: when that checkpoint began.
        events: the number of events read, and of results that were due without an event.
        size_bytes: the size of the events.
    """

    since_s: float
    events: int = 0
    size_bytes: int = 0

    def add(self, events: int, size_bytes: int) -> None:
        """Add a batch."""
        self.events += events
        self.size_bytes += size_bytes

    def put_back(self, earlier: Uncommitted) -> None:
        """Add the work of a checkpoint that was not completed."""
        self.add(earlier.events, earlier.size_bytes)
        self.since_s = earlier.since_s

    def due(self, every: CheckpointInterval, now_s: float, most_events: float = inf) -> bool:
        """Return whether a checkpoint is due; never without work.

        Args:
            every: its limits.
            now_s: the time, on the clock of `since_s`.
            most_events: a further limit of its events.
        """
        return self.events > 0 and self._exceeds(every, now_s, most_events)

    def overdue(self, every: CheckpointInterval, now_s: float, most_events: float = inf) -> bool:
        """Return whether the work exceeds a limit of events or bytes, or the checkpoint is late by `MAX_DELAY_S`."""
        return self._exceeds(every, now_s - MAX_DELAY_S, most_events)

    def _exceeds(self, every: CheckpointInterval, now_s: float, most_events: float) -> bool:
        return (
            self.events >= min(every.events, most_events)
            or self.size_bytes >= every.size_bytes
            or now_s - self.since_s >= every.time.total_seconds()
        )
