"""Where a worker stops, although its buckets may continue: offsets, and event times after them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from ....transport import Bucket, End, Polled


@dataclass(frozen=True)
class RunLimits:
    """Where a run of a processor ends.

    Args:
        offsets: the first offset that is not read, by bucket. Other buckets are read to their current ends.
        times_ms: by shard, the event time that it reaches at the latest there, as if its inputs had passed it.
    """

    offsets: Mapping[Bucket, int] = field(default_factory=dict)
    times_ms: Mapping[int, int] = field(default_factory=dict)


NO_LIMITS = RunLimits()


class OffsetLimits:
    """Ends buckets at given offsets: events from there on are dropped, and each bucket is reported as read to its end.

    Args:
        limits: the first offset that is not read, by bucket. Other buckets are not limited.
    """

    def __init__(self, limits: Mapping[Bucket, int]) -> None:
        self._limits = limits

    def applied(self, polled: Polled) -> Polled:
        """Return the part of a poll below the limits."""
        if not self._limits:
            return polled
        batches = []
        ended = [End(bucket, min(offset, self._limits.get(bucket, offset))) for bucket, offset in polled.ended]
        for batch in polled.batches:
            limit = self._limits.get(batch.bucket, batch.next_offset)
            count = bisect_left(batch.offsets(), limit)
            if count:
                batches.append(batch.part(0, count))
            if count < len(batch.messages):
                ended.append(End(batch.bucket, limit))
        return Polled(batches, ended)
