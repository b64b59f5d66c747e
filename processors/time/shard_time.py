"""The event time of a shard: the least that its inputs have come to.

Source: Akidau et al., "MillWheel", 2013, section 4.5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ..keyed_state import key_layout
from ..keyed_state.changes import Changes, StateReader
from .watermarks import FOREVER_MS, NEVER_MS, BucketProgress, BucketTime, Confidence, Watermark

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(BucketProgress).decode
_LOW = key_layout.EVENT_TIMES
"""Where the low watermark is kept; an input's own lies behind it, under its name."""


class Mark(NamedTuple):
    """Where an input and its shard were."""

    progress: BucketProgress
    low_ms: int


class WatermarkHolder(NamedTuple):
    """The input that holds a shard's watermark back.

    Args:
        name: the category's.
        why: what its watermark waits for, in words; empty where that is only the next events.
    """

    name: str
    why: str


class ShardTime:
    """Follows the event time of one shard's inputs.

    Args:
        way: how the watermark of each follows from what came.
        inputs: the names of the categories.
        saved: where each of them was.
    """

    def __init__(self, strategy: Watermark, inputs: Sequence[str], saved: StateReader) -> None:
        low, *found = saved.fetch([_LOW, *map(_key_of_input, inputs)])
        self._strategy = strategy
        self._inputs = {
            name: BucketTime(strategy, BucketProgress() if progress is None else _decode(progress))
            for name, progress in zip(inputs, found, strict=True)
        }
        self._idle: frozenset[str] = frozenset()
        self._moved: set[str] = set()
        self.low_ms = NEVER_MS if low is None else key_layout.decode_time(low)

    @property
    def progress(self) -> dict[str, BucketProgress]:
        """How far each input is."""
        return {name: bucket.progress for name, bucket in self._inputs.items()}

    @property
    def holder(self) -> WatermarkHolder | None:
        """The input that is furthest behind of those that are waited for; None where none is."""
        awake = [name for name in self._inputs if name not in self._idle]
        name = min(awake, key=lambda name: self._inputs[name].watermark_ms, default=None)
        return None if name is None else WatermarkHolder(name, self._inputs[name].waits_for)

    def observe(self, category: str, times: Sequence[int]) -> list[int]:
        """Take the event times of the next events of an input; return the shard's low watermark after each."""
        if not times:
            return []
        self._idle -= {category}
        self._moved.add(category)
        watermarks, floor = self._inputs[category].observe(times), self.low_ms
        others = self._least(name for name in self._inputs if name != category)
        low = [max(min(watermark, others), floor) for watermark in watermarks]
        self.low_ms = low[-1]
        return low

    def advance(self, upstream: Mapping[str, int], idle: Collection[str]) -> int:
        """Take what is known from elsewhere; return the low watermark.

        Args:
            upstream: the upstream watermark of each input that has one (milliseconds since 1970, UTC).
            idle: inputs that nobody is to wait for until they speak again.
        """
        for name, watermark in upstream.items():
            if watermark > self._inputs[name].watermark_ms:
                self._inputs[name].watermark_ms = watermark
                self._moved.add(name)
        self._idle = frozenset(idle)
        least = self._least(self._inputs)
        if least == FOREVER_MS:  # all are idle: the last to be waited for was the furthest
            least = max(bucket.watermark_ms for bucket in self._inputs.values())
        if least > self.low_ms:
            self.low_ms = least
            self._moved.update(self._inputs)
        return self.low_ms

    @property
    def idle(self) -> frozenset[str]:
        """The inputs that nobody waits for."""
        return self._idle

    def wake(self, names: Collection[str]) -> None:
        """Wait for inputs again; how far event time has come without them stays."""
        self._idle -= set(names)

    def mark(self, category: str) -> Mark:
        """Return where an input is, for `go_back`."""
        return Mark(self._inputs[category].progress, self.low_ms)

    def go_back(self, category: str, mark: Mark, times: Sequence[int]) -> None:
        """Take back what was observed of an input since a mark, but for its first events."""
        self._inputs[category] = BucketTime(self._strategy, mark.progress)
        self.low_ms = mark.low_ms
        self.observe(category, times)

    def drain(self) -> Changes:
        """Return what is to be saved since the last time."""
        moved, self._moved = self._moved, set()
        changes: Changes = {_key_of_input(name): _encode(self._inputs[name].progress) for name in sorted(moved)}
        return changes | {_LOW: key_layout.encode_time(self.low_ms)} if moved else changes

    def _least(self, names: Iterable[str]) -> int:
        """Return the least watermark of those that are not idle; where all are, none holds back."""
        return min((self._inputs[name].watermark_ms for name in names if name not in self._idle), default=FOREVER_MS)


