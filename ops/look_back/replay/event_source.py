"""Past events of a shard: their source, their order across inputs, and slices of time.

span --by arrival time--> offset range of each bucket --read--> events --interleaved by arrival--> time slices
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ....processors.declare import AnyCategory
from ....processors.shard import SourceEvents
from ....transport import Bucket, OffsetRange


@dataclass(frozen=True)
class PastRange:
    """A range of past events, the same for all buckets.

    Args:
        since: its start: an arrival time, or the offset of the first event.
        until: its end, excluded; None for the current end of each bucket.
    """

    since: datetime | int
    until: datetime | int | None = None

    @property
    def since_ms(self) -> int | None:
        """Its start in milliseconds since 1970, UTC; None for an offset."""
        return _ms(self.since)

    @property
    def until_ms(self) -> int | None:
        """Its end in milliseconds since 1970, UTC; None for an offset, or no end."""
        return _ms(self.until)


def _ms(point: datetime | int | None) -> int | None:
    return int(point.timestamp() * 1000) if isinstance(point, datetime) else None


class EventSource(Protocol):
    """A source of past events. Every call may be repeated, with the same result while the events are retained."""

    def first(self, bucket: Bucket) -> int:
        """Return the first retained offset of a bucket."""
        ...

    def stretch(self, bucket: Bucket, span: PastRange) -> OffsetRange:
        """Return the offsets of a span in a bucket.

        Raises:
            ReplayRefused: the start of the span has expired.
        """
        ...

    def read(self, category: AnyCategory, stretch: OffsetRange) -> Iterator[SourceEvents]:
        """Yield the events of an offset range in order, and the messages that a worker would reject."""
        ...
