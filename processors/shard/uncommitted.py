"""The work since the last checkpoint, and whether the next one is due."""

from __future__ import annotations

from dataclasses import dataclass

from ..declare.processor import CheckpointInterval

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

    def due(self, every: CheckpointInterval, now_s: float) -> bool:
        """Return whether a checkpoint is due; never without work."""
        return self.events > 0 and (
            self.events >= every.events
            or self.size_bytes >= every.size_bytes
            or now_s - self.since_s >= every.time.total_seconds()
        )

    def overdue(self, every: CheckpointInterval, now_s: float) -> bool:
        """Return whether the work exceeds a limit of events or bytes, or the checkpoint is late by `MAX_DELAY_S`."""
        return (
            self.events >= every.events
            or self.size_bytes >= every.size_bytes
            or now_s - self.since_s >= every.time.total_seconds() + MAX_DELAY_S
        )
