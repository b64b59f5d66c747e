"""The size of polls, by the speed of a processor."""

from __future__ import annotations

TARGET_BATCH_S = 0.5
"""How long the processor should take for the events of one poll."""
MOST_EVENTS = 10_000
"""The most events of a poll; a reader may return fewer."""
FIRST_BATCH = 500
"""The size of the first poll, before the processor's speed is known."""
MAX_GROWTH = 4
"""The greatest ratio of one poll's size to the last one's: a few fast events are no proof that the next ones are fast."""


class BatchSizer:
    """Adapts the size of polls to the processor's speed. One thread.

    Args:
        most: the greatest size of a poll.
        least: the size below which a poll does not become faster.
    """

    def __init__(self, most: int, least: int = 1) -> None:
        self._most = most
        self._least = min(least, most)
        self.at_most = max(self._least, min(FIRST_BATCH, most))

    def record(self, events: int, seconds: float) -> None:
        """Record how long the processor took for a number of events."""
        if events:
            fitting = int(events * TARGET_BATCH_S / seconds) if seconds > 0 else self._most
            self.at_most = max(self._least, min(fitting, self.at_most * MAX_GROWTH, self._most))
