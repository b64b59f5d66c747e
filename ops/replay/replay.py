"""A replay: every shard that is asked for, each over its stretch of the past with a scratch state of its own.

    span --past--> stretches --started--> scratch state, events to warm up --played--> outputs, as values

What becomes of the outputs is the business of whoever asks for them: no category, store or position is touched here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor
from ...processors.shard.interleaving import interleaved
from ...processors.shard.position import Offsets
from ...processors.shard.source_events import SourceEvents
from ...transport.messages import Bucket
from ...transport.offset_range import OffsetRange
from .counts import ReplayCounts
from .event_source import EventSource, Span
from .initial_state import Start, Started, started
from .past_watermarks import PastWatermarks
from .shard_replay import ReplayedBatch, ShardReplayer

Plays = Generator[ReplayedBatch, None, None]
"""What is played, as it comes; to be closed by whoever does not ask for all of it."""


@dataclass(frozen=True)
class ReplayCallbacks:
    """Who is told what goes on in a replay.

    Args:
        tell: where states come from, in words.
        watch: which events of the span are about to be fed.
        advance: that some were read.
        playing: which shard is at work.
    """

    tell: Callable[[str], None] = lambda _: None
    watch: Callable[[SourceEvents], None] = lambda _: None
    advance: Callable[[], None] = lambda: None
    playing: Callable[[ShardReplayer], None] = lambda _: None


@dataclass(frozen=True)
class Replay:
    """What is replayed.

    Args:
        processor: opened.
        past: where its events are read.
        span: which of them.
        start: with which state.
        numbers: the bucket numbers of the shards.
        promises: what was promised about the inputs.
    """

    processor: Processor
    past: EventSource
    span: Span
    start: Start
    numbers: Sequence[int]
    promises: PastWatermarks

    def shards(self) -> list[ShardReplay]:
        """Return the shards, each with what it has to read of the span.

        Raises:
            ReplayRefused: what is asked for is not kept.
        """
        return [ShardReplay(self, number, self._stretches(number)) for number in self.numbers]

    def _stretches(self, number: int) -> tuple[OffsetRange, ...]:
        inputs = self.processor.inputs()
        return tuple(self.past.stretch(Bucket(category.name, number), self.span) for category in inputs)


@dataclass(frozen=True)
class ShardReplay:
    """One shard of a replay.

    Args:
        replay: which.
        number: the shard's bucket number.
        stretches: what of each input lies in the span.
    """

    replay: Replay
    number: int
    stretches: Sequence[OffsetRange]

    def play(self, counts: ReplayCounts, company: ReplayCallbacks) -> Plays:
        """Play it; give what it gives, as it comes. The scratch state is gone when that ends.

        Args:
            counts: counts what is done.
            company: is told what goes on.
        """
        replay = self.replay
        with started(replay.processor, self.number, replay.start, replay.past, self.stretches) as begun:
            if begun.tells:
                company.tell(f"{replay.processor.name}, bucket {self.number}, {begun.tells}.")
            playing = ShardReplayer(
                replay.processor,
                self.number,
                begun.state,
                borders=self._borders(),
                span=replay.span,
                counts=counts,
                promises=replay.promises,
            )
            company.playing(playing)
            yield from playing.play(self._watched(self._stream(begun), company), self._ends())

    def _watched(self, stream: Iterator[SourceEvents], company: ReplayCallbacks) -> Iterator[SourceEvents]:
        borders = self._borders()
        for seen in stream:
            inside = seen.part(seen.at_offset(borders[seen.category.name]), len(seen.offsets))
            if inside.events:
                company.watch(inside)
            company.advance()
            yield seen

    def _borders(self) -> Offsets:
        return {stretch.bucket.category: stretch.start for stretch in self.stretches}

    def _stream(self, begun: Started) -> Iterator[SourceEvents]:
        return interleaved([self._read(category, begun) for category in self.replay.processor.inputs()])

    def _read(self, category: AnyCategory, begun: Started) -> Iterator[SourceEvents]:
        [stretch] = [one for one in self.stretches if one.bucket.category == category.name]
        return self.replay.past.read(category, stretch._replace(start=begun.begins[category.name]))

    def _ends(self) -> Offsets:
        return {stretch.bucket.category: stretch.end for stretch in self.stretches}


def one_by_one(shards: Sequence[ShardReplay], play: Callable[[ShardReplay], Plays]) -> Plays:
    """Play shards one after the other."""
    for shard in shards:
        yield from play(shard)


def side_by_side(shards: Sequence[ShardReplay], play: Callable[[ShardReplay], Plays]) -> Plays:
    """Play shards as they ran, by when their events had arrived."""
    with ExitStack() as plays:
        streams = [plays.enter_context(closing(play(shard))) for shard in shards]
        yield from heapq.merge(*streams, key=lambda played: played.at_ms)
