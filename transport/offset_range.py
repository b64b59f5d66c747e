"""Ranges of offsets of buckets, fixed before the first read, and the reading of buckets up to an end.

Offsets have gaps: aborted transactions and transaction markers. So a range is complete when the reader returns a later message, or
reports the end of the bucket.

A read up to an end expects progress. Without it, it asks the bus for the reason:

    no message for 10 s --> the category was deleted, or ends before the range: an error, since the events will never arrive
                        --> no answer, or an open transaction: a line in the log, repeated every 30 s; an error at the limit
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

from ..processors import counted
from .bus import Bus, Scanner
from .errors import BusUnreachable, MissingCategory, TopicRecreated
from .messages import Bucket, Polled, Position, RawBatch
from .open_transactions import BLOCKED_AFTER_S, old_transactions

_LOG = logging.getLogger("penstock.kafka")
POLL_WAIT_S = 1.0
SILENCE_LIMIT_S = 120.0
"""How long a reader waits for the next message, or for the end of a bucket, before it fails."""
REPORT_EVERY_S = 30.0
"""How often a waiting reader logs what it waits for."""

Ends = Mapping[Bucket, int | None]
"""The offset at which each bucket ends; None for the end that the bus reports while it is read."""


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
    starts = [Position(each.bucket, each.start) for each in ranges if each.bucket in ends]
    with closing(bus.scanner(starts)) as scanner:
        for polled in polls_to_end(bus, scanner, ends, silence_limit_s=silence_limit_s):
            for batch in polled.batches:
                inside = bisect_left(batch.offsets(), ends[batch.bucket])
                if inside:
                    yield batch.part(0, inside)


def polls_to_end(
    bus: Bus, scanner: Scanner, ends: Ends, *, silence_limit_s: float = SILENCE_LIMIT_S
) -> Iterator[Polled]:
    """Yield polls of a scanner until each bucket has reached its end. They may contain later messages, too.

    Args:
        bus: answers why nothing arrives.
        scanner: reads the buckets.
        ends: the ends.
        silence_limit_s: the time of polling without a message or an end after which the read fails. To ask the bus for the reason takes longer.

    Raises:
        TopicRecreated: a category does not have the end any more.
        BusUnreachable: the bus sent nothing for `silence_limit_s`.
        BusError: as the bus raises.
    """
    unread, silence = dict(ends), _Silence(bus, silence_limit_s)
    while unread:
        polled = scanner.poll(POLL_WAIT_S)
        reported = {end.bucket: end.offset for end in polled.ended}
        read = {batch.bucket: batch.next_offset for batch in polled.batches}
        left = {
            bucket: end
            for bucket, end in unread.items()
            if reported.get(bucket, -1) < (end or 0) and (end is None or read.get(bucket, -1) < end)
        }
        if polled.batches or len(left) < len(unread):
            silence.end()
        else:
            silence.extend(left)
        unread = left
        yield polled


class _Silence:
    """The time in which a read makes no progress.

    It is counted in polls, each of which waits: so it is the same on any clock.
    """

    def __init__(self, bus: Bus, limit_s: float) -> None:
        self._bus = bus
        self._limit_s = limit_s
        self.end()

    def end(self) -> None:
        """Record progress."""
        self._polled_s, self._due_s = 0.0, min(BLOCKED_AFTER_S, self._limit_s)
        self._since_s = time.monotonic()

    def extend(self, unread: Ends) -> None:
        """Record a poll without progress; log the reason if it is time to, or raise at the limit."""
        self._polled_s += POLL_WAIT_S
        if self._polled_s < self._due_s:
            return
        self._due_s = min(self._polled_s + REPORT_EVERY_S, self._limit_s)
        reason, silent_s = self._reason(unread), max(self._polled_s, time.monotonic() - self._since_s)
        missing = f"{_named(unread)} not read completely: the bus has sent nothing for {silent_s:.0f} s. {reason}"
        if self._polled_s >= self._limit_s:
            raise BusUnreachable(f"{missing} No event was skipped. Run again when Kafka sends its events.")
        _LOG.warning("Waiting: %s", missing)

    def _reason(self, unread: Ends) -> str:
        """Return why nothing arrives.

        Raises:
            MissingCategory: nothing will, because a category was deleted.
            TopicRecreated: nothing will, because a category ends earlier now.
        """
        names = {bucket.category for bucket in unread}
        now_ms = round(time.time() * 1000)
        try:
            self._expect_ends(unread, names)
            transactions = old_transactions(self._bus, names, now_ms)
        except BusUnreachable as error:
            return str(error)
        blocking = [each for each in transactions if each.offset < (unread.get(each.bucket) or 0)]
        if blocking:
            return blocking[0].report(now_ms)
        return "The brokers answer other requests. Check their logs, and this machine's network to each of them."

    def _expect_ends(self, unread: Ends, names: set[str]) -> None:
        missing = sorted(names - self._bus.catalog.topics(names).keys())
        if missing:
            raise MissingCategory(
                f"Category {missing[0]} was deleted while it was read, so its other events are lost. Create it again with `penstock category create`, or "
                "remove what reads it."
            )
        ends = {name: self._bus.catalog.ends(name) for name in names}
        for bucket, end in unread.items():
            present = ends[bucket.category].get(bucket.number, 0)
            if present < (end or 0):
                raise TopicRecreated(
                    f"{bucket} has offsets up to {present:,} only, and was read up to {end:,} at first: the category was deleted and created again "
                    "meanwhile, or a broker has lost events. What is missing does not arrive any more. Run again to read what it contains now."
                )


def _named(unread: Ends) -> str:
    first, others = min(unread), len(unread) - 1
    return f"{first} is" if not others else f"{first} and {counted(others, 'other bucket')} are"