class UntrackedTime(ShardTime):
    """The event time where nothing depends on it: it never begins, and costs nothing to follow."""

    def __init__(self) -> None:
        self.low_ms = NEVER_MS

    @property
    def holder(self) -> None:
        """Nothing: nobody asks how far it is."""
        return

    @property
    def idle(self) -> frozenset[str]:
        """None: nobody waits for any."""
        return frozenset()

    def observe(self, category: str, times: Sequence[int]) -> list[int]:  # noqa: ARG002 - nothing follows from them
        """Return that no event is late."""
        return [NEVER_MS] * len(times)

    def mark(self, category: str) -> Mark:  # noqa: ARG002 - likewise
        """Return that it never moves."""
        return Mark(BucketProgress(), NEVER_MS)

    def go_back(self, category: str, mark: Mark, times: Sequence[int]) -> None:
        """Stay where it is."""

    def drain(self) -> Changes:
        """Return that nothing is to be saved."""
        return {}


class OrderedTime:
    """The event time of events that come in its order: that of the last one.

    Args:
        low_ms: where it begins.
    """

    def __init__(self, low_ms: int = NEVER_MS) -> None:
        self.low_ms = low_ms

    def observe(self, category: str, times: Sequence[int]) -> list[int]:  # noqa: ARG002 - they are one stream
        """Take the event times of the next events; return them as the watermark after each."""
        low = [max(time, self.low_ms) for time in times]
        self.low_ms = low[-1] if low else self.low_ms
        return low

    def advance(self, upstream: Mapping[str, int], idle: Collection[str]) -> int:  # noqa: ARG002 - none is waited for
        """Go on to where all inputs are complete."""
        self.low_ms = max(self.low_ms, min(upstream.values()))
        return self.low_ms

    def mark(self, category: str) -> Mark:  # noqa: ARG002 - they are one stream
        """Return where it is, for `go_back`."""
        return Mark(BucketProgress(), self.low_ms)

    def go_back(self, category: str, mark: Mark, times: Sequence[int]) -> None:
        """Take back what was observed since a mark, but for its first events."""
        self.low_ms = mark.low_ms
        self.observe(category, times)

    def drain(self) -> Changes:
        """Return nothing: where it begins is known from elsewhere."""
        return {}


def merge_shard_time(inputs: Sequence[str], states: Sequence[StateReader]) -> Changes:
    """Return how far event time is for a shard whose keys come from several: as far as the one that is furthest behind.

    Args:
        inputs: the names of the categories.
        states: their saved states; of one, it is as it was there.
    """
    found = {place: _saved_at(place, states) for place in (_LOW, *map(_key_of_input, inputs))}
    lows = [key_layout.decode_time(low) for low in found.pop(_LOW)]
    changes: Changes = {place: _encode(_least(list(map(_decode, saved)))) for place, saved in found.items() if saved}
    return changes | ({_LOW: key_layout.encode_time(min(lows))} if lows else {})


def _saved_at(place: bytes, states: Sequence[StateReader]) -> list[bytes]:
    return [saved for state in states for saved in state.fetch([place]) if saved is not None]


def _least(marks: Sequence[BucketProgress]) -> BucketProgress:
    if len(marks) == 1:
        return marks[0]
    counts = sum((Counter(mark.counts) for mark in marks), Counter[int]())
    bounds = [mark.bound_ms for mark in marks if mark.bound_ms is not None]
    return BucketProgress(
        max(mark.events for mark in marks),
        min(mark.newest_ms for mark in marks),
        max(bounds, default=None),
        min(mark.watermark_ms for mark in marks),
        dict(counts),
    )


def saved_watermarks(inputs: Sequence[str], saved: StateReader) -> dict[str, int]:
    """Return the saved watermark of each input (milliseconds since 1970, UTC), of those that have one."""
    marks = {name: progress.watermark_ms for name, progress in ShardTime(Confidence(), inputs, saved).progress.items()}
    return {name: watermark for name, watermark in marks.items() if watermark != NEVER_MS}


def _key_of_input(category: str) -> bytes:
    return key_layout.EVENT_TIMES + category.encode()
