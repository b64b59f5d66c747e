"""Upstream watermarks of a worker's input buckets, from the statements that upstream shards publish on the bus.

    statement: "every later output of this shard lies behind these offsets and after this event time"
    offsets read -> the statement applies -> the minimum over all upstream shards -> the bucket's watermark

An idle upstream shard does not hold the watermark back if two conditions are met: its earlier outputs are read, and it is alive, which it
shows by repeating its statement. A stopped shard, or one that cannot reach the bus, may have unprocessed input.

Source: Akidau et al., "MillWheel", 2013, section 4.5: the minimum of a computation's own work and its inputs' watermarks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from ...processors.time.idleness import IdleTimeout
from ...processors.time.watermarks import NEVER_MS
from ...transport.bus import Bus
from ...transport.messages import Bucket
from ...transport.tables.upstream_watermarks import WatermarkOwner, WatermarkStatement, WatermarkTable

MAX_STATEMENTS = 64
"""The number of statements of one upstream shard that are kept. Beyond it, every other one is dropped."""
REPEAT_EVERY_S = 2.0
"""The interval at which an idle shard repeats its statement."""
FRESH_FOR_S = 8.0
"""How long a statement of an idle shard stays fresh. Repetitions are dated by each other, so they look up to two intervals old."""
_STILL_READING = "the worker is still reading the upstream watermarks"

IsFresh = Callable[[WatermarkStatement], bool]
"""Returns whether an idle upstream shard was alive a moment ago, by its newest statement."""


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


class _UpstreamShard:
    """The statements of one upstream shard about one bucket: the newest, and those with unread offsets."""

    def __init__(self, newest: WatermarkStatement) -> None:
        self.newest = newest
        self.watermark_ms = NEVER_MS
        self._unread = deque([newest])

    def add(self, statement: WatermarkStatement) -> None:
        """Add the shard's next statement."""
        if not _repeats(statement, self.newest):
            self._unread = _appended(self._unread, statement)
        self.newest = statement

    def reach(self, bucket: Bucket, position: int) -> None:
        """Apply the statements whose offsets in a bucket are read."""
        while self._unread and self._unread[0].ends[bucket.category].get(bucket.number, 0) <= position:
            self.watermark_ms = max(self.watermark_ms, self._unread.popleft().watermark_ms)

    def is_blocking(self, is_fresh: IsFresh) -> bool:
        """Return whether the shard may still write: it is not idle, has unread outputs, or may have stopped."""
        return not self.newest.idle or bool(self._unread) or not is_fresh(self.newest)

    @property
    def name(self) -> str:
        """The processor and bucket, such as ``filter/3``."""
        return f"{self.newest.writer}/{self.newest.bucket}"

    def __str__(self) -> str:
        """Return the name, and for an idle shard the reason why it still holds the watermark back."""
        if not self.newest.idle:
            return self.name
        if self._unread:
            return f"{self.name}, which is idle, but its earlier outputs are not read yet"
        return f"{self.name}, which was idle and has not been heard from since it stopped or the bus failed"


def _repeats(statement: WatermarkStatement, earlier: WatermarkStatement) -> bool:
    """Return whether an idle shard only repeats its statement, without outputs in between."""
    return earlier.idle and statement.idle and statement.watermark_ms == earlier.watermark_ms


def _appended(kept: deque[WatermarkStatement], statement: WatermarkStatement) -> deque[WatermarkStatement]:
    """Return the statements of one shard with its next one; beyond the limit, without every other one."""
    if kept and _repeats(statement, kept[-1]):
        kept[-1] = msgspec.structs.replace(statement, ends=kept[-1].ends)
        return kept
    kept.append(statement)
    return kept if len(kept) <= MAX_STATEMENTS else deque([*list(kept)[:-1:2], statement])


