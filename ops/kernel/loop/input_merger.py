"""Merges the inputs of a shard by arrival time on the bus, whichever the reader fetches first.

    polled batches --queued by bucket--> the earliest batch, once each input has one --> processed

During a catch-up, the reader fetches each input as fast as it can, so one may be far ahead of the other. A join would keep all of its events
until the other's arrive. So an event waits for earlier events of other inputs, and an input with a long queue is paused. An input that is read
to its end delays nothing, and one without a batch delays the others only for a moment.

While a state catches up without outputs, each input stops at the offset up to which outputs exist, until all inputs have reached theirs. Else a
new event of one input would meet old events of another, and their results would mix both times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from ....transport import Bucket, End, Polled, Position, RawBatch, Reader
from ...shell import MachineClock
from .queue_limits import QueueSize, limit_queues

MIN_RUN = 500
"""The number of events of an input that are processed together, even if another input's next event arrived among them. Fewer are slower."""
MAX_QUEUED = 20_000
"""The number of queued events at which a bucket is paused. It resumes at half of it. Their size is limited by `queue_limits`."""
FUTURE_MS = 3_600_000
"""How far an arrival may lie in the future, since the clocks of brokers and workers differ."""
MAX_WAIT_S = 1.0
"""How long an input without a batch, which is not read to its end, delays the others."""


class _QueuedBatch(NamedTuple):
    """A batch, and for each event the latest arrival up to it."""

    batch: RawBatch
    arrived_ms: list[int]


class _InputQueue:
    """The queued batches of one bucket."""

    def __init__(self) -> None:
        self.queue: deque[_QueuedBatch] = deque()
        self.size = QueueSize()
        self.end: int | None = None
        self.stop_offset: int | None = None
        self._arrived_ms = 0
        self._passed = 0

    def next_ms(self) -> int:
        """Return the arrival of the next event."""
        return self.queue[0].arrived_ms[0]

    @property
    def is_ready(self) -> bool:
        """Whether an event before the stop offset is queued."""
        return bool(self.queue) and (self.stop_offset is None or self._next_offset < self.stop_offset)

    @property
    def is_missing(self) -> bool:
        """Whether an event may still arrive that precedes the events of other inputs."""
        return not self.queue and self.end is None and not self.has_stopped

    @property
    def has_stopped(self) -> bool:
        """Whether all events before the stop offset were processed. Before it, there may be offsets that no reader receives."""
        if self.stop_offset is None:
            return False
        if self.queue:
            return self._next_offset >= self.stop_offset
        return max(self._passed, -1 if self.end is None else self.end) >= self.stop_offset

    @property
    def _next_offset(self) -> int:
        return self.queue[0].batch.messages[0].offset()

    def stop_at(self, offset: int, start: int) -> None:
        """Stop at an offset until `resume`; reading starts at `start`."""
        self.stop_offset, self._passed = offset, start

    def resume(self) -> int | None:
        """Continue after the stop offset; return it if no event was processed up to there."""
        offset, self.stop_offset = self.stop_offset, None
        return offset if offset is not None and offset > self._passed else None

    def add(self, batch: RawBatch, now_ms: int) -> None:
        """Queue a batch. A timestamp in the future, from a writer's wrong clock, counts as the one before it."""
        plausible = (at if at <= now_ms + FUTURE_MS else 0 for at in batch.arrivals_ms().tolist())
        arrived = list(accumulate(plausible, max, initial=self._arrived_ms))[1:]
        self._arrived_ms = arrived[-1]
        self.queue.append(_QueuedBatch(batch, arrived))
        self.size.add(batch)
        self.end = None

    def pop(self, until_ms: int | None) -> RawBatch:
        """Remove and return the next events: all that arrived until a time, and a few more."""
        batch, arrived = self.queue.popleft()
        count = len(arrived)
        if until_ms is not None:
            count = next((at for at in range(MIN_RUN, count) if arrived[at] > until_ms), count)
        if self.stop_offset is not None:
            count = min(count, bisect_left(batch.offsets(), self.stop_offset))
        if count < len(arrived):
            self.queue.appendleft(_QueuedBatch(batch.part(count, len(arrived)), arrived[count:]))
        popped = batch.part(0, count)
        self.size.remove(popped)
        self._passed = popped.next_offset
        return popped


