"""The watermarks of the shards that write a category, for all of its buckets that a worker reads.

    statements read together, with the same end offsets --> a level
    a bucket is read up to those offsets                --> it has reached the level, and the watermarks in it apply
    the watermarks that apply                           --> a summary, which all buckets at the same level share

Each bucket needs the minimum over all shards. Buckets of one category are usually at the same level, so the work grows with the shards and with
the buckets, but not with their product.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf
from operator import attrgetter
from typing import NamedTuple
from weakref import WeakValueDictionary

from ....processors.time import NEVER_MS
from ....transport.tables import WatermarkOwner, WatermarkStatement

MAX_LEVELS = 256
"""The number of levels that are kept. Beyond it, each two neighbours become one: the later offsets, with the watermarks of both."""

IsFresh = Callable[[WatermarkStatement], bool]
"""Returns whether an idle upstream shard was alive a moment ago, by its newest statement. If it was, so was each with a later `as_of`."""


class _Level(NamedTuple):
    """Watermarks that apply from the same end offsets.

    Args:
        number: increases from level to level.
        ends: the offsets, by bucket.
        watermarks_ms: the watermarks.
    """

    number: int
    ends: Mapping[int, int]
    watermarks_ms: Mapping[WatermarkOwner, int]


class ShardProgress(NamedTuple):
    """One upstream shard, as a bucket's reader sees it.

    Args:
        newest: its newest statement.
        watermark_ms: its watermark that applies (milliseconds since 1970, UTC).
        is_unread: whether it may have outputs that are not read yet.
    """

    newest: WatermarkStatement
    watermark_ms: int
    is_unread: bool

    @property
    def may_be_idle(self) -> bool:
        """Whether it does not hold back the watermark, if it is alive."""
        return self.newest.idle and not self.is_unread

    @property
    def last_sign(self) -> float:
        """The date of its last sign of life; infinite if its run has ended, so that it needs none."""
        return inf if self.newest.ended else self.newest.as_of

    @property
    def idle_as_of(self) -> float:
        """When it had no input: an offset of the statements; infinite if its run has ended."""
        return inf if self.newest.ended else self.newest.idle_as_of

    @property
    def name(self) -> str:
        """The processor and bucket, such as ``filter/3``."""
        return f"{self.newest.writer}/{self.newest.bucket}"

    def __str__(self) -> str:
        """Return the name, and the reason why it holds the watermark back, if it is not only its next events."""
        if not self.newest.idle:
            return f"{self.name}, held back by {self.newest.held_by}" if self.newest.held_by else self.name
        if self.is_unread:
            return f"{self.name}, which is idle, but its earlier outputs are not read yet"
        return f"{self.name}, which was idle and has not been heard from since it stopped or the bus failed"


_slowness = attrgetter("watermark_ms", "newest.owner")
_idle_as_of = attrgetter("idle_as_of")


class Summary:
    """What the watermark of a bucket follows from, without the time that has passed.

    Args:
        shards: the upstream shards.
    """

    def __init__(self, shards: Sequence[ShardProgress]) -> None:
        self.shards = shards
        self.missing = _missing_shard([shard.newest for shard in shards])
        """A shard without a statement; None if all shards have one."""
        self.idle_as_of = min(map(_idle_as_of, shards), default=inf)
        """When all of them had no input: an offset of the statements; infinite without shards, or if all runs have ended."""
        self._quiet = sorted((shard for shard in shards if shard.may_be_idle), key=attrgetter("last_sign"))
        self._slowest_active = min((shard for shard in shards if not shard.may_be_idle), key=_slowness, default=None)
        # The slowest of the first quiet shards, and the slowest and the longest idle one of the last.
        self._slowest_to = list(accumulate(self._quiet, _slower))
        self._slowest_from = list(accumulate(reversed(self._quiet), _slower))[::-1]
        self._oldest_from = list(accumulate(reversed(self._quiet), _longer_idle))[::-1]

    @property
    def fastest(self) -> ShardProgress:
        """The shard with the greatest watermark."""
        return max(self.shards, key=_slowness)

    def blocking(self, is_fresh: IsFresh) -> ShardProgress | None:
        """Return the slowest shard that may still write: it is not idle, has unread outputs, or may have stopped before the end of its input."""
        silent = self._slowest_to[: self._silent(is_fresh)][-1:]
        active = [] if self._slowest_active is None else [self._slowest_active]
        return min([*silent, *active], key=_slowness, default=None)

    def idle(self, is_fresh: IsFresh) -> tuple[ShardProgress, ShardProgress] | None:
        """Return the longest idle and the slowest of the idle shards that are alive; None without one."""
        silent = self._silent(is_fresh)
        return None if silent == len(self._quiet) else (self._oldest_from[silent], self._slowest_from[silent])

    def _silent(self, is_fresh: IsFresh) -> int:
        """Return the number of the idle shards without a recent sign of life, which are the first."""
        return bisect_left(self._quiet, 1, key=lambda shard: shard.newest.ended or is_fresh(shard.newest))


def _slower(one: ShardProgress, other: ShardProgress) -> ShardProgress:
    return min(one, other, key=_slowness)


def _longer_idle(one: ShardProgress, other: ShardProgress) -> ShardProgress:
    return min(one, other, key=_idle_as_of)


def _missing_shard(statements: Iterable[WatermarkStatement]) -> str | None:
    """Describe a shard without a statement; None if all shards have one."""
    known: dict[tuple[str, int], set[int]] = {}
    for statement in statements:
        known.setdefault((statement.writer, statement.shards), set()).add(statement.bucket)
    for (name, shards), numbers in known.items():
        missing = next((number for number in range(shards) if number not in numbers), None)
        if missing is not None:
            return f"{name}/{missing}: it has published no watermark yet"
    return None


class Reached:
    """The watermarks that apply for buckets at the same level.

    Args:
        number: the level.
        watermarks_ms: the watermarks.
    """

    def __init__(self, number: int, watermarks_ms: dict[WatermarkOwner, int]) -> None:
        self.number = number
        self.watermarks_ms = watermarks_ms
        self.summaries: dict[bool, Summary] = {}
        """The summaries of all shards, and of those of processors, until the next statement."""


class UpstreamShards:
    """The statements of the shards that write one category. One thread.

    Args:
        category: the category.
    """

    def __init__(self, category: str) -> None:
        self.category = category
        self._newest: dict[WatermarkOwner, WatermarkStatement] = {}
        self._level_of: dict[WatermarkOwner, int] = {}
        self._levels: list[_Level] = []
        self._number = 0
        self._reached: WeakValueDictionary[int, Reached] = WeakValueDictionary()

    @property
    def has_idle(self) -> bool:
        """Whether a shard is idle, so that its freshness matters."""
        return any(statement.idle for statement in self._newest.values())

    def record(self, statements: Iterable[tuple[WatermarkOwner, WatermarkStatement | None]]) -> None:
        """Record statements that were read together, in order; None for a removed shard."""
        ends: Mapping[int, int] | None = None
        together: dict[WatermarkOwner, int] = {}
        for owner, statement in statements:
            if statement is None or self.category not in statement.ends:
                ends = None if self._remove(owner) else ends
                continue
            if not self._repeats(owner, statement):
                if statement.ends[self.category] is not ends:
                    ends, together = statement.ends[self.category], {}
                    self._number += 1
                    self._levels.append(_Level(self._number, ends, together))
                together[owner] = statement.watermark_ms
                self._level_of[owner] = self._number
            self._newest[owner] = statement
        if len(self._levels) > MAX_LEVELS:
            self._thin()
        for reached in self._reached.values():
            reached.summaries.clear()

    def _repeats(self, owner: WatermarkOwner, statement: WatermarkStatement) -> bool:
        """Return whether an idle shard only repeats its statement, without outputs in between."""
        earlier = self._newest.get(owner)
        is_same = earlier is not None and earlier.watermark_ms == statement.watermark_ms
        return is_same and earlier is not None and earlier.idle and statement.idle

    def _remove(self, owner: WatermarkOwner) -> bool:
        """Remove a shard from all levels, which are other objects then; return whether it was there."""
        if self._newest.pop(owner, None) is None:
            return False
        self._levels = [
            level._replace(watermarks_ms={each: at for each, at in level.watermarks_ms.items() if each != owner})
            for level in self._levels
        ]
        for reached in self._reached.values():
            reached.watermarks_ms.pop(owner, None)
        return True

    def _thin(self) -> None:
        pairs = zip(self._levels[::2], self._levels[1::2], strict=False)
        last = self._levels[-1:] if len(self._levels) % 2 else []
        merged = (
            second._replace(watermarks_ms={**first.watermarks_ms, **second.watermarks_ms}) for first, second in pairs
        )
        self._levels = [*merged, *last]

    def begin(self) -> Reached:
        """Return what a bucket has reached whose reader has read nothing."""
        return self._reached.setdefault(0, Reached(0, {}))

    def advance(self, reached: Reached, bucket: int, position: int) -> Reached:
        """Return what a bucket has reached at a position, from what it had reached before."""
        first = bisect_right(self._levels, reached.number, key=attrgetter("number"))
        end = first
        while end < len(self._levels) and self._levels[end].ends.get(bucket, 0) <= position:
            end += 1
        if end == first:
            return reached
        number = self._levels[end - 1].number
        known = self._reached.get(number)
        if known is None:
            watermarks_ms = dict(reached.watermarks_ms)
            for level in self._levels[first:end]:
                watermarks_ms.update(level.watermarks_ms)
            self._reached[number] = known = Reached(number, watermarks_ms)
        return known

    def summary(self, reached: Reached, *, with_outside: bool) -> Summary:
        """Return the summary for buckets at a level, with or without the writers outside of Penstock."""
        found = reached.summaries.get(with_outside)
        if found is None:
            found = Summary(
                [
                    ShardProgress(
                        statement, reached.watermarks_ms.get(owner, NEVER_MS), self._level_of[owner] > reached.number
                    )
                    for owner, statement in self._newest.items()
                    if with_outside or not statement.outside
                ]
            )
            reached.summaries[with_outside] = found
        return found
