"""Events as the past gives them: of one bucket, in order, with when each of them had arrived."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...processors.declare.categories import AnyCategory
from ...transport.bus import Bucket
from ..worker.rejected_events import RejectedEvent


@dataclass(frozen=True, slots=True)
class SourceEvents:
    """Some events of one bucket, in order. Or one message that a worker refuses.

    Args:
        category: which input they are of.
        number: the bucket's.
        events: the records; none where the message is refused.
        offsets: where they lie.
        arrived_ms: by when each had arrived, as everything before it in its bucket had (milliseconds since 1970, UTC); never less than
            that of the one before.
        refusal: why a message is none that the processor is given.
    """

    category: AnyCategory
    number: int
    events: Sequence[Any]
    offsets: Sequence[int]
    arrived_ms: Sequence[int]
    refusal: RejectedEvent | None = None

    @property
    def bucket(self) -> Bucket:
        """The bucket they are of."""
        return Bucket(self.category.name, self.number)

    def part(self, begin: int, end: int) -> SourceEvents:
        """Return the messages from one index up to, not including, another."""
        if begin == 0 and end >= len(self.offsets):
            return self
        inside = slice(begin, end)
        return replace(
            self, events=self.events[inside], offsets=self.offsets[inside], arrived_ms=self.arrived_ms[inside]
        )

    def joined(self, other: SourceEvents) -> SourceEvents:
        """Return these messages and those of the same bucket that follow on them."""
        return replace(
            self,
            events=[*self.events, *other.events],
            offsets=[*self.offsets, *other.offsets],
            arrived_ms=[*self.arrived_ms, *other.arrived_ms],
        )

    def at_offset(self, offset: int) -> int:
        """Return the index of the first message at an offset or behind it."""
        return bisect_left(self.offsets, offset)

    def arrived_after(self, arrived_ms: int) -> SourceEvents:
        """Return the same as it had arrived behind what came by a time."""
        if self.arrived_ms[0] >= arrived_ms:
            return self
        return replace(self, arrived_ms=[max(one, arrived_ms) for one in self.arrived_ms])
