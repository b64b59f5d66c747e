"""Recorded events of one bucket, in order, with their times of arrival."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..declare import AnyCategory
from .batches import AcceptedBatch, RejectedEvent


@dataclass(frozen=True, slots=True)
class SourceEvents:
    """Consecutive events of one bucket, or one rejected message.

    Args:
        category: the input.
        number: the bucket number.
        events: the records; none for a rejected message.
        offsets: the offset of each message.
        arrived_ms: the time by which each message and all earlier messages had arrived (milliseconds since 1970, UTC); never decreasing.
        rejection: why a message is rejected.
    """

    category: AnyCategory
    number: int
    events: Sequence[Any]
    offsets: Sequence[int]
    arrived_ms: Sequence[int]
    rejection: RejectedEvent | None = None

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return f"{self.category.name}/{self.number}"

    @property
    def accepted(self) -> AcceptedBatch:
        """The events as an operator takes them."""
        rejected = [] if self.rejection is None else [self.rejection._replace(at=0)]
        return AcceptedBatch(self.category.batch_of(self.events), range(len(self.events)), rejected)

    def part(self, begin: int, end: int) -> SourceEvents:
        """Return the messages from one index up to, not including, another."""
        if begin == 0 and end >= len(self.offsets):
            return self
        inside = slice(begin, end)
        return replace(
            self, events=self.events[inside], offsets=self.offsets[inside], arrived_ms=self.arrived_ms[inside]
        )

    def joined(self, other: SourceEvents) -> SourceEvents:
        """Return these messages and the following ones of the same bucket."""
        return replace(
            self,
            events=[*self.events, *other.events],
            offsets=[*self.offsets, *other.offsets],
            arrived_ms=[*self.arrived_ms, *other.arrived_ms],
        )

    def at_offset(self, offset: int) -> int:
        """Return the index of the first message at or after an offset."""
        return bisect_left(self.offsets, offset)

    def arrived_after(self, arrived_ms: int) -> SourceEvents:
        """Return these messages with arrivals no earlier than a time."""
        if self.arrived_ms[0] >= arrived_ms:
            return self
        return replace(self, arrived_ms=[max(time_ms, arrived_ms) for time_ms in self.arrived_ms])
