"""Ranges of offsets of buckets, fixed before the first read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

from .bucket_follower import SILENCE_LIMIT_S, BucketFollower
from .bus import Bus
from .messages import Bucket, RawBatch


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


def ranges_to_end(bus: Bus, category: str, starts: Mapping[int, int]) -> list[OffsetRange]:
    """Return the ranges from given offsets, by bucket number, to the present ends for readers."""
    ends = bus.catalog.stable_ends(category)
    return [OffsetRange(Bucket(category, number), start, ends[number]) for number, start in sorted(starts.items())]


def read_offset_range(
    bus: Bus, offset_range: OffsetRange, *, silence_limit_s: float = SILENCE_LIMIT_S
) -> Iterator[RawBatch]:
    """Yield the events of one range; see `read_offset_ranges`."""
    return read_offset_ranges(bus, [offset_range], silence_limit_s=silence_limit_s)


def read_offset_ranges(
    bus: Bus, ranges: Collection[OffsetRange], *, silence_limit_s: float = SILENCE_LIMIT_S
) -> Iterator[RawBatch]:
    """Yield the events of ranges of different buckets, in order within each. No end may be later than the present end of its bucket.

    Raises:
        OffsetOutOfRange: the first events of a range have expired.
        TopicRecreated: a category does not have the end of a range any more.
        BusUnreachable: the bus sent nothing for `silence_limit_s`.
        BusError: as the bus raises.
    """
    ends = {each.bucket: each.end for each in ranges if each.start < each.end}
    if not ends:
        return
    starts = {each.bucket: each.start for each in ranges if each.bucket in ends}
    with closing(BucketFollower(bus, starts, ends)) as follower:
        for batch in follower.read_to_end(silence_limit_s):
            inside = bisect_left(batch.offsets(), ends[batch.bucket])
            if inside:
                yield batch.part(0, inside)
