"""The inputs of a shard merged into one stream, by arrival; the same each time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from .source_events import SourceEvents


class _Head:
    """The next messages of one input.

    Args:
        number: the number of the input.
        first: its first messages.
        rest: its later messages.
    """

    def __init__(self, number: int, first: SourceEvents, rest: Iterator[SourceEvents]) -> None:
        self._number = number
        self._loaded = first
        self._rest = rest
        self._begin = 0
        self.is_done = False

    @property
    def next(self) -> tuple[int, int]:
        """When the next message had arrived, and the number of its input."""
        return self._loaded.arrived_ms[self._begin], self._number

    def take(self, before: tuple[int, int] | None) -> SourceEvents:
        """Return the loaded messages that precede another input's next message."""
        loaded, begin, end = self._loaded, self._begin, len(self._loaded.arrived_ms)
        if before is not None:
            other_ms, other = before
            end = (bisect_right if self._number < other else bisect_left)(loaded.arrived_ms, other_ms, begin)
        self._begin = end
        if end == len(loaded.arrived_ms):
            following = next(self._rest, None)
            self.is_done = following is None
            self._loaded, self._begin = following or loaded, 0
        return loaded.part(begin, end)


def interleaved(inputs: Sequence[Iterator[SourceEvents]]) -> Iterator[SourceEvents]:
    """Yield the messages of several inputs by arrival, each input in its own order; ties go to the first input.

    A worker uses the same order while an input catches up; live events interleave as they are received. A replay therefore always uses the
    same one of the orders that a worker may have used.
    """
    heads = [_Head(number, first, rest) for number, rest in enumerate(inputs) if (first := next(rest, None))]
    while heads:
        heads.sort(key=lambda head: head.next)
        yield heads[0].take(heads[1].next if len(heads) > 1 else None)
        heads = [head for head in heads if not head.is_done]
