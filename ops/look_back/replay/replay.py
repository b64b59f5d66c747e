"""Replay of several shards over past events, each with its own temporary state.

    span --event source--> offset ranges --initial state--> temporary state, warm-up events --played--> outputs, as values

A replay writes to no category, store or position. The caller decides about the outputs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from ....processors.declare import AnyCategory, Processor, plan_of
from ....processors.shard import Offsets, SourceEvents, interleaved
from ....state import ShardState
from ....transport import Bucket, OffsetRange
from .event_source import EventSource, PastRange
from .initial_state import Start, StartedShard, started_shard
from .past_watermarks import PastWatermarks
from .shard_replay import ReplayCounts, ReplayedBatch, ShardReplayer

Plays = Generator[ReplayedBatch, None, None]
"""Batches of outputs. A caller that does not read all of them closes it."""


@dataclass(frozen=True)
class ReplayCallbacks:
    """Callbacks of a replay.

    Args:
        tell: receives the origin of each state, as text.
        watch: receives events of the span before they are processed.
        advance: called after events were read.
        playing: receives the current shard.
        finished: receives the temporary state of each shard after its last event; None without state.
    """

    tell: Callable[[str], None] = lambda _: None
    watch: Callable[[SourceEvents], None] = lambda _: None
    advance: Callable[[], None] = lambda: None
    playing: Callable[[ShardReplayer], None] = lambda _: None
    finished: Callable[[ShardState | None], None] | None = None


@dataclass(frozen=True)
class Replay:
    """A replay of some shards.

    Args:
        processor: the opened processor.
        past: the source of its events.
        span: the range of events.
        start: the initial state.
        numbers: the bucket numbers of the shards.
        upstream: the past watermarks of the inputs.
    """

    processor: Processor
    past: EventSource
    span: PastRange
    start: Start
    numbers: Sequence[int]
    upstream: PastWatermarks

    def shards(self) -> list[ShardReplay]:
        """Return the shards with their offset ranges.

        Raises:
            ReplayRefused: some events of the span have expired.
        """
        return [ShardReplay(self, number, self._stretches(number)) for number in self.numbers]

    def _stretches(self, number: int) -> tuple[OffsetRange, ...]:
        inputs = plan_of(self.processor).inputs
        return tuple(self.past.stretch(Bucket(category.name, number), self.span) for category in inputs)


@dataclass(frozen=True)
class ShardReplay:
    """One shard of a replay.

    Args:
        replay: the replay.
        number: the shard's bucket number.
        stretches: the offset range of each input.
    """

    replay: Replay
    number: int
    stretches: Sequence[OffsetRange]

    def play(self, counts: ReplayCounts, callbacks: ReplayCallbacks) -> Plays:
        """Replay the shard and yield its outputs. The temporary state is deleted at the end.

        Args:
            counts: receives the counts.
            callbacks: the callbacks.
        """
        replay = self.replay
        with started_shard(replay.processor, self.number, replay.start, replay.past, self.stretches) as shard:
            if shard.origin:
                callbacks.tell(f"{replay.processor.name}, bucket {self.number}, {shard.origin}.")
            playing = ShardReplayer(
                replay.processor,
                self.number,
                shard.state,
                borders=self._borders(),
                span=replay.span,
                counts=counts,
                upstream=replay.upstream,
            )
            callbacks.playing(playing)
            yield from playing.play(self._watched(self._stream(shard), callbacks), self._ends())
            if callbacks.finished is not None:
                playing.save()
                callbacks.finished(shard.state)

    def _watched(self, stream: Iterator[SourceEvents], callbacks: ReplayCallbacks) -> Iterator[SourceEvents]:
        borders = self._borders()
        for events in stream:
            inside = events.part(events.at_offset(borders[events.category.name]), len(events.offsets))
            if inside.events:
                callbacks.watch(inside)
            callbacks.advance()
            yield events

    def _borders(self) -> Offsets:
        return {stretch.bucket.category: stretch.start for stretch in self.stretches}

    def _stream(self, shard: StartedShard) -> Iterator[SourceEvents]:
        return interleaved([self._read(category, shard) for category in plan_of(self.replay.processor).inputs])

    def _read(self, category: AnyCategory, shard: StartedShard) -> Iterator[SourceEvents]:
        [stretch] = [offset_range for offset_range in self.stretches if offset_range.bucket.category == category.name]
        return self.replay.past.read(category, stretch._replace(start=shard.start_offsets[category.name]))

    def _ends(self) -> Offsets:
        return {stretch.bucket.category: stretch.end for stretch in self.stretches}


def one_by_one(shards: Sequence[ShardReplay], play: Callable[[ShardReplay], Plays]) -> Plays:
    """Replay shards one after the other."""
    for shard in shards:
        yield from play(shard)


def side_by_side(shards: Sequence[ShardReplay], play: Callable[[ShardReplay], Plays]) -> Plays:
    """Replay shards together, in the order of arrival times."""
    with ExitStack() as plays:
        streams = [plays.enter_context(closing(play(shard))) for shard in shards]
        yield from heapq.merge(*streams, key=lambda played: played.at_ms)


def paced(
    played: Plays,
    speed: float,
    *,
    monotonic_s: Callable[[], float],
    sleep: Callable[[float], None],
) -> Plays:
    """Delay batches to a multiple of the original speed; warm-up batches are not delayed.

    Args:
        played: the batches, in order of time.
        speed: the seconds of the past for each second.
        monotonic_s: returns the time in seconds.
        sleep: waits for some seconds.
    """
    began: tuple[float, int] | None = None
    with closing(played):
        for outputs in played:
            if not outputs.state_only:
                now_s = monotonic_s()
                began = began or (now_s, outputs.at_ms)
                begun_s, begun_ms = began
                wait_s = begun_s + (outputs.at_ms - begun_ms) / 1000 / speed - now_s
                if wait_s > 0:
                    sleep(wait_s)
            yield outputs
