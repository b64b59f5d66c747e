"""The event time of a worker's shards, beside the events: what they were promised, which inputs are idle, what they promise.

promises, silence --> Known(promised, idle), for the core
checkpoint saved  --> promise to whoever reads the outputs

An input is idle when it has been silent for long, as far as the bus has confirmed that, and all processors that write it are idle
and alive. A shard says that it is idle when all its inputs are, and nothing of it waits to be saved or sent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from math import inf
from typing import NamedTuple

from ...processors.declare.processor import Processor
from ...processors.time.idleness import IdleDetector, IdleTimeout
from ...processors.time.shard_time import ShardTime
from ...processors.time.watermarks import UpstreamWatermark
from ...transport.bus import Bus
from ...transport.messages import Bucket
from ...transport.tables.upstream_watermarks import WATERMARKS, WatermarkStatement
from ..clock import Clock
from .end_offsets import Asking
from .open_shard import OpenShard, OpenSnapshot
from .watermark_age import WatermarkAge
from .watermark_publisher import WatermarkPublisher
from .watermark_subscriber import Held, WatermarkSubscriber

TELL_EVERY_S = 1.0
"""How often it is looked, without a checkpoint, whether there is something else to say."""
_SAYINGS = Bucket(WATERMARKS.name, 0)


class Known(NamedTuple):
    """What is known of a shard's inputs beside their events.

    Args:
        promised: up to where each is complete; of those whose watermark is promised.
        idle: those that nobody is to wait for.
    """

    promised: dict[str, int]
    idle: frozenset[str]


class WatermarkTracker:
    """Keeps the event time of one worker's shards. One thread.

    Args:
        processor: whose shards.
        bus: where promises are; their category exists.
        threads: asks the bus and makes promises beside the loop, one call at a time.
        clock: tells how long an input has been silent.
    """

    def __init__(self, processor: Processor, bus: Bus, threads: Executor, clock: Clock) -> None:
        self._inputs = [category.name for category in processor.inputs()]
        self._goes_by_promises = isinstance(processor.watermark, UpstreamWatermark)
        self._clock = clock
        self._ends = processor.idle_after is not None
        self._patience = IdleTimeout(inf if processor.idle_after is None else processor.idle_after.total_seconds())
        self._dating = WatermarkAge(self._patience)
        self._asking = Asking(bus, threads, clock)
        self._asked_s = -inf
        self._as_of = 0
        self._upstream = WatermarkSubscriber(bus, self._is_fresh)
        self._promising = WatermarkPublisher(processor, bus, threads, clock)
        self._shards: dict[int, OpenShard] = {}
        self._silences: dict[Bucket, IdleDetector] = {}
        self._unsaved: set[int] = set()
        self._being_saved: set[int] = set()
        self._lows_ms: dict[int, int] = {}
        self._said_idle: dict[int, bool] = {}
        self._told_s: dict[int, float] = {}

    def _is_fresh(self, promise: WatermarkStatement) -> bool:
        return self._dating.is_fresh(promise.as_of, self._clock.monotonic_s())

    @property
    def is_read(self) -> bool:
        """Whether all that was promised before this worker began is known, as far as it goes by that."""
        return not self._goes_by_promises or self._upstream.is_read

    def begin(self, shard: OpenShard) -> None:
        """Follow a shard that was opened; what its state has come to holds, also if whoever saved it died before telling so."""
        self._shards[shard.number] = shard
        self._lows_ms[shard.number] = shard.operator.time.low_ms
        self._said_idle[shard.number] = False
        for bucket in self._buckets(shard.number):
            self._silences[bucket] = IdleDetector(self._patience)
            self._upstream.begin(bucket)

    def heard(self, bucket: Bucket) -> None:
        """Note that events came."""
        silence = self._silences.get(bucket)
        if silence is not None:
            silence.interrupt(self._clock.monotonic_s())
            self._unsaved.add(bucket.number)

    def moved(self, number: int) -> None:
        """Note that a shard has something to save or send, without an event."""
        self._unsaved.add(number)

    def wake(self, came: Collection[Bucket]) -> None:
        """Have shards wait again for inputs that are not idle any more: before they process what came of others.

        Args:
            came: those of which something came.
        """
        times = [(shard, shard.operator.time) for shard in self._shards.values()]
        partial = [(shard, time) for shard, time in times if isinstance(time, ShardTime) and time.idle]
        if partial:
            self._upstream.read()
        for shard, time in partial:
            inputs = [Bucket(name, shard.number) for name in time.idle]
            time.wake([one.category for one in inputs if one in came or not self._is_idle(shard, one)])

    def read(self) -> None:
        """Take what was promised and answered meanwhile; returns at once."""
        self._upstream.read()
        self._ask()
        answer = self._asking.answer()
        if answer is not None:
            self._as_of = answer.ends[_SAYINGS]
            self._dating.note(answer.asked_s, self._as_of)
            for bucket in answer.ends.keys() & self._silences.keys():
                if answer.ends[bucket] <= self._shards[bucket.number].position.get(bucket.category, 0):
                    self._silences[bucket].confirm(answer.asked_s)
                else:
                    self._silences[bucket].interrupt(self._clock.monotonic_s())

    def _ask(self) -> None:
        """Ask how far the quiet buckets go, if anything depends on it."""
        now_s = self._clock.monotonic_s()
        if self._asking.under_way or now_s - self._asked_s < self._patience.ask_every_s:
            return
        quiet = [bucket for bucket in self._silences if self._is_quiet(bucket, now_s)] if self._ends else []
        if quiet or self._upstream.some_idle:
            self._asked_s = now_s
            self._asking.ask([*quiet, _SAYINGS])

    def _is_quiet(self, bucket: Bucket, now_s: float) -> bool:
        return self._silences[bucket].is_quiet(now_s) and not self._shards[bucket.number].catching_up

    def known(self, shard: OpenShard) -> Known:
        """Return what is known of a shard's inputs, as far as they are read."""
        buckets = self._buckets(shard.number)
        idle = frozenset(bucket.category for bucket in buckets if self._is_idle(shard, bucket))
        held = self._held(shard)
        is_due = self._clock.monotonic_s() - self._told_s.get(shard.number, -inf) >= TELL_EVERY_S
        is_idle = len(idle) == len(self._inputs) and self._is_saved(shard.number)
        if is_due or is_idle or self._said_idle[shard.number]:
            self._promise(shard.number, idle=is_idle)
        return Known({name: found.watermark_ms for name, found in held.items()}, idle)

    def _is_idle(self, shard: OpenShard, bucket: Bucket) -> bool:
        return self._is_silent(bucket) and self._may_come(shard, bucket) is None

    def _is_silent(self, bucket: Bucket) -> bool:
        silence = self._silences.get(bucket)
        return silence is not None and silence.is_idle(self._clock.monotonic_s())

    def _may_come(self, shard: OpenShard, bucket: Bucket) -> str | None:
        return self._upstream.may_come(bucket, shard.position.get(bucket.category, 0))

    def _is_saved(self, number: int) -> bool:
        return number not in self._unsaved and number not in self._being_saved

    def _held(self, shard: OpenShard) -> dict[str, Held]:
        """Return the watermark of each input from its writers; empty if events determine the watermark."""
        if not self._goes_by_promises:
            return {}
        buckets = self._buckets(shard.number)
        return {
            bucket.category: self._upstream.held(bucket, shard.position.get(bucket.category, 0)) for bucket in buckets
        }

    def _held_by(self, shard: OpenShard) -> str:
        held = self._held(shard)
        return min(held.values()).by if held else self._holder(shard)

    def _holder(self, shard: OpenShard) -> str:
        """Return what holds a shard back that finds out by its events how far its inputs are, in words; empty where only those do."""
        time = shard.operator.time
        holder = time.holder if isinstance(time, ShardTime) else None
        if holder is None:
            return ""
        bucket = Bucket(holder.name, shard.number)
        if holder.why:
            return f"{bucket}, which {holder.why}"
        if len(self._inputs) == 1:
            return ""
        if self._asking.fails:
            return f"{bucket}: the bus does not say where it ends, so that nobody knows whether it is idle"
        why = self._may_come(shard, bucket) if self._is_silent(bucket) else None
        return str(bucket) if why is None else f"{bucket}: it waits for {why}"

    def checkpoint_begun(self, shards: Collection[OpenShard]) -> None:
        """Note that a checkpoint of these shards begins; the other shards have nothing to save."""
        self._unsaved.clear()
        self._being_saved.update(shard.number for shard in shards)

    def checkpoint_rolled_back(self) -> None:
        """Note that a checkpoint was not completed; the next one saves its work."""
        self._unsaved |= self._being_saved
        self._being_saved.clear()

    def checkpoint_complete(self, shards: Sequence[OpenSnapshot]) -> None:
        """Publish the watermarks of a complete checkpoint."""
        self._being_saved.clear()
        for shard in shards:
            self._lows_ms[shard.number] = shard.low_ms
            silent = self._is_saved(shard.number) and all(map(self._is_silent, self._buckets(shard.number)))
            self._promise(shard.number, idle=silent and self._said_idle.get(shard.number, False))
        self.go_on()

    def go_on(self) -> None:
        """Go on promising; returns at once."""
        self._promising.go_on()

    def _promise(self, number: int, *, idle: bool) -> None:
        self._told_s[number] = self._clock.monotonic_s()
        self._said_idle[number] = idle
        held_by = "" if idle or number not in self._shards else self._held_by(self._shards[number])
        self._promising.promise(number, self._lows_ms[number], held_by, idle=idle, as_of=self._as_of)

    def _buckets(self, number: int) -> list[Bucket]:
        return [Bucket(name, number) for name in self._inputs]

    def drop(self, numbers: Collection[int]) -> None:
        """Follow these shards no more."""
        self._promising.forget(numbers)
        self._unsaved.difference_update(numbers)
        self._being_saved.difference_update(numbers)
        for number in numbers:
            for kept in (self._shards, self._lows_ms, self._said_idle, self._told_s):
                kept.pop(number, None)
            for bucket in self._buckets(number):
                self._silences.pop(bucket, None)
                self._upstream.drop(bucket)

    def close(self) -> None:
        """Make the last promises."""
        self._promising.close()
        self._upstream.close()
