"""The seam to the past: which events of a bucket lie in a span of it, and what they are.

span (from, to) --by arrival on the bus--> stretch of offsets of each bucket --read--> Seen
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ...processors.declare.categories import AnyCategory
from ...processors.shard.source_events import SourceEvents
from ...transport.messages import Bucket
from ...transport.offset_range import OffsetRange


@dataclass(frozen=True)
class Span:
    """A piece of the past, the same for all buckets.

    Args:
        since: its beginning: when events arrived on the bus, or the offset of the first.
        until: its end, itself not included; None for where each bucket ends now.
    """

    since: datetime | int
    until: datetime | int | None = None

    @property
    def since_ms(self) -> int | None:
        """When it begins, in milliseconds since 1970, UTC; None where that is an offset."""
        return _ms(self.since)

    @property
    def until_ms(self) -> int | None:
        """When it ends, in milliseconds since 1970, UTC; None where that is an offset, or now."""
        return _ms(self.until)


def _ms(point: datetime | int | None) -> int | None:
    return int(point.timestamp() * 1000) if isinstance(point, datetime) else None


class EventSource(Protocol):
    """Where the events of the past are. Every call may be repeated, and gives the same as long as they are kept."""

    def first(self, bucket: Bucket) -> int:
        """Return the first offset of a bucket that is kept."""
        ...

    def stretch(self, bucket: Bucket, span: Span) -> OffsetRange:
        """Return what of a bucket lies in a span.

        Raises:
            ReplayRefused: its beginning is not kept any more.
        """
        ...

    def read(self, category: AnyCategory, stretch: OffsetRange) -> Iterator[SourceEvents]:
        """Give the events of a stretch, in order, and the messages that a worker would refuse."""
        ...