class BucketWatermarks:
    """The upstream watermarks of one bucket, by reading position.

    Args:
        bucket: the bucket.
        statements: all statements so far, in order for each upstream shard.
        is_fresh: returns whether an idle shard is alive.
    """

    def __init__(
        self,
        bucket: Bucket,
        statements: Iterable[tuple[WatermarkOwner, WatermarkStatement]],
        is_fresh: IsFresh = assume_alive,
    ) -> None:
        self._bucket = bucket
        self._is_fresh = is_fresh
        self._upstream: dict[WatermarkOwner, _UpstreamShard] = {}
        for owner, statement in statements:
            self.record(owner, statement)

    def record(self, owner: WatermarkOwner, statement: WatermarkStatement | None) -> None:
        """Record the next statement of an upstream shard; None if the shard was removed."""
        if statement is None or self._bucket.category not in statement.ends:
            self._upstream.pop(owner, None)
        elif owner in self._upstream:
            self._upstream[owner].add(statement)
        else:
            self._upstream[owner] = _UpstreamShard(statement)

    @property
    def has_idle(self) -> bool:
        """Whether an upstream shard is idle, so that its freshness matters."""
        return any(shard.newest.idle for shard in self._upstream.values())

    def at(self, position: int) -> InputWatermark:
        """Return the bucket's watermark for a reader at a position."""
        self._reach(position)
        if not self._upstream:
            return InputWatermark(NEVER_MS, f"{self._bucket.category}: no processor publishes a watermark for it")
        missing = _missing_shard(self._upstream)
        return self._minimum() if missing is None else InputWatermark(NEVER_MS, missing)

    def _reach(self, position: int) -> None:
        for shard in self._upstream.values():
            shard.reach(self._bucket, position)

    def _minimum(self) -> InputWatermark:
        """Return the minimum over blocking shards. If none blocks, the maximum counts, since the last one to block had it."""
        shards = self._upstream.values()
        blocking = [shard for shard in shards if shard.is_blocking(self._is_fresh)]
        if blocking:
            slowest = min(blocking, key=_by_watermark)
            return InputWatermark(slowest.watermark_ms, str(slowest))
        fastest = max(shards, key=_by_watermark)
        return InputWatermark(fastest.watermark_ms, fastest.name)

    def pending_writer(self, position: int) -> str | None:
        """Describe a processor's shard that may still write to the bucket; None if all are idle, or no processor writes it.

        Writers outside of Penstock publish no idleness. Only silence shows that they have no events.
        """
        self._reach(position)
        processors = {owner: shard for owner, shard in self._upstream.items() if not shard.newest.outside}
        blocking = (str(shard) for shard in processors.values() if shard.is_blocking(self._is_fresh))
        return _missing_shard(processors) or next(blocking, None)


def _by_watermark(shard: _UpstreamShard) -> tuple[int, WatermarkOwner]:
    return shard.watermark_ms, shard.newest.owner


def _missing_shard(upstream: dict[WatermarkOwner, _UpstreamShard]) -> str | None:
    """Describe a shard without a statement; None if all shards have one."""
    for name, shards in {(name, shard.newest.shards) for (name, _), shard in upstream.items()}:
        for number in range(shards):
            if (name, number) not in upstream:
                return f"{name}/{number}: it has published no watermark yet"
    return None


class WatermarkSubscriber:
    """Reads the upstream watermarks of a worker's buckets. One thread.

    Args:
        bus: contains the statements; their category exists.
        is_fresh: returns whether an idle shard is alive.
    """

    def __init__(self, bus: Bus, is_fresh: IsFresh = assume_alive) -> None:
        self._table = WatermarkTable(bus)
        self._is_fresh = is_fresh
        self._statements: dict[WatermarkOwner, deque[WatermarkStatement]] = {}
        self._buckets: dict[Bucket, BucketWatermarks] = {}

    @property
    def is_read(self) -> bool:
        """Whether all existing statements are read."""
        return self._table.complete

    @property
    def has_idle(self) -> bool:
        """Whether an upstream shard is idle, so that its freshness matters."""
        return any(bucket.has_idle for bucket in self._buckets.values())

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
        for owner, statement in changes:
            if statement is None:
                self._statements.pop(owner, None)
            else:
                self._statements[owner] = _appended(self._statements.get(owner, deque()), statement)
            for bucket in self._buckets.values():
                bucket.record(owner, statement)
        return changes

    def begin(self, bucket: Bucket) -> None:
        """Follow a bucket. A reader with a backlog gets the watermarks of its position, if the bus still has those statements."""
        kept = ((owner, statement) for owner, queue in self._statements.items() for statement in queue)
        self._buckets[bucket] = BucketWatermarks(bucket, kept, self._is_fresh)

    def drop(self, bucket: Bucket) -> None:
        """Stop following a bucket."""
        self._buckets.pop(bucket, None)

    def at(self, bucket: Bucket, position: int) -> InputWatermark:
        """Return a bucket's watermark for a reader at a position."""
        if not self._table.complete:
            return InputWatermark(NEVER_MS, _STILL_READING)
        return self._buckets[bucket].at(position)

    def pending_writer(self, bucket: Bucket, position: int) -> str | None:
        """Describe a processor's shard that may still write to a bucket; None without one. See `BucketWatermarks`."""
        if not self._table.complete:
            return _STILL_READING
        return self._buckets[bucket].pending_writer(position)

    def close(self) -> None:
        """Close the connection."""
        self._table.close()
