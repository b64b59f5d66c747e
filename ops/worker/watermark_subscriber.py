"""What a shard was promised about its inputs: up to which event time they have come, now that they are read so far.

A promiser that says it is idle is not waited for, if what it wrote before is read, and it is alive: it says so again and again. One
that has stopped, or that the bus keeps from speaking, may have work waiting for it.

Source: Akidau et al., "MillWheel", 2013, section 4.5: the least of one's own work and of what comes before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from ...processors.time.watermarks import NEVER_MS
from ...transport.bus import Bus
from ...transport.messages import Bucket
from ...transport.tables.upstream_watermarks import WatermarkOwner, WatermarkStatement, WatermarkTable

KEPT = 64
"""How many promises of one promiser are remembered, or wait until their offsets are read; of more, every other one is left out."""

IsFresh = Callable[[WatermarkStatement], bool]
"""Tells whether a promiser was alive a moment ago, by the newest that it has said of being idle."""


def always(_: WatermarkStatement) -> bool:
    """Take whoever is idle for alive: for those who look back."""
    return True


class Held(NamedTuple):
    """A watermark, and who holds it there, in words."""

    watermark_ms: int
    by: str


class _Promiser:
    """The promises of one promiser about one bucket: those whose offsets are not read yet, and the newest."""

    def __init__(self, newest: WatermarkStatement) -> None:
        self.newest = newest
        self.watermark_ms = NEVER_MS
        self._waiting = deque([newest])

    def add(self, promise: WatermarkStatement) -> None:
        if not _repeats(promise, self.newest):
            self._waiting = _with(self._waiting, promise)
        self.newest = promise

    def reach(self, bucket: Bucket, position: int) -> None:
        """Take the promises that hold for whoever has read a bucket up to a position."""
        while self._waiting and self._waiting[0].ends[bucket.category].get(bucket.number, 0) <= position:
            self.watermark_ms = max(self.watermark_ms, self._waiting.popleft().watermark_ms)

    def is_waited_for(self, is_fresh: IsFresh) -> bool:
        """Whether it may still write: it does not say that it is idle, not all before that is read, or it may have stopped since."""
        return not self.newest.idle or bool(self._waiting) or not is_fresh(self.newest)

    def __str__(self) -> str:
        """Return who it is, and if it says that it is idle, why it is waited for all the same."""
        place = f"{self.newest.writer}/{self.newest.bucket}"
        if not self.newest.idle:
            return place
        if self._waiting:
            return f"{place}, which is idle, but what it wrote before is not read yet"
        return f"{place}, which was idle and has not been heard from since it stopped, or since the bus was away"


def _repeats(promise: WatermarkStatement, earlier: WatermarkStatement) -> bool:
    """Tell whether a promiser only says again that it is idle: it has written nothing since it said so first."""
    return earlier.idle and promise.idle and promise.watermark_ms == earlier.watermark_ms


def _with(kept: deque[WatermarkStatement], promise: WatermarkStatement) -> deque[WatermarkStatement]:
    """Return promises of one promiser and its next one; of many, every other one is left out."""
    if kept and _repeats(promise, kept[-1]):
        kept[-1] = msgspec.structs.replace(promise, ends=kept[-1].ends)
        return kept
    kept.append(promise)
    return kept if len(kept) <= KEPT else deque([*list(kept)[:-1:2], promise])


class Board:
    """The promises about one bucket, for one who reads it from somewhere on.

    Args:
        bucket: which.
        known: what was promised so far, each promiser's in order.
        is_fresh: tells who is alive.
    """

    def __init__(
        self, bucket: Bucket, known: Iterable[tuple[WatermarkOwner, WatermarkStatement]], is_fresh: IsFresh = always
    ) -> None:
        self._bucket = bucket
        self._is_fresh = is_fresh
        self._promisers: dict[WatermarkOwner, _Promiser] = {}
        for place, promise in known:
            self.note(place, promise)

    def note(self, place: WatermarkOwner, promise: WatermarkStatement | None) -> None:
        """Note a promise, or that one is taken back."""
        if promise is None or self._bucket.category not in promise.ends:
            self._promisers.pop(place, None)
        elif place in self._promisers:
            self._promisers[place].add(promise)
        else:
            self._promisers[place] = _Promiser(promise)

    @property
    def some_idle(self) -> bool:
        """Whether somebody says that it is idle, so that it matters whether it is alive."""
        return any(promiser.newest.idle for promiser in self._promisers.values())

    def held(self, position: int) -> Held:
        """Return the watermark of the bucket for whoever has read it up to a position."""
        self._reach(position)
        if not self._promisers:
            return Held(NEVER_MS, f"{self._bucket.category}: nobody promises anything about it")
        missing = _missing(self._promisers)
        return self._least() if missing is None else Held(NEVER_MS, missing)

    def _reach(self, position: int) -> None:
        for promiser in self._promisers.values():
            promiser.reach(self._bucket, position)

    def _least(self) -> Held:
        """Return what those have promised that are not idle; where all are, the last to be waited for was the furthest."""
        promisers = self._promisers.values()
        awake = [one for one in promisers if one.is_waited_for(self._is_fresh)]
        if awake:
            last = min(awake, key=_how_far)
            return Held(last.watermark_ms, str(last))
        last = max(promisers, key=_how_far)
        return Held(last.watermark_ms, f"{last.newest.writer}/{last.newest.bucket}")

    def may_come(self, position: int) -> str | None:
        """Return who may still write to the bucket, in words; None where all processors that write it are idle, or none does.

        What is written from outside is not known here: only silence tells of that.
        """
        self._reach(position)
        processors = {place: one for place, one in self._promisers.items() if not one.newest.outside}
        awake = (str(one) for one in processors.values() if one.is_waited_for(self._is_fresh))
        return _missing(processors) or next(awake, None)


def _how_far(promiser: _Promiser) -> tuple[int, WatermarkOwner]:
    return promiser.watermark_ms, promiser.newest.owner


def _missing(promisers: dict[WatermarkOwner, _Promiser]) -> str | None:
    """Return who of the shards has promised nothing yet, in words."""
    for name, shards in {(name, promiser.newest.shards) for (name, _), promiser in promisers.items()}:
        for number in range(shards):
            if (name, number) not in promisers:
                return f"{name}/{number}: it has promised nothing yet"
    return None


class WatermarkSubscriber:
    """What a worker's shards are promised. One thread.

    Args:
        bus: where promises are; their category exists.
        is_fresh: tells who is alive of those that say they are idle.
    """

    def __init__(self, bus: Bus, is_fresh: IsFresh = always) -> None:
        self._promises = WatermarkTable(bus)
        self._is_fresh = is_fresh
        self._kept: dict[WatermarkOwner, deque[WatermarkStatement]] = {}
        self._boards: dict[Bucket, Board] = {}

    @property
    def is_read(self) -> bool:
        """Whether all that was promised by now is known."""
        return self._promises.complete

    @property
    def some_idle(self) -> bool:
        """Whether it matters who is alive."""
        return any(board.some_idle for board in self._boards.values())

    def read(self) -> None:
        """Take what was promised meanwhile; returns at once."""
        for place, promise in self._promises.read(0.0):
            if promise is None:
                self._kept.pop(place, None)
            else:
                self._kept[place] = _with(self._kept.get(place, deque()), promise)
            for board in self._boards.values():
                board.note(place, promise)

    def begin(self, bucket: Bucket) -> None:
        """Follow a bucket that is read from somewhere on, perhaps from before where it was read.

        Whoever has much to catch up on goes by what was promised on the way, as long as the bus still has that, and not by its end alone.
        """
        known = ((place, each) for place, kept in self._kept.items() for each in kept)
        self._boards[bucket] = Board(bucket, known, self._is_fresh)

    def drop(self, bucket: Bucket) -> None:
        """Follow a bucket no more."""
        self._boards.pop(bucket, None)

    def held(self, bucket: Bucket, position: int) -> Held:
        """Return how far a bucket has come that is read up to a position."""
        if not self._promises.complete:
            return Held(NEVER_MS, "promises are still being read")
        return self._boards[bucket].held(position)

    def may_come(self, bucket: Bucket, position: int) -> str | None:
        """Return which processor may still write to a bucket that is read up to a position, in words; None where none does."""
        if not self._promises.complete:
            return "promises are still being read"
        return self._boards[bucket].may_come(position)

    def close(self) -> None:
        """Read no more."""
        self._promises.close()
