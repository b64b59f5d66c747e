"""Event time of a worker's shards beyond their events: upstream watermarks, idle inputs, and the watermarks that the worker publishes.

upstream watermarks, silence --> InputProgress, for the shard's event time
complete checkpoint          --> a watermark for the consumers of the outputs

An input is idle if it has been silent for the idle timeout, the bus confirms that, and all processors that write it are idle and alive. A
shard publishes that it is idle if all its inputs are, and it has nothing to save or send.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

from ...processors.apps.loops import Loop
from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor
from ...processors.declare.tombstones import Tombstone
from ...processors.time.idleness import IdleDetector, IdleTimeout
from ...processors.time.shard_time import ShardTime
from ...processors.time.watermarks import FOREVER_MS, NEVER_MS
from ...transport.bus import Bus
from ...transport.messages import Bucket
from ...transport.tables.upstream_watermarks import NO_ROUND, WATERMARKS, WatermarkStatement
from ..clock import Clock
from .end_offsets import EndOffsetRequest, EndOffsets
from .loop_watermark import LoopCut, LoopWatermark
from .open_shard import OpenShard, OpenSnapshot
from .watermark_publisher import WatermarkPublisher
from .watermark_subscriber import InputWatermark, StatementFreshness, WatermarkSubscriber

PUBLISH_EVERY_S = 1.0
"""The interval at which a changed watermark is published without a checkpoint."""
_STATEMENTS = Bucket(WATERMARKS.name, 0)


class InputProgress(NamedTuple):
    """The progress of a shard's inputs beyond their events.

    Args:
        watermarks_ms: the upstream watermark of each input that has one.
        idle: the inputs that do not hold back the shard's event time.
    """

    watermarks_ms: dict[str, int]
    idle: frozenset[str]


class WatermarkTracker:
    """Tracks the event time of one worker's shards. One thread.

    Args:
        processor: the processor of the shards.
        bus: contains the watermarks; their category exists.
        threads: request end offsets and publish watermarks beside the loop, one call at a time.
        clock: measures how long an input has been silent.
        loop: the loop that the processor is a member of; None without one.
        passed_ms: by shard, an event time that counts as passed by its inputs.
    """

    def __init__(
        self,
        processor: Processor,
        bus: Bus,
        threads: Executor,
        clock: Clock,
        loop: Loop | None = None,
        *,
        passed_ms: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._passed_ms = passed_ms
        self._inputs = [category.name for category in processor.inputs()]
        self._sources = [category.name for category in processor.sources()]
        self._feedback = frozenset(category.name for category in processor.feedback_inputs())
        self._loop = None if loop is None else LoopWatermark(loop, type(processor))
        self._upstream_inputs = processor.upstream_inputs() - self._feedback
        self._clock = clock
        self._detects_idleness = processor.idle_after is not None
        self._timeout = IdleTimeout(inf if processor.idle_after is None else processor.idle_after.total_seconds())
        self._freshness = StatementFreshness(self._timeout)
        self._end_offsets = EndOffsetRequest(bus, threads, clock)
        self._asked_s = -inf
        self._as_of = 0
        self._subscriber = WatermarkSubscriber(bus, self._is_fresh)
        self._publisher = WatermarkPublisher(processor, bus, threads, clock)
        self._shards: dict[int, OpenShard] = {}
        self._detectors: dict[Bucket, IdleDetector] = {}
        self._unsaved: set[int] = set()
        self._saving: set[int] = set()
        self._lows_ms: dict[int, int] = {}
        self._published_idle: dict[int, bool] = {}
        self._published_s: dict[int, float] = {}

    def _is_fresh(self, statement: WatermarkStatement) -> bool:
        return self._freshness.is_fresh(statement.as_of, self._clock.monotonic_s())

    @property
    def is_read(self) -> bool:
        """Whether all upstream watermarks from before this worker's start are read; True if the processor uses none."""
        return not self._upstream_inputs or self._subscriber.is_read

    def begin(self, shard: OpenShard) -> None:
        """Follow an opened shard. Its saved low watermark is published even if the worker that saved it died before it did."""
        self._shards[shard.number] = shard
        self._lows_ms[shard.number] = shard.operator.time.low_ms
        self._published_idle[shard.number] = False
        if self._loop is not None:
            self._loop.begin(shard.number)
        for bucket in self._buckets(shard.number):
            self._detectors[bucket] = IdleDetector(self._timeout)
            self._subscriber.begin(bucket)

    def record_events(self, bucket: Bucket) -> None:
        """Record that a bucket had events."""
        detector = self._detectors.get(bucket)
        if detector is not None:
            detector.interrupt(self._clock.monotonic_s())
            self._unsaved.add(bucket.number)

    def record_change(self, number: int) -> None:
        """Record that a shard has something to save or send, without an event."""
        self._unsaved.add(number)

    def record_sent(self, number: int, category: AnyCategory, records: Sequence[Any]) -> None:
        """Record outputs of a shard before they are sent: those into its loop hold the loop's watermark."""
        if self._loop is not None and category.name in self._loop.categories:
            times = category.event_times_of([record for record in records if type(record) is not Tombstone])
            self._loop.record_sent(number, min(times, default=FOREVER_MS))

    def wake(self, active: Collection[Bucket]) -> None:
        """Make shards wait again for inputs that are not idle any more, before they process events of other inputs.

        Args:
            active: the buckets with events in this poll.
        """
        times = [(shard, shard.operator.time) for shard in self._shards.values()]
        with_idle = [(shard, time) for shard, time in times if isinstance(time, ShardTime) and time.idle]
        if with_idle:
            self._read_statements()
        for shard, time in with_idle:
            inputs = [Bucket(name, shard.number) for name in time.idle]
            time.wake([bucket.category for bucket in inputs if bucket in active or not self._is_idle(shard, bucket)])

    def read(self) -> None:
        """Read new upstream watermarks and end offsets; return at once."""
        self._read_statements()
        self._request_ends()
        answer = self._end_offsets.answer()
        if answer is not None:
            self._apply(answer)

    def _read_statements(self) -> None:
        for owner, statement in self._subscriber.read():
            if self._loop is not None:
                self._loop.record(owner, statement)

    def _apply(self, answer: EndOffsets) -> None:
        self._as_of = answer.ends[_STATEMENTS]
        self._freshness.record_end(answer.asked_s, self._as_of)
        for bucket in answer.ends.keys() & self._detectors.keys():
            if answer.ends[bucket] <= self._shards[bucket.number].position.get(bucket.category, 0):
                self._detectors[bucket].confirm(answer.asked_s)
            else:
                self._detectors[bucket].interrupt(self._clock.monotonic_s())

    def _request_ends(self) -> None:
        """Request the ends of quiet buckets, if a watermark depends on them."""
        now_s = self._clock.monotonic_s()
        if self._end_offsets.in_progress or now_s - self._asked_s < self._timeout.ask_every_s:
            return
        quiet = [bucket for bucket in self._detectors if self._is_quiet(bucket, now_s)]
        has_quiet_loop = self._loop is not None and self._loop.has_quiet
        if (quiet and self._detects_idleness) or self._subscriber.has_idle or has_quiet_loop:
            self._asked_s = now_s
            self._end_offsets.begin([*(quiet if self._detects_idleness else ()), _STATEMENTS])

    def _is_quiet(self, bucket: Bucket, now_s: float) -> bool:
        return self._detectors[bucket].is_quiet(now_s) and not self._shards[bucket.number].catching_up

    def input_progress(self, shard: OpenShard) -> InputProgress:
        """Return the progress of a shard's inputs at its position, and publish its watermark if due."""
        buckets = self._buckets(shard.number)
        idle = frozenset(bucket.category for bucket in buckets if self._is_idle(shard, bucket))
        upstream = self._upstream_watermarks(shard)
        if self._loop is not None and self._is_saved(shard.number):
            self._loop.record_saved(shard.number, self._loop_cut(shard, self._loop))
        is_due = self._clock.monotonic_s() - self._published_s.get(shard.number, -inf) >= PUBLISH_EVERY_S
        is_idle = len(idle) == len(self._inputs) and self._is_saved(shard.number)
        if is_due or is_idle or self._published_idle[shard.number]:
            self._publish(shard.number, idle=is_idle)
        watermarks = {name: found.watermark_ms for name, found in upstream.items()}
        passed_ms = self._passed_ms.get(shard.number)
        if passed_ms is not None:
            watermarks |= {name: max(passed_ms, watermarks.get(name, passed_ms)) for name in self._sources}
        return InputProgress(watermarks, idle)

    def _is_idle(self, shard: OpenShard, bucket: Bucket) -> bool:
        if bucket.category in self._feedback:
            return self._is_silent(bucket)
        return self._is_silent(bucket) and self._pending_writer(shard, bucket) is None

    def _is_silent(self, bucket: Bucket) -> bool:
        if bucket.category in self._feedback:  # its writers wait for it, too
            return self._loop is not None and self._loop.is_drained(self._is_fresh)
        detector = self._detectors.get(bucket)
        return detector is not None and detector.is_idle(self._clock.monotonic_s())

    def _pending_writer(self, shard: OpenShard, bucket: Bucket) -> str | None:
        return self._subscriber.pending_writer(bucket, shard.position.get(bucket.category, 0))

    def _is_saved(self, number: int) -> bool:
        return number not in self._unsaved and number not in self._saving

    def _upstream_watermarks(self, shard: OpenShard) -> dict[str, InputWatermark]:
        """Return the upstream watermark of each input that has one: a feedback input, and each input with `UpstreamWatermark`."""
        found = {} if self._loop is None else dict.fromkeys(self._feedback, self._loop.watermark)
        for name in self._upstream_inputs:
            found[name] = self._subscriber.at(Bucket(name, shard.number), shard.position.get(name, 0))
        return found

    def _loop_cut(self, shard: OpenShard, loop: LoopWatermark) -> LoopCut:
        """Return what a shard has processed until now."""
        time = shard.operator.time
        external_ms = time.minimum_of(loop.external) if isinstance(time, ShardTime) else NEVER_MS
        return LoopCut(dict(shard.position), external_ms)

    def _held_by(self, shard: OpenShard) -> str:
        """Describe the input that holds back a shard; empty if only its own events do."""
        time = shard.operator.time
        holder = time.holder if isinstance(time, ShardTime) else None
        if holder is None:
            return ""
        bucket = Bucket(holder.name, shard.number)
        upstream = {} if shard.in_flight.events else self._upstream_watermarks(shard)
        if holder.name in upstream:
            held_by = upstream[holder.name].held_by
            return f"{bucket}: {held_by}" if holder.name in self._feedback else held_by
        if holder.why:
            return f"{bucket}, which {holder.why}"
        if len(self._sources) == 1:
            return ""
        if self._end_offsets.has_failed:
            return f"{bucket}: the bus does not return its end offset, so it cannot count as idle"
        writer = self._pending_writer(shard, bucket) if self._is_silent(bucket) else None
        return str(bucket) if writer is None else f"{bucket}: it waits for {writer}"

    def checkpoint_begun(self, shards: Collection[OpenShard]) -> None:
        """Record that a checkpoint of these shards has begun; the other shards have nothing to save."""
        self._unsaved.clear()
        if self._loop is not None:
            self._loop.checkpoint_begun({shard.number: self._loop_cut(shard, self._loop) for shard in shards})
        self._saving.update(shard.number for shard in shards)

    def checkpoint_rolled_back(self) -> None:
        """Record that the checkpoint failed; the next one saves its work."""
        self._unsaved |= self._saving
        self._saving.clear()
        if self._loop is not None:
            self._loop.checkpoint_rolled_back()

    def checkpoint_complete(self, shards: Sequence[OpenSnapshot]) -> None:
        """Publish the watermarks of a complete checkpoint."""
        self._saving.clear()
        if self._loop is not None:
            self._loop.checkpoint_complete()
        self.publish({shard.number: shard.low_ms for shard in shards})

    def unpublished(self) -> dict[int, int]:
        """Return the low watermarks (milliseconds since 1970, UTC) that are later than the published ones, by shard."""
        lows_ms = {number: shard.operator.time.low_ms for number, shard in self._shards.items()}
        return {number: low_ms for number, low_ms in lows_ms.items() if low_ms > self._lows_ms[number]}

    def publish(self, lows_ms: Mapping[int, int]) -> None:
        """Publish low watermarks whose outputs are durable.

        If the worker dies before their positions are saved, outputs at least once repeat behind a published watermark. Their consumers have
        had them before it.

        Args:
            lows_ms: milliseconds since 1970, UTC, by shard; an earlier one than before has no effect.
        """
        for number, low_ms in lows_ms.items():
            self._lows_ms[number] = max(low_ms, self._lows_ms.get(number, low_ms))
            silent = self._is_saved(number) and all(map(self._is_silent, self._buckets(number)))
            self._publish(number, idle=silent and self._published_idle.get(number, False))
        self.send_pending()

    def send_pending(self) -> None:
        """Send queued watermarks; return at once."""
        self._publisher.send_pending()

    def flush(self) -> None:
        """Send queued watermarks, and wait for them."""
        self._publisher.flush()

    def _publish(self, number: int, *, idle: bool) -> None:
        self._published_s[number] = self._clock.monotonic_s()
        self._published_idle[number] = idle
        held_by = "" if idle or number not in self._shards else self._held_by(self._shards[number])
        round_ = NO_ROUND if self._loop is None else self._loop.round_of(number, is_read=self._subscriber.is_read)
        self._publisher.publish(number, self._lows_ms[number], held_by, idle=idle, as_of=self._as_of, round_=round_)

    def _buckets(self, number: int) -> list[Bucket]:
        return [Bucket(name, number) for name in self._inputs]

    def drop(self, numbers: Collection[int]) -> None:
        """Stop following shards."""
        self._publisher.drop(numbers)
        if self._loop is not None:
            self._loop.drop(numbers)
        self._unsaved.difference_update(numbers)
        self._saving.difference_update(numbers)
        for number in numbers:
            for by_shard in (self._shards, self._lows_ms, self._published_idle, self._published_s):
                by_shard.pop(number, None)
            for bucket in self._buckets(number):
                self._detectors.pop(bucket, None)
                self._subscriber.drop(bucket)

    def close(self) -> None:
        """Send the last watermarks, and close the connections."""
        self._publisher.close()
        self._subscriber.close()
