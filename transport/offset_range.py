"""A stretch of a bucket: from one offset up to another, both fixed before anything is read.

Offsets have gaps, where transactions were aborted or kept their own marks, so a stretch is read to its end when something behind it
has come, or when the bus says that there is nothing more for now.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from .bus import Bus
from .errors import BusUnreachable
from .messages import Bucket, Message, Polled, Position, RawBatch

POLL_WAIT_S = 1.0
SILENCE_LIMIT_S = 120.0
"""How long a bus that neither gives anything nor says that there is nothing is waited for."""


class OffsetRange(NamedTuple):
    """Events of one bucket.

    Args:
        bucket: which.
        start: the first offset.
        end: the offset behind the last.
    """

    bucket: Bucket
    start: int
    end: int

    def cut(self, offsets: int) -> list[OffsetRange]:
        """Return the same in pieces that begin at multiples of so many offsets; none for an empty one."""
        inner = range(self.start - self.start % offsets + offsets, self.end, offsets)
        edges = [self.start, *inner, self.end]
        return [OffsetRange(self.bucket, start, end) for start, end in pairwise(edges) if start < end]


def read_offset_range(
    bus: Bus,
    stretch: OffsetRange,
    *,
    silence_limit_s: float = SILENCE_LIMIT_S,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Iterator[RawBatch]:
    """Give what is in a stretch, in order. Its end is none that lies ahead: the bus had come so far before.

    Raises:
        OffsetOutOfRange: the bus does not keep its beginning any more.
        BusUnreachable: nothing came for too long.
        BusError: as the bus raises.
    """
    scanner = bus.scanner([Position(stretch.bucket, stretch.start)])
    heard_s = monotonic_s()
    try:
        while True:
            polled = scanner.poll(POLL_WAIT_S)
            for batch in polled.batches:
                heard_s = monotonic_s()
                inside = _before(batch.messages, stretch.end)
                if inside:
                    yield RawBatch(batch.bucket, inside)
            if _is_past(polled, stretch.end):
                return
            if monotonic_s() - heard_s > silence_limit_s:
                raise BusUnreachable(
                    f"{stretch.bucket}: nothing came for {silence_limit_s:.0f} s of what lies before offset {stretch.end}, where the bucket had "
                    "ended when this began. Nothing was skipped. See whether the brokers answer, and run again."
                )
    finally:
        scanner.close()


def _before(messages: Sequence[Message], end: int) -> Sequence[Message]:
    return messages[: bisect_left(messages, end, key=lambda message: message.offset())]


def _is_past(polled: Polled, end: int) -> bool:
    return any(batch.next_offset >= end for batch in polled.batches) or any(one.offset >= end for one in polled.ended)