class InputMerger:
    """Merges the inputs of a worker's shards. One thread.

    Args:
        inputs: their names; events with the same arrival time are processed in this order.
        clock: measures how long an input delays the others.
    """

    def __init__(self, inputs: Sequence[str], clock: MachineClock) -> None:
        self._names = inputs
        self._clock = clock
        self._inputs: defaultdict[Bucket, _InputQueue] = defaultdict(_InputQueue)
        self._waits_since_s: dict[int, float] = {}

    def merge(self, polled: Polled) -> Polled:
        """Queue a poll's batches; return the batches to process now, perhaps several of one bucket."""
        now_ms = self._clock.now_ms()
        for batch in polled.batches:
            self._inputs[batch.bucket].add(batch, now_ms)
        for bucket, end in polled.ended:
            self._inputs[bucket].end = end
        batches = [batch for number in self._numbers() for batch in self._merged(number)]
        ended = [
            End(bucket, queue.end)
            for bucket, queue in self._inputs.items()
            if queue.end is not None and not queue.queue
        ]
        caught_up = [end for number in self._numbers() for end in self._resumed(number)]
        return Polled(batches, [*ended, *caught_up])

    def catch_up(self, start_positions: Collection[Position], stop_offsets: Mapping[str, int]) -> None:
        """Stop each input of a shard at its offset until all have reached theirs.

        Args:
            start_positions: where reading starts.
            stop_offsets: the offset for each input; an input without one stops where it starts.
        """
        for bucket, start, *_ in start_positions:
            self._inputs[bucket].stop_at(max(start or 0, stop_offsets.get(bucket.category, 0)), start or 0)

    def _resumed(self, number: int) -> list[End]:
        """If all inputs of a shard have stopped, resume them with the next call. Return the stop offsets without an event before."""
        inputs = {Bucket(name, number): self._inputs[Bucket(name, number)] for name in self._names}
        if not all(queue.has_stopped for queue in inputs.values()):
            return []
        return [End(bucket, offset) for bucket, queue in inputs.items() if (offset := queue.resume()) is not None]

    def limit_queues(self, reader: Reader) -> None:
        """Pause the buckets with long or large queues, and resume those whose queues have become short."""
        limit_queues({bucket: queue.size for bucket, queue in self._inputs.items()}, MAX_QUEUED, reader)

    def drop(self, buckets: Collection[Bucket]) -> None:
        """Drop the queues of buckets, which are read again here or by another worker."""
        for bucket in buckets:
            self._inputs.pop(bucket, None)

    def _numbers(self) -> list[int]:
        return sorted({bucket.number for bucket in self._inputs})

    def _merged(self, number: int) -> Iterator[RawBatch]:
        while self._may_continue(number):
            inputs = [self._inputs[Bucket(name, number)] for name in self._names]
            ready = [queue for queue in inputs if queue.is_ready]
            first, *others = sorted(ready, key=_InputQueue.next_ms)  # stable: ties by the order of names
            yield first.pop(others[0].next_ms() if others else None)

    def _may_continue(self, number: int) -> bool:
        """Return whether an event is ready, and no earlier event is expected."""
        inputs = [self._inputs[Bucket(name, number)] for name in self._names]
        if not any(queue.is_ready for queue in inputs):
            return False
        if not any(queue.is_missing for queue in inputs):
            self._waits_since_s.pop(number, None)
            return True
        since_s = self._waits_since_s.setdefault(number, self._clock.monotonic_s())
        return self._clock.monotonic_s() - since_s >= MAX_WAIT_S
