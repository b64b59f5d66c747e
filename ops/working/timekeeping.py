"""The event time of a worker's shards, beside the events: what they were promised, which inputs are idle, what they promise.

promises, silence --> Known(promised, idle), for the core
checkpoint saved  --> promise to whoever reads the outputs
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from math import inf
from typing import NamedTuple

from ...processors.kinds import Processor
from ...processors.watermarks import NEVER_MS, Promised
from ...transport.bus import Bucket, Bus
from .clock import Clock
from .promising import Promising
from .shard import Sealed, Shard
from .upstream import Held, Upstream

TELL_EVERY_S = 1.0
"""How often it is looked, without a checkpoint, whether there is something else to say."""


class Known(NamedTuple):
    """What is known of a shard's inputs beside their events.

    Args:
        promised: up to where each is complete; of those whose watermark is promised.
        idle: those that nobody is to wait for.
    """

    promised: dict[str, int]
    idle: frozenset[str]


class Timekeeping:
    """Keeps the event time of one worker's shards. One thread.

    Args:
        processor: whose shards.
        bus: where promises are; their category exists.
        threads: makes promises beside the loop, one at a time.
        clock: tells how long an input has been silent.
    """

    def __init__(self, processor: Processor, bus: Bus, threads: Executor, clock: Clock) -> None:
        self._inputs = [category.name for category in processor.inputs()]
        self._idle_after = processor.idle_after
        self._clock = clock
        self._upstream = Upstream(bus) if isinstance(processor.watermark, Promised) else None
        self._promising = Promising(processor, bus, threads)
        self._heard_s: dict[Bucket, float] = {}
        self._ended: set[Bucket] = set()
        self._lows_ms: dict[int, int] = {}
        self._held: dict[int, Held] = {}
        self._told_s: dict[int, float] = {}

    @property
    def is_read(self) -> bool:
        """Whether all that was promised before this worker began is known."""
        return self._upstream is None or self._upstream.is_read

    def begin(self, shard: Shard) -> None:
        """Follow a shard that was opened; what its state has come to holds, also if whoever saved it died before telling so."""
        self._lows_ms[shard.number] = shard.core.time.low_ms
        for bucket in self._buckets(shard.number):
            self._heard_s[bucket] = self._clock.monotonic_s()
            if self._upstream is not None:
                self._upstream.begin(bucket)

    def heard(self, bucket: Bucket) -> None:
        """Note that events came."""
        self._heard_s[bucket] = self._clock.monotonic_s()
        self._ended.discard(bucket)

    def ended(self, bucket: Bucket) -> None:
        """Note that a bucket is read to its end."""
        self._ended.add(bucket)

    def read(self) -> None:
        """Take what was promised meanwhile, and go on promising; returns at once."""
        if self._upstream is not None:
            self._upstream.read()
        self._promising.go_on()

    def known(self, shard: Shard) -> Known:
        """Return what is known of a shard's inputs, as far as they are read."""
        promised: dict[str, int] = {}
        if self._upstream is not None:
            held = {
                bucket: self._upstream.held(bucket, shard.position.get(bucket.category, 0))
                for bucket in self._buckets(shard.number)
            }
            promised = {bucket.category: found.watermark_ms for bucket, found in held.items()}
            self._held[shard.number] = min(held.values())
        idle = frozenset(bucket.category for bucket in self._buckets(shard.number) if self._is_idle(bucket))
        if len(idle) == len(self._inputs):
            self._promise(shard.number, idle=True)
        elif self._clock.monotonic_s() - self._told_s.get(shard.number, -inf) >= TELL_EVERY_S:
            self._promise(shard.number, idle=False)  # what holds it back may be another, without a checkpoint
        return Known(promised, idle)

    def saved(self, shards: Sequence[Sealed]) -> None:
        """Promise what follows from a checkpoint that is complete."""
        for shard in shards:
            self._lows_ms[shard.number] = shard.low_ms
            self._promise(shard.number, idle=False)
        self._promising.go_on()

    def _promise(self, number: int, *, idle: bool) -> None:
        held = self._held.get(number)
        self._told_s[number] = self._clock.monotonic_s()
        self._promising.promise(number, self._lows_ms.get(number, NEVER_MS), "" if held is None else held.by, idle=idle)

    def _is_idle(self, bucket: Bucket) -> bool:
        if self._idle_after is None or bucket not in self._ended:
            return False
        return self._clock.monotonic_s() - self._heard_s[bucket] >= self._idle_after.total_seconds()

    def _buckets(self, number: int) -> list[Bucket]:
        return [Bucket(name, number) for name in self._inputs]

    def drop(self, numbers: Collection[int]) -> None:
        """Follow these shards no more."""
        self._promising.forget(numbers)
        for number in numbers:
            self._lows_ms.pop(number, None)
            self._held.pop(number, None)
            self._told_s.pop(number, None)
            for bucket in self._buckets(number):
                self._ended.discard(bucket)
                if self._upstream is not None:
                    self._upstream.drop(bucket)

    def close(self) -> None:
        """Make the last promises."""
        self._promising.close()
        if self._upstream is not None:
            self._upstream.close()
