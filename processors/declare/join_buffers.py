"""The buffered events of a join's key, as its methods see them, and which of them a checkpoint has to save.

    a side's newest events --> saved with the key
    older ones             --> chunks, each saved on its own, and again only after a change

A changed chunk is written whole, so that the cost of a checkpoint follows the changed events and not the buffered ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, count
from operator import attrgetter
from typing import Any, NamedTuple

CHUNK_EVENTS = 32
"""The number of events in a new chunk, and the maximum outside of chunks."""


class BufferedEvent(NamedTuple):
    """A buffered event.

    Args:
        at: its event time (milliseconds since 1970, UTC).
        met: whether it has matched an event.
        event: the event.
    """

    at: int
    met: bool
    event: Any


time_of = attrgetter("at")


class Chunk:
    """Consecutive events of a side that are saved together.

    Args:
        number: identifies it among the chunks of its side.
        size: the number of its events.
        is_saved: whether the saved chunk has these events.
    """

    __slots__ = ("is_saved", "number", "size")

    def __init__(self, number: int, size: int, *, is_saved: bool = False) -> None:
        self.number, self.size, self.is_saved = number, size, is_saved


class BufferedSide:
    """The buffered events of one category, in order of event time, and of arrival at equal times.

    Args:
        events: all of them.
        chunks: the chunks of the oldest events, in order.
    """

    __slots__ = ("chunks", "events", "in_chunks")

    def __init__(self, events: list[BufferedEvent], chunks: Iterable[Chunk] = ()) -> None:
        self.events = events
        self.chunks = list(chunks)
        self.in_chunks = sum(chunk.size for chunk in self.chunks)

    @property
    def newest(self) -> Sequence[BufferedEvent]:
        """The events outside of chunks."""
        return self.events[self.in_chunks :] if self.in_chunks else self.events

    def add(self, event: BufferedEvent) -> None:
        """Add an event."""
        at = bisect_right(self.events, event.at, key=time_of)
        self.events.insert(at, event)
        if at < self.in_chunks:
            [chunk] = self._chunks_at([at])
            chunk.size, chunk.is_saved = chunk.size + 1, False
            self.in_chunks += 1

    def mark_met(self, indices: Sequence[int]) -> None:
        """Note that events have matched one, by their indices in ascending order."""
        for at in indices:
            self.events[at] = self.events[at]._replace(met=True)
        if indices and indices[0] < self.in_chunks:
            for chunk in self._chunks_at(at for at in indices if at < self.in_chunks):
                chunk.is_saved = False

    def remove_first(self, count: int) -> list[BufferedEvent]:
        """Remove and return the first events."""
        removed, remaining = self.events[:count], count
        del self.events[:count]
        while self.chunks and remaining:
            first = self.chunks[0]
            if first.size > remaining:
                first.size, first.is_saved = first.size - remaining, False
                break
            remaining -= first.size
            del self.chunks[0]
        self.in_chunks = max(self.in_chunks - count, 0)
        return removed

    def form_chunks(self) -> None:
        """Move the oldest events outside of chunks to new ones until few remain, and divide chunks that have grown."""
        numbers = count(max((chunk.number for chunk in self.chunks), default=-1) + 1)
        self.chunks = [part for chunk in self.chunks for part in _parts(chunk, numbers)]
        while len(self.events) - self.in_chunks > CHUNK_EVENTS:
            self.chunks.append(Chunk(next(numbers), CHUNK_EVENTS))
            self.in_chunks += CHUNK_EVENTS

    def unsaved_chunks(self) -> Iterator[tuple[int, list[BufferedEvent]]]:
        """Yield each chunk whose saved form is missing or old, by its number; it counts as saved from then on."""
        begin = 0
        for chunk in self.chunks:
            if not chunk.is_saved:
                yield chunk.number, self.events[begin : begin + chunk.size]
                chunk.is_saved = True
            begin += chunk.size

    def _chunks_at(self, indices: Iterable[int]) -> list[Chunk]:
        """Return the chunk of each index of an event in a chunk."""
        ends = list(accumulate(chunk.size for chunk in self.chunks))
        return [self.chunks[bisect_right(ends, at)] for at in indices]


def _parts(chunk: Chunk, numbers: Iterator[int]) -> list[Chunk]:
    if chunk.size <= 2 * CHUNK_EVENTS:
        return [chunk]
    further = [Chunk(next(numbers), CHUNK_EVENTS) for _ in range(chunk.size // CHUNK_EVENTS - 1)]
    chunk.size, chunk.is_saved = chunk.size - CHUNK_EVENTS * len(further), False
    return [chunk, *further]


class Arrival(NamedTuple):
    """The change that an event makes to the buffers.

    Args:
        is_left: whether it is an event of the left category.
        event: the event.
        matched: the indices of the buffered events of the other side that it was the first to match, in ascending order.
    """

    is_left: bool
    event: BufferedEvent
    matched: Sequence[int]


class Buffers:
    """The buffered events of a key.

    An event changes them when the next one arrives. Until then, the buffers without it are still there, for an event that is rejected because of
    its outputs.

    Args:
        left: the events of the left category.
        right: the events of the right category.
        arrival: the change of the last event.
    """

    __slots__ = ("_arrival", "left", "right")

    def __init__(self, left: BufferedSide, right: BufferedSide, arrival: Arrival | None = None) -> None:
        self.left, self.right, self._arrival = left, right, arrival

    def after(self, arrival: Arrival) -> Buffers:
        """Return the buffers with an event."""
        return Buffers(self.left, self.right, arrival)

    def settled(self) -> Buffers:
        """Apply the change of the last event, which was accepted; return the buffers."""
        if self._arrival is None:
            return self
        is_left, event, matched = self._arrival
        mine, others = (self.left, self.right) if is_left else (self.right, self.left)
        others.mark_met(matched)
        mine.add(event)
        self._arrival = None
        return self
