"""A range of offsets of a bucket, fixed before the first read.

Offsets have gaps: aborted transactions and transaction markers. So a range is complete when the reader returns a later message, or
reports the end of the bucket.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from .bus import Bus
from .errors import BusUnreachable
from .messages import Bucket, Polled, Position, RawBatch

POLL_WAIT_S = 1.0
SILENCE_LIMIT_S = 120.0
"""How long a reader waits for the next message, or for the end of the bucket, before it fails."""


class OffsetRange(NamedTuple):
    """Events of one bucket.

    Args:
        bucket: the bucket.
        start: the first offset.
        end: the offset after the last event.
    """

    bucket: Bucket
    start: int
    end: int

    def cut(self, offsets: int) -> list[OffsetRange]:
        """Split the range at multiples of `offsets`; an empty range has no pieces."""
        inner = range(self.start - self.start % offsets + offsets, self.end, offsets)
        edges = [self.start, *inner, self.end]
        return [OffsetRange(self.bucket, start, end) for start, end in pairwise(edges) if start < end]


def read_offset_range(
    bus: Bus,
    offset_range: OffsetRange,
    *,
    silence_limit_s: float = SILENCE_LIMIT_S,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Iterator[RawBatch]:
    """Yield the events of a range, in order. The end must not be later than the present end of the bucket.

    Raises:
        OffsetOutOfRange: the first events of the range have expired.
        BusUnreachable: the bus sent nothing for `silence_limit_s`.
        BusError: as the bus raises.
    """
    scanner = bus.scanner([Position(offset_range.bucket, offset_range.start)])
    last_message_s = monotonic_s()
    try:
        while True:
            polled = scanner.poll(POLL_WAIT_S)
            for batch in polled.batches:
                last_message_s = monotonic_s()
                inside = bisect_left(batch.offsets(), offset_range.end)
                if inside:
                    yield batch.part(0, inside)
            if _is_past(polled, offset_range.end):
                return
            if monotonic_s() - last_message_s > silence_limit_s:
                raise BusUnreachable(
                    f"{offset_range.bucket}: the bus sent no event before offset {offset_range.end} for {silence_limit_s:.0f} s. No event was "
                    "skipped. Check that the brokers are up, then run again."
                )
    finally:
        scanner.close()


def _is_past(polled: Polled, end: int) -> bool:
    return any(batch.next_offset >= end for batch in polled.batches) or any(
        reached.offset >= end for reached in polled.ended
    )
