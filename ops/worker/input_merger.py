"""Where the inputs of a shard meet: what was read of them goes on in the order in which it arrived on the bus, whichever came first here.

Who catches up is given each input as fast as it can be fetched, one far ahead of the other: a join would hold all of the first until the
second comes. So what is ahead waits for what arrived before it, as long as there is any, and an input of which much waits is not read on
meanwhile. One that is read to its end is not waited for; one that says nothing for a moment is not, either.

While a state catches up with outputs that are on the bus already, each input stops where those end until all have come there: a new event
of one among old events of another would give results that are old and new at once.

    polled batches --held by bucket--> the earliest of those that have one of each input --> processed
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from ...transport.bus import Reader
from ...transport.messages import Bucket, End, Polled, Position, RawBatch
from ..clock import Clock

AT_ONCE = 500
"""How many events of an input are given on together, though the other's next one arrived among them: shorter stretches cost more."""
HELD = 20_000
"""How many events of a bucket wait before it is not read on; it is when half of them are gone."""
PATIENCE_S = 1.0
"""How long an input is waited for that is neither here nor read to its end."""


class _Waiting(NamedTuple):
    """A batch, and by when each of its events had arrived, as everything before it had."""

    batch: RawBatch
    arrived_ms: list[int]


class _Input:
    """What waits of one bucket."""

    def __init__(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.events = 0
        self.end: int | None = None
        self.border: int | None = None
        self.is_paused = False
        self._arrived_ms = 0
        self._given = 0

    def next_ms(self) -> int:
        """Return when the next event that waits had arrived."""
        return self.waiting[0].arrived_ms[0]

    @property
    def may_go_on(self) -> bool:
        """Whether something waits that does not lie behind the border."""
        return bool(self.waiting) and (self.border is None or self._next_offset < self.border)

    @property
    def is_awaited(self) -> bool:
        """Whether something may still come that belongs before what waits elsewhere."""
        return not self.waiting and self.end is None and not self.has_arrived

    @property
    def has_arrived(self) -> bool:
        """Whether all before the border went on. Behind the last event before it there may be offsets that no reader is given."""
        if self.border is None:
            return False
        if self.waiting:
            return self._next_offset >= self.border
        return max(self._given, -1 if self.end is None else self.end) >= self.border

    @property
    def _next_offset(self) -> int:
        return self.waiting[0].batch.messages[0].offset()

    def stop_at(self, border: int, begin: int) -> None:
        """Give nothing from an offset on, until `go_on`; all before `begin` is not read again."""
        self.border, self._given = border, begin

    def go_on(self) -> int | None:
        """Give on what waits behind the border; return where that is, if nothing was given up to there."""
        border, self.border = self.border, None
        return border if border is not None and border > self._given else None

    def add(self, batch: RawBatch) -> None:
        """Let a batch wait, behind those that do."""
        arrived = list(accumulate(batch.arrivals_ms(), max, initial=self._arrived_ms))[1:]
        self._arrived_ms = arrived[-1]
        self.waiting.append(_Waiting(batch, arrived))
        self.events += len(arrived)
        self.end = None

    def take(self, until_ms: int | None) -> RawBatch:
        """Give the next events on: those that arrived up to a time, and a few more."""
        batch, arrived = self.waiting.popleft()
        count = len(arrived)
        if until_ms is not None:
            count = next((at for at in range(AT_ONCE, count) if arrived[at] > until_ms), count)
        if self.border is not None:
            border = self.border
            count = min(count, sum(1 for _ in takewhile(lambda message: message.offset() < border, batch.messages)))
        if count < len(arrived):
            self.waiting.appendleft(_Waiting(RawBatch(batch.bucket, batch.messages[count:]), arrived[count:]))
        self.events -= count
        given = RawBatch(batch.bucket, batch.messages[:count])
        self._given = given.next_offset
        return given


class InputMerger:
    """Brings the inputs of a worker's shards together. One thread.

    Args:
        inputs: their names; of what arrived at one time, those of the first come first.
        clock: tells how long an input was waited for.
    """

    def __init__(self, inputs: Sequence[str], clock: Clock) -> None:
        self._names = inputs
        self._clock = clock
        self._inputs: defaultdict[Bucket, _Input] = defaultdict(_Input)
        self._waits_since_s: dict[int, float] = {}

    def after(self, polled: Polled) -> Polled:
        """Take what was read; return what may be processed now, perhaps in several batches of one bucket."""
        for batch in polled.batches:
            self._inputs[batch.bucket].add(batch)
        for bucket, end in polled.ended:
            self._inputs[bucket].end = end
        batches = [batch for number in self._numbers() for batch in self._met(number)]
        ended = [
            End(bucket, one.end) for bucket, one in self._inputs.items() if one.end is not None and not one.waiting
        ]
        arrived = [end for number in self._numbers() for end in self._caught_up(number)]
        return Polled(batches, [*ended, *arrived])

    def catch_up(self, begins: Collection[Position], borders: Mapping[str, int]) -> None:
        """Let the inputs of a shard, which are read from these positions on, stop at borders until all have come to theirs.

        Args:
            begins: where each is read on.
            borders: offsets by input; those that have none wait where they begin.
        """
        for bucket, begin, _ in begins:
            self._inputs[bucket].stop_at(max(begin or 0, borders.get(bucket.category, 0)), begin or 0)

    def _caught_up(self, number: int) -> list[End]:
        """Where all inputs have come to their borders, let them go on from there with the next call; say where that is."""
        inputs = {Bucket(name, number): self._inputs[Bucket(name, number)] for name in self._names}
        if not all(one.has_arrived for one in inputs.values()):
            return []
        return [End(bucket, border) for bucket, one in inputs.items() if (border := one.go_on()) is not None]

    def hold_back(self, reader: Reader) -> None:
        """Let the bus give no more of what is far ahead, and go on with what is not any more."""
        ahead = [bucket for bucket, one in self._inputs.items() if one.events >= HELD and not one.is_paused]
        behind = [bucket for bucket, one in self._inputs.items() if one.events < HELD // 2 and one.is_paused]
        if ahead:
            reader.pause(ahead)
        if behind:
            reader.resume(behind)
        for bucket in (*ahead, *behind):
            self._inputs[bucket].is_paused = bucket in ahead

    def drop(self, buckets: Collection[Bucket]) -> None:
        """Forget what waits of these: it is read again, here or elsewhere."""
        for bucket in buckets:
            self._inputs.pop(bucket, None)

    def _numbers(self) -> list[int]:
        return sorted({bucket.number for bucket in self._inputs})

    def _met(self, number: int) -> Iterator[RawBatch]:
        while self._may_go_on(number):
            inputs = [self._inputs[Bucket(name, number)] for name in self._names]
            first, *others = sorted(
                (one for one in inputs if one.may_go_on), key=_Input.next_ms
            )  # stable: ties by the order of names
            yield first.take(others[0].next_ms() if others else None)

    def _may_go_on(self, number: int) -> bool:
        """Tell whether something waits, and nothing that arrived before it is likely to come."""
        inputs = [self._inputs[Bucket(name, number)] for name in self._names]
        missing = [one for one in inputs if one.is_awaited]
        if not any(one.may_go_on for one in inputs):
            return False
        if not missing:
            self._waits_since_s.pop(number, None)
            return True
        since_s = self._waits_since_s.setdefault(number, self._clock.monotonic_s())
        return self._clock.monotonic_s() - since_s >= PATIENCE_S
