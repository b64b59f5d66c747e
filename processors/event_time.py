"""The event time of a shard: the least that its inputs have come to.

Source: Akidau et al., "MillWheel", 2013, section 4.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from . import spaces
from .changes import Changes, StateReader
from .watermarks import FOREVER_MS, NEVER_MS, BucketTime, Confidence, Progress, Watermark

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Progress).decode


class ShardTime:
    """Follows the event time of one shard's inputs.

    Args:
        way: how the watermark of each follows from what came.
        inputs: the names of the categories.
        saved: where each of them was.
    """

    def __init__(self, way: Watermark, inputs: Sequence[str], saved: StateReader) -> None:
        found = saved.fetch([_place_of(name) for name in inputs])
        self._way = way
        self._inputs = {
            name: BucketTime(way, Progress() if progress is None else _decode(progress))
            for name, progress in zip(inputs, found, strict=True)
        }
        self._moved: set[str] = set()
        self.low_ms = self._least(self._inputs)

    @property
    def progress(self) -> dict[str, Progress]:
        """How far each input is."""
        return {name: bucket.progress for name, bucket in self._inputs.items()}

    def observe(self, category: str, times: Sequence[int]) -> list[int]:
        """Take the event times of the next events of an input; return the shard's low watermark after each."""
        self._moved.add(category)
        low = watermarks = self._inputs[category].observe(times)
        others = [name for name in self._inputs if name != category]
        if others:
            least = self._least(others)
            low = [min(watermark, least) for watermark in watermarks]
        if low:
            self.low_ms = low[-1]
        return low

    def mark(self, category: str) -> Progress:
        """Return where an input is, for `go_back`."""
        return self._inputs[category].progress

    def go_back(self, category: str, mark: Progress, times: Sequence[int]) -> None:
        """Take back what was observed of an input since a mark, but for its first events."""
        self._inputs[category] = BucketTime(self._way, mark)
        self.low_ms = self._least(self._inputs)
        self.observe(category, times)

    def drain(self) -> Changes:
        """Return what is to be saved since the last time."""
        moved, self._moved = self._moved, set()
        return {_place_of(name): _encode(self._inputs[name].progress) for name in sorted(moved)}

    def _least(self, names: Iterable[str]) -> int:
        return min((self._inputs[name].watermark_ms for name in names), default=FOREVER_MS)


def saved_watermarks(inputs: Sequence[str], saved: StateReader) -> dict[str, int]:
    """Return the saved watermark of each input (milliseconds since 1970, UTC), of those that have one."""
    marks = {name: progress.watermark_ms for name, progress in ShardTime(Confidence(), inputs, saved).progress.items()}
    return {name: watermark for name, watermark in marks.items() if watermark != NEVER_MS}


def _place_of(category: str) -> bytes:
    return spaces.CLOCKS + category.encode()
