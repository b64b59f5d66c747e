"""Upstream watermarks of a worker's input buckets, from the statements that upstream shards publish on the bus.

    statement: "every later output of this shard lies behind these offsets and after this event time"
    offsets read -> the statement applies -> the minimum over all upstream shards -> the bucket's watermark

An idle upstream shard does not hold the watermark back if two conditions are met: its earlier outputs are read, and it is alive, which it
shows by repeating its statement. A stopped shard, or one that cannot reach the bus, may have unprocessed input. So may one whose input has
arrived since: the other shards' watermark passes an idle one only up to where it was when the idle one looked for input last. The exception
is a shard whose run has stopped at the end of its input, and assumes silence: it needs no sign of life.

Source: Akidau et al., "MillWheel", 2013, section 4.5: the minimum of a computation's own work and its inputs' watermarks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from math import inf
from typing import NamedTuple

from ....processors.time import NEVER_MS, IdleLimit, IdleTimeout
from ....transport import Bucket, Bus
from ....transport.tables import WatermarkOwner, WatermarkStatement, WatermarkTable
from .upstream_shards import IsFresh, Summary, UpstreamShards

REPEAT_EVERY_S = 2.0
"""The interval at which an idle shard repeats its statement."""
FRESH_FOR_S = 8.0
"""How long a statement of an idle shard stays fresh. Repetitions are dated by each other, so they look up to two intervals old."""
_STILL_READING = "the worker is still reading the upstream watermarks"


def assume_alive(_: WatermarkStatement) -> bool:
    """Treat every idle shard as alive: for reads of past events."""
    return True


class StatementFreshness:
    """Determines whether statements on the bus are recent, without comparing clocks of two machines.

    A statement contains the end offset of the statements' category at the time when its author asked for it. The worker compares it with
    the ends that it received itself. So a message that was delayed for long is recognised as old.

    Args:
        timeout: the idle timeout of the worker's processor. After a gap between two answers, no statement counts as fresh.
    """

    def __init__(self, timeout: IdleTimeout) -> None:
        self._gap_s = timeout.gap_s
        self._ends: deque[tuple[float, int]] = deque()

    def record_end(self, asked_s: float, end: int) -> None:
        """Record the end offset of the category, as an answer to a request at a time."""
        if self._ends and not 0 <= asked_s - self._ends[-1][0] <= self._gap_s:
            self._ends.clear()
        self._ends.append((asked_s, end))
        while self._ends[0][0] < asked_s - FRESH_FOR_S:
            self._ends.popleft()

    def is_fresh(self, as_of: int, now_s: float) -> bool:
        """Return whether a statement with the end offset `as_of` was true a moment ago.

        It was made after this worker's request if that request returned a smaller end. An equal end proves nothing.
        """
        if not self._ends or now_s - self._ends[-1][0] > self._gap_s:
            return False
        return any(end < as_of and now_s - asked_s <= FRESH_FOR_S for asked_s, end in self._ends)


class InputWatermark(NamedTuple):
    """A watermark, and a description of the shard that limits it."""

    watermark_ms: int
    held_by: str


class BucketWatermarks:
    """The upstream watermarks of one bucket, by reading position.

    Args:
        bucket: the bucket.
        upstream: the shards that write its category.
        is_fresh: returns whether an idle shard is alive.
    """

    def __init__(self, bucket: Bucket, upstream: UpstreamShards, is_fresh: IsFresh = assume_alive) -> None:
        self._bucket = bucket
        self._upstream = upstream
        self._is_fresh = is_fresh
        self._reached = upstream.begin()
        self._limit = IdleLimit()

    def at(self, position: int, last_statement: int | None = None) -> InputWatermark:
        """Return the bucket's watermark for a reader at a position.

        Args:
            position: the offset up to which the reader has read the bucket.
            last_statement: the offset of the last statement that was recorded; None if no event can arrive at an idle shard any more.
        """
        summary = self._summary(position, with_outside=True)
        if not summary.shards:
            return InputWatermark(NEVER_MS, f"{self._bucket.category}: no processor publishes a watermark for it")
        if summary.missing is not None:
            return InputWatermark(NEVER_MS, summary.missing)
        found = self._minimum(summary)
        return found if last_statement is None else self._limited(summary, found, last_statement)

    def _limited(self, summary: Summary, found: InputWatermark, last_statement: int) -> InputWatermark:
        """Return a watermark up to where the idle shards have confirmed their idleness since the others have reached it."""
        idle = summary.idle(self._is_fresh)
        if idle is None:
            return found
        oldest, slowest = idle
        if oldest.idle_as_of == inf:
            return found
        self._limit.confirm(oldest.idle_as_of)
        self._limit.ask(found.watermark_ms, last_statement)
        passed_ms = max(self._limit.limit_ms, slowest.watermark_ms)
        if passed_ms >= found.watermark_ms:
            return found
        return InputWatermark(passed_ms, f"{oldest.name}, which is idle and has not yet looked for newer input")

    def _summary(self, position: int, *, with_outside: bool) -> Summary:
        self._reached = self._upstream.advance(self._reached, self._bucket.number, position)
        return self._upstream.summary(self._reached, with_outside=with_outside)

    def _minimum(self, summary: Summary) -> InputWatermark:
        """Return the minimum over blocking shards. If none blocks, the maximum counts, since the last one to block had it."""
        blocking = summary.blocking(self._is_fresh)
        if blocking is not None:
            return InputWatermark(blocking.watermark_ms, str(blocking))
        return InputWatermark(summary.fastest.watermark_ms, summary.fastest.name)

    def pending_writer(self, position: int) -> str | None:
        """Describe a processor's shard that may still write to the bucket; None if all are idle, or no processor writes it.

        Writers outside of Penstock publish no idleness. Only silence shows that they have no events.
        """
        summary = self._summary(position, with_outside=False)
        blocking = summary.blocking(self._is_fresh)
        return summary.missing or (None if blocking is None else str(blocking))

    def idle_as_of(self) -> float:
        """Return when the idle processors that write the bucket had no input: an offset of the statements; infinite if no processor writes it."""
        return self._upstream.summary(self._reached, with_outside=False).idle_as_of


class WatermarkSubscriber:
    """Reads the upstream watermarks of a worker's buckets. One thread.

    Args:
        bus: contains the statements; their category exists.
        inputs: the categories of the buckets.
        is_fresh: returns whether an idle shard is alive.
    """

    def __init__(self, bus: Bus, inputs: Collection[str], is_fresh: IsFresh = assume_alive) -> None:
        self._table = WatermarkTable(bus, inputs)
        self._is_fresh = is_fresh
        self._upstream = {name: UpstreamShards(name) for name in inputs}
        self._buckets: dict[Bucket, BucketWatermarks] = {}

    @property
    def is_read(self) -> bool:
        """Whether all existing statements are read."""
        return self._table.complete

    def is_read_to(self, end: int) -> bool:
        """Return whether all statements before an offset are read."""
        return self._table.is_read_to(end)

    @property
    def has_idle(self) -> bool:
        """Whether an upstream shard is idle, so that its freshness matters."""
        return any(upstream.has_idle for upstream in self._upstream.values())

    def read(self) -> Sequence[tuple[WatermarkOwner, WatermarkStatement | None]]:
        """Read new statements, and return them; None for a deleted one. Return at once."""
        return self._record(self._table.read(0.0))

    def read_to_end(self) -> None:
        """Read all existing statements, and wait for them.

        Raises:
            BusUnreachable: the bus is silent for long.
        """
        self._record(self._table.read_to_end())

    def _record(
        self, changes: Sequence[tuple[WatermarkOwner, WatermarkStatement | None]]
    ) -> Sequence[tuple[WatermarkOwner, WatermarkStatement | None]]:
        if changes:
            for upstream in self._upstream.values():
                upstream.record(changes)
        return changes

    def begin(self, bucket: Bucket) -> None:
        """Follow a bucket. A reader with a backlog gets the watermarks of its position, if the bus still has those statements."""
        self._buckets[bucket] = BucketWatermarks(bucket, self._upstream[bucket.category], self._is_fresh)

    def drop(self, bucket: Bucket) -> None:
        """Stop following a bucket."""
        self._buckets.pop(bucket, None)

    def at(self, bucket: Bucket, position: int) -> InputWatermark:
        """Return a bucket's watermark for a reader at a position."""
        if not self._table.complete:
            return InputWatermark(NEVER_MS, _STILL_READING)
        is_past = self._is_fresh is assume_alive
        return self._buckets[bucket].at(position, None if is_past else self._table.last_offset)

    def idle_as_of(self, bucket: Bucket) -> float:
        """Return when the idle writers of a bucket had no input. See `BucketWatermarks`."""
        return self._buckets[bucket].idle_as_of()

    def pending_writer(self, bucket: Bucket, position: int) -> str | None:
        """Describe a processor's shard that may still write to a bucket; None without one. See `BucketWatermarks`."""
        if not self._table.complete:
            return _STILL_READING
        return self._buckets[bucket].pending_writer(position)

    def close(self) -> None:
        """Close the connection."""
        self._table.close()
