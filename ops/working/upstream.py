"""What a shard was promised about its inputs: up to which event time they have come, now that they are read so far.

Source: Akidau et al., "MillWheel", 2013, section 4.5: the least of one's own work and of what comes before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ...processors.watermarks import NEVER_MS
from ...transport.bus import Bucket, Bus
from ...transport.promises import Place, Promise, Promises

KEPT = 64
"""How many promises of one promiser are remembered, or wait until their offsets are read; of more, every other one is left out."""


class Held(NamedTuple):
    """A watermark, and who holds it there, in words."""

    watermark_ms: int
    by: str


class _Promiser:
    """The promises of one promiser about one bucket: those whose offsets are not read yet, and the newest."""

    def __init__(self, newest: Promise) -> None:
        self.newest = newest
        self.watermark_ms = NEVER_MS
        self._waiting = deque([newest])

    def add(self, promise: Promise) -> None:
        self.newest = promise
        self._waiting = _with(self._waiting, promise)

    def reach(self, bucket: Bucket, position: int) -> None:
        """Take the promises that hold for whoever has read a bucket up to a position."""
        while self._waiting and self._waiting[0].ends[bucket.category].get(bucket.number, 0) <= position:
            self.watermark_ms = max(self.watermark_ms, self._waiting.popleft().watermark_ms)


def _with(kept: deque[Promise], promise: Promise) -> deque[Promise]:
    """Return promises of one promiser and its next one; of many, every other one is left out."""
    kept.append(promise)
    return kept if len(kept) <= KEPT else deque([*list(kept)[:-1:2], promise])


class Board:
    """The promises about one bucket, for one who reads it from somewhere on.

    Args:
        bucket: which.
        known: what was promised so far, each promiser's in order.
    """

    def __init__(self, bucket: Bucket, known: Iterable[tuple[Place, Promise]]) -> None:
        self._bucket = bucket
        self._promisers: dict[Place, _Promiser] = {}
        for place, promise in known:
            self.note(place, promise)

    def note(self, place: Place, promise: Promise | None) -> None:
        """Note a promise, or that one is taken back."""
        if promise is None or self._bucket.category not in promise.ends:
            self._promisers.pop(place, None)
        elif place in self._promisers:
            self._promisers[place].add(promise)
        else:
            self._promisers[place] = _Promiser(promise)

    def held(self, position: int) -> Held:
        """Return the watermark of the bucket for whoever has read it up to a position."""
        for promiser in self._promisers.values():
            promiser.reach(self._bucket, position)
        return self._missing() or self._least()

    def _least(self) -> Held:
        """Return what those have promised that are not idle; where all are, the last to be waited for was the furthest."""
        held = {place: Held(one.watermark_ms, f"{place[0]}/{place[1]}") for place, one in self._promisers.items()}
        awake = [held[place] for place, one in self._promisers.items() if not one.newest.idle]
        return min(awake) if awake else max(held.values())

    def _missing(self) -> Held | None:
        if not self._promisers:
            return Held(NEVER_MS, f"{self._bucket.category}: nobody promises anything about it")
        for name, shards in {(name, promiser.newest.shards) for (name, _), promiser in self._promisers.items()}:
            for number in range(shards):
                if (name, number) not in self._promisers:
                    return Held(NEVER_MS, f"{name}/{number}: it has promised nothing yet")
        return None


class Upstream:
    """What a worker's shards are promised. One thread.

    Args:
        bus: where promises are; their category exists.
    """

    def __init__(self, bus: Bus) -> None:
        self._promises = Promises(bus)
        self._kept: dict[Place, deque[Promise]] = {}
        self._boards: dict[Bucket, Board] = {}

    @property
    def is_read(self) -> bool:
        """Whether all that was promised by now is known."""
        return self._promises.complete

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
        self._boards[bucket] = Board(bucket, ((place, each) for place, kept in self._kept.items() for each in kept))

    def drop(self, bucket: Bucket) -> None:
        """Follow a bucket no more."""
        self._boards.pop(bucket, None)

    def held(self, bucket: Bucket, position: int) -> Held:
        """Return how far a bucket has come that is read up to a position."""
        if not self._promises.complete:
            return Held(NEVER_MS, "promises are still being read")
        return self._boards[bucket].held(position)

    def close(self) -> None:
        """Read no more."""
        self._promises.close()
