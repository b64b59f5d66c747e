"""How many events a turn of the loop takes: as many as it can do within a moment.

A loop that turns seldom cannot say how it is, save in time, or hand a bucket on; one that is kept up for minutes loses its place in
the group, and does the same events again. So a processor that takes long for each event is given few at a time.
"""

from __future__ import annotations

TURN_S = 0.5
"""How long the processor may be busy with what one poll gave."""
MOST_EVENTS = 10_000
"""The most events of a poll; a reader may return fewer."""
FIRST = 500
"""How many events are read at first, when nobody knows how long they take."""
GROWTH = 4
"""How many times more the next poll may give: some quick events say little of those after them."""


class BatchSizer:
    """Learns how fast a processor is. One thread.

    Args:
        most: the most events that a poll returns.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.at_most = min(FIRST, most)

    def note(self, events: int, seconds: float) -> None:
        """Note how long the processor took for so many events."""
        if events:
            fitting = int(events * TURN_S / seconds) if seconds > 0 else self._most
            self.at_most = max(1, min(fitting, self.at_most * GROWTH, self._most))
