"""The places of replayed events: their buckets, offsets and arrivals, found by the object that the processor received."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ....processors.shard import SourceEvents

REMEMBERED = 50
"""The number of batches whose events are remembered: ordered delivery holds events back."""


class EventPlace(NamedTuple):
    """The place of an event.

    Args:
        category: its category.
        bucket: its bucket number.
        offset: its offset.
        arrived_ms: its arrival (milliseconds since 1970, UTC).
    """

    category: str
    bucket: int
    offset: int
    arrived_ms: int

    def __str__(self) -> str:
        return f"{self.category}/{self.bucket} at offset {self.offset:,}"


class EventPlaces:
    """Remembers the last replayed events."""

    def __init__(self) -> None:
        self._batches: deque[SourceEvents] = deque(maxlen=REMEMBERED)
        self.count = 0
        """The number of events so far."""

    def record(self, events: SourceEvents) -> None:
        """Remember events that are processed next."""
        self._batches.append(events)
        self.count += len(events.offsets)

    def of(self, event: Any) -> EventPlace | None:
        """Return the place of an event; None for another object, and for an event that was held back for too long."""
        for batch in reversed(self._batches):
            for at, one in enumerate(batch.events):
                if one is event:
                    return EventPlace(batch.category.name, batch.number, batch.offsets[at], batch.arrived_ms[at])
        return None
