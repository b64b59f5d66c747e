"""Event time of a worker's shards beyond their events: upstream watermarks, idle inputs, and the watermarks that the worker publishes.

upstream watermarks, silence --> InputProgress, for the shard's event time
complete checkpoint          --> a watermark for the consumers of the outputs

An input is idle if it has been silent for the idle timeout, the bus confirms that, and all processors that write it are idle and alive. A
shard publishes that it is idle if all its inputs are, and it has nothing to save or send.

An event of another input would move event time past an idle one. Event time waits until the bus has confirmed the idleness once more, by a
request that began after the event was read. Otherwise, events that arrived together with it would be late.

With `close_after_silence`, event time goes on with the clock while all inputs of a shard are idle. A run that stops at the end of its input
assumes this silence instead of waiting for it, and publishes that its shards are idle until they have an owner again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

from ....processors.apps import Loop
from ....processors.declare import AnyCategory, Processor, Tombstone, plan_of
from ....processors.time import FOREVER_MS, NEVER_MS, IdleDetector, IdleLimit, IdleTimeout, ShardTime
from ....transport import Bucket, Bus
from ....transport.tables import NO_ROUND, WATERMARKS, WatermarkStatement
from ...shell import MachineClock
from ..shards import OpenShard, OpenSnapshot
from .end_offsets import EndOffsetRequest, EndOffsets
from .loop_watermark import LoopCut, LoopWatermark
from .watermark_publisher import WatermarkPublisher
from .watermark_subscriber import InputWatermark, StatementFreshness, WatermarkSubscriber

PUBLISH_EVERY_S = 1.0
"""The interval at which a changed watermark is published without a checkpoint."""
SILENCE_STEPS = 4
"""The number of steps of event time in each `close_after_silence`. Each saves a checkpoint."""
_STATEMENTS = Bucket(WATERMARKS.name, 0)


class InputProgress(NamedTuple):
    """The progress of a shard's inputs beyond their events.

    Args:
        watermarks_ms: the upstream watermark of each input that has one.
        idle: for each idle input, the event time up to which it does not hold back the shard.
    """

    watermarks_ms: dict[str, int]
    idle: dict[str, int]


class ShardWait(NamedTuple):
    """What the event time of a shard waits for.

    Args:
        number: the shard's bucket number.
        events_in: the events that it has read since it was opened.
        low_ms: its low watermark (milliseconds since 1970, UTC); `NEVER_MS` before the first.
        held_by: the input that holds it back, and why; empty if it waits for the next events.
    """

    number: int
    events_in: int
    low_ms: int
    held_by: str


class SilentInputs:
    """Moves event time while all inputs are silent. The silence is confirmed as for idleness, so an outage is none.

    Args:
        close_after: the silence after which event time goes on with the clock.
    """

    def __init__(self, close_after: timedelta) -> None:
        self._close_after_s = close_after.total_seconds()
        self._step_s = max(self._close_after_s / SILENCE_STEPS, 1.0)

    @property
    def assumed_s(self) -> float:
        """The silence that a run to the end of its input assumes, in seconds."""
        return 2 * self._close_after_s

    def passed_ms(self, time: object, lasted_s: float) -> int:
        """Return the event time that has passed (milliseconds since 1970, UTC); `NEVER_MS` if the silence is too short.

        Args:
            time: the event time of the shard.
            lasted_s: the seconds for which all of its inputs have been silent.
        """
        beyond_s = lasted_s - self._close_after_s
        if not isinstance(time, ShardTime) or time.newest_ms == NEVER_MS or beyond_s < 0:
            return NEVER_MS
        return time.newest_ms + int(beyond_s // self._step_s * self._step_s * 1000)


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
        clock: MachineClock,
        loop: Loop | None = None,
        *,
        passed_ms: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        plan = plan_of(processor)
        self._passed_ms = passed_ms
        self._inputs = [category.name for category in plan.inputs]
        self._sources = [category.name for category in plan.sources]
        self._feedback = frozenset(category.name for category in plan.feedback_inputs)
        self._loop = None if loop is None else LoopWatermark(loop, type(processor))
        self._upstream_inputs = plan.upstream_inputs - self._feedback
        self._clock = clock
        self._detects_idleness = processor.idle_after is not None
        self._timeout = IdleTimeout(inf if processor.idle_after is None else processor.idle_after.total_seconds())
        self._silence = None if processor.close_after_silence is None else SilentInputs(processor.close_after_silence)
        self._ended: set[int] = set()
        """The shards whose inputs have ended, as if they had been silent for long."""
        self._freshness = StatementFreshness(self._timeout)
        self._end_offsets = EndOffsetRequest(bus, threads, clock)
        self._asked_s = -inf
        self._as_of = self._idle_as_of = 0
        self._reached_ms: dict[int, int] = {}
        self._subscriber = WatermarkSubscriber(bus, self._inputs, self._is_fresh)
        self._publisher = WatermarkPublisher(processor, bus, threads, clock)
        self._shards: dict[int, OpenShard] = {}
        self._detectors: dict[Bucket, IdleDetector] = {}
        self._limits: dict[Bucket, IdleLimit] = {}
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

    def is_read_to(self, end: int) -> bool:
        """Return whether all upstream watermarks before an offset are read; True if the processor uses none."""
        return not self._upstream_inputs or self._subscriber.is_read_to(end)

    def begin(self, shard: OpenShard) -> None:
        """Follow an opened shard. Its saved low watermark is published even if the worker that saved it died before it did."""
        self._shards[shard.number] = shard
        self._lows_ms[shard.number] = shard.operator.time.low_ms
        self._published_idle[shard.number] = False
        if self._loop is not None:
            self._loop.begin(shard.number)
        for bucket in self._buckets(shard.number):
            self._detectors[bucket] = IdleDetector(self._timeout)
            self._limits[bucket] = IdleLimit()
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
        # The answer of an earlier request: the brokers may have returned the ends of this one in another order.
        self._idle_as_of, self._as_of = self._as_of, answer.ends[_STATEMENTS]
        self._freshness.record_end(answer.asked_s, self._as_of)
        for bucket in answer.ends.keys() & self._detectors.keys():
            if answer.ends[bucket] <= self._shards[bucket.number].position.get(bucket.category, 0):
                self._detectors[bucket].confirm(answer.asked_s)
            else:
                self._detectors[bucket].interrupt(self._clock.monotonic_s())
        for number, reached_ms in self._reached_ms.items():
            for bucket in self._buckets(number) if number in self._shards else ():
                if self._is_silent(bucket):
                    self._limits[bucket].ask(reached_ms, self._as_of)

    def _request_ends(self) -> None:
        """Request the ends of quiet buckets, if a watermark depends on them: at intervals, and at once if an event makes one hold back others."""
        now_s = self._clock.monotonic_s()
        is_due = now_s - self._asked_s >= self._timeout.ask_every_s
        if self._end_offsets.in_progress or not (is_due or self._end_offsets.may_hurry):
            return
        reached_ms = {number: self._reached(shard) for number, shard in self._shards.items()}
        if not is_due and not any(map(self._waits, reached_ms.items())):
            return
        quiet = [bucket for bucket in self._detectors if self._is_quiet(bucket, now_s)]
        has_quiet_loop = self._loop is not None and self._loop.has_quiet
        if (quiet and self._detects_idleness) or self._subscriber.has_idle or has_quiet_loop:
            self._asked_s, self._reached_ms = now_s, reached_ms
            self._end_offsets.begin([*(quiet if self._detects_idleness else ()), _STATEMENTS])

    def _reached(self, shard: OpenShard) -> int:
        """Return the event time that the active inputs of a shard have reached; a feedback input only counts without others."""
        time = shard.operator.time
        if not isinstance(time, ShardTime) or len(self._sources) == 1 or not self._detects_idleness:
            return NEVER_MS
        silent = {name for name in self._sources if self._is_silent(Bucket(name, shard.number))}
        circulating = silent | self._feedback
        return time.minimum_without(silent if circulating.issuperset(self._sources) else circulating)

    def _waits(self, reached: tuple[int, int]) -> bool:
        """Return whether an idle input holds back the event time that its shard has reached."""
        number, reached_ms = reached
        return any(
            self._is_idle(self._shards[number], bucket) and self._limits[bucket].wants(reached_ms)
            for bucket in self._buckets(number)
        )

    def _is_quiet(self, bucket: Bucket, now_s: float) -> bool:
        return self._detectors[bucket].is_quiet(now_s) and not self._shards[bucket.number].catching_up

    def input_progress(self, shard: OpenShard) -> InputProgress:
        """Return the progress of a shard's inputs at its position, and publish its watermark if due."""
        buckets = self._buckets(shard.number)
        idle = {bucket.category: self._passed_by(bucket) for bucket in buckets if self._is_idle(shard, bucket)}
        upstream = self._upstream_watermarks(shard)
        if self._loop is not None and self._is_saved(shard.number):
            self._loop.record_saved(shard.number, self._loop_cut(shard, self._loop))
        is_due = self._clock.monotonic_s() - self._published_s.get(shard.number, -inf) >= PUBLISH_EVERY_S
        is_idle = len(idle) == len(self._inputs) and self._is_saved(shard.number)
        if is_due or is_idle or self._published_idle[shard.number]:
            self._publish(shard.number, idle=is_idle)
        watermarks = {name: found.watermark_ms for name, found in upstream.items()}
        passed_ms = max(self._passed_ms.get(shard.number, NEVER_MS), self._passed_in_silence(shard, idle))
        if passed_ms != NEVER_MS:
            watermarks |= {name: max(passed_ms, watermarks.get(name, passed_ms)) for name in self._sources}
        return InputProgress(watermarks, idle)

    def _passed_in_silence(self, shard: OpenShard, idle: Collection[str]) -> int:
        has_ended = shard.number in self._ended
        active = set(self._inputs).difference(idle, self._feedback if has_ended else ())
        if self._silence is None or active:
            return NEVER_MS
        lasted_s = min(self._detectors[bucket].lasted_s for bucket in self._buckets(shard.number))
        return self._silence.passed_ms(shard.operator.time, self._silence.assumed_s if has_ended else lasted_s)

    def assume_silence(self) -> bool:
        """Let event time go on as if the inputs, which have ended, had been silent for long; return whether it has done so already.

        An input with upstream watermarks goes on only if the runs of its writers have assumed the same, or these are idle.
        """
        if self._silence is None or self._ended.issuperset(self._shards):
            return True
        self._ended.update(self._shards)
        return False

    def publish_end(self) -> None:
        """Publish that the shards whose silence is assumed are idle until they have an owner again, and wait for that."""
        for number in sorted(self._ended):
            shard = self._shards[number]
            if self._is_saved(number) and all(self._is_idle(shard, bucket) for bucket in self._buckets(number)):
                self._publish(number, idle=True, ended=True)
        if self._ended:
            self.flush()

    def _is_idle(self, shard: OpenShard, bucket: Bucket) -> bool:
        if bucket.category in self._feedback:
            return self._is_silent(bucket)
        has_ended = bucket.number in self._ended and bucket.category not in self._upstream_inputs
        return has_ended or (self._is_silent(bucket) and self._pending_writer(shard, bucket) is None)

    def _passed_by(self, idle: Bucket) -> int:
        """Return the event time up to which an idle bucket does not hold back the others."""
        if idle.number in self._ended and idle.category not in self._feedback:
            return FOREVER_MS
        self._limits[idle].confirm(self._writers_idle_as_of(idle))
        return self._limits[idle].limit_ms

    def _writers_idle_as_of(self, bucket: Bucket) -> float:
        """Return when the writers of a bucket had no input: an offset of the statements; infinite without processors that write it."""
        if bucket.category in self._feedback:
            return 0 if self._loop is None else self._loop.idle_as_of
        return self._subscriber.idle_as_of(bucket)

    def _is_silent(self, bucket: Bucket) -> bool:
        if bucket.category in self._feedback:  # its writers wait for it, too
            return self._loop is not None and self._loop.is_drained(self._is_fresh)
        if bucket.number in self._ended:
            return True
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
        is_idle = self._is_idle(shard, bucket)
        upstream = {} if shard.in_flight.events or is_idle else self._upstream_watermarks(shard)
        if holder.name in upstream:
            held_by = upstream[holder.name].held_by
            return f"{bucket}: {held_by}" if holder.name in self._feedback else held_by
        if holder.why:
            return f"{bucket}, which {holder.why}"
        return "" if len(self._sources) == 1 else self._why_not_passed(shard, bucket)

    def _why_not_passed(self, shard: OpenShard, bucket: Bucket) -> str:
        """Return a bucket that holds back other inputs, and the reason."""
        if self._end_offsets.has_failed:
            return f"{bucket}: the bus does not return its end offset, so it cannot count as idle"
        if not self._is_silent(bucket):
            return str(bucket)
        writer = self._pending_writer(shard, bucket)
        if writer is None:
            return f"{bucket}, which is idle, until that is confirmed again"
        return f"{bucket}: it waits for {writer}"

    def waits(self) -> list[ShardWait]:
        """Return what each shard's event time waits for."""
        return [
            ShardWait(number, shard.events_in, shard.operator.time.low_ms, self._held_by(shard))
            for number, shard in sorted(self._shards.items())
        ]

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

    def _publish(self, number: int, *, idle: bool, ended: bool = False) -> None:
        self._published_s[number] = self._clock.monotonic_s()
        self._published_idle[number] = idle
        held_by = "" if idle or number not in self._shards else self._held_by(self._shards[number])
        round_ = NO_ROUND if self._loop is None else self._loop.round_of(number, is_read=self._subscriber.is_read)
        self._publisher.publish(
            number,
            self._lows_ms[number],
            held_by,
            idle=idle,
            ended=ended,
            as_of=self._as_of,
            idle_as_of=int(min(self._idle_as_of, *map(self._writers_idle_as_of, self._buckets(number)))) if idle else 0,
            round_=round_,
        )

    def _buckets(self, number: int) -> list[Bucket]:
        return [Bucket(name, number) for name in self._inputs]

    def drop(self, numbers: Collection[int]) -> None:
        """Stop following shards."""
        self._publisher.drop(numbers)
        if self._loop is not None:
            self._loop.drop(numbers)
        for marked in (self._unsaved, self._saving, self._ended):
            marked.difference_update(numbers)
        for number in numbers:
            for by_shard in (self._shards, self._lows_ms, self._published_idle, self._published_s):
                by_shard.pop(number, None)
            for bucket in self._buckets(number):
                self._detectors.pop(bucket, None)
                self._limits.pop(bucket, None)
                self._subscriber.drop(bucket)

    def close(self) -> None:
        """Send the last watermarks, and close the connections."""
        self._publisher.close()
        self._subscriber.close()
