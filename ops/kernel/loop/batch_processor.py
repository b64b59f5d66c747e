"""Processing of a worker's batches and timers, by a chain that is composed once for each input.

    raw batch --BatchIntake--> events --cuts--> --shard.feed--> outputs, rejected events --effects--> bus, dead letters, position

A link that an input does not need is absent: limits of dead letters, messages with several events, outputs that are on the bus already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....processors import Halted
from ....processors.declare import Processor, plan_of
from ....processors.operators import StepResult
from ....processors.shard import (
    AcceptedBatch,
    FedBatch,
    KeyCheck,
    RejectedEvent,
    before_message_of_stop,
    divides_message,
    numbered_in_message,
)
from ....processors.time import UNKNOWN_ARRIVAL_MS, Times
from ....transport import Bucket, RawBatch
from ....transport.codecs import Codecs
from ...shell import MachineClock, event_fields, failed_event
from ..checkpoint import CheckpointScheduler, OutputRefused, OutputTooLarge, OutputWriter
from ..event_time import WatermarkTracker
from ..shards import OpenShard
from ..telemetry import EventTracer, HotKeys, Metrics, ProcessedBatch
from .batch_intake import BatchIntake
from .batch_sizer import MOST_EVENTS, BatchSizer
from .dead_letter_guard import Count, Cut, DeadLetterGuard
from .event_stops import place_of, stop_after, stop_at, stop_at_event, stop_at_output
from .user_exits import exits_named


@dataclass(frozen=True)
class _Fed:
    """A batch that the operator has processed, before its effects.

    Args:
        shard: its shard.
        batch: the messages, one for each record.
        arrivals_ms: when each of them arrived.
        accepted: the events.
        result: the operator's result.
        rejected: the rejected events in order, up to the first that stops the shard.
        took_s: the duration of the processing.
    """

    shard: OpenShard
    batch: RawBatch
    arrivals_ms: Times
    accepted: AcceptedBatch
    result: StepResult
    rejected: list[RejectedEvent]
    took_s: float


_Effect = Callable[[_Fed], None]


class _Chain(NamedTuple):
    """The links of an input.

    Args:
        intake: decodes and accepts its events.
        cuts: each ends a batch before an event at which the worker stops, if there is one.
        describe: adds to the reasons of rejected events.
        effects: what follows from a processed batch, in this order.
    """

    intake: BatchIntake
    cuts: tuple[Cut, ...]
    describe: Callable[[RawBatch, FedBatch], list[RejectedEvent]]
    effects: tuple[_Effect, ...]


class BatchProcessor:
    """Processes the batches of one worker. One thread.

    Args:
        processor: open.
        codecs: decode its inputs.
        outputs: sends outputs and dead letters.
        guard: limits the dead letters; None without a limit.
        time: follows event time.
        checkpoints: counts the work for the next checkpoint.
        metrics: counts it.
        clock: returns the time.
        tracer: traces the events.
    """

    def __init__(
        self,
        processor: Processor,
        codecs: Codecs,
        *,
        outputs: OutputWriter,
        guard: DeadLetterGuard | None,
        time: WatermarkTracker,
        checkpoints: CheckpointScheduler,
        metrics: Metrics,
        clock: MachineClock,
        tracer: EventTracer,
    ) -> None:
        plan = plan_of(processor)
        self._processor = processor
        self._outputs = outputs
        self._guard = guard
        self._time = time
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._clock = clock
        self._tracer = tracer
        self.hot_keys = HotKeys()
        self.sizer = BatchSizer(MOST_EVENTS, plan.min_batch)
        keys = KeyCheck(type(processor))
        intakes = [BatchIntake(processor, category, codecs, keys, clock) for category in plan.inputs]
        self._live = {intake.category.name: self._chain_of(intake) for intake in intakes}
        self._rebuilding = {intake.category.name: self._chain_without_outputs(intake) for intake in intakes}

    def _chain_of(self, intake: BatchIntake) -> _Chain:
        effects = (self._record_times, self._send, self._set_aside, self._stop, self._reach)
        if self._guard is None:
            return _composed(intake, (), effects)
        cuts, count = self._guard.checks_of(intake.category.name)
        return _composed(intake, cuts, (*effects, lambda fed: _count_letters(count, fed)))

    def _chain_without_outputs(self, intake: BatchIntake) -> _Chain:
        """Return the chain for events whose outputs are on the bus already."""
        return _composed(intake, (), (self._stop, self._reach))

    @property
    def most_events(self) -> int:
        """The most events of the next poll."""
        limit = self._processor.max_batch()
        return self.sizer.at_most if limit is None else min(self.sizer.at_most, limit)

    def process(self, shard: OpenShard, batch: RawBatch) -> None:
        """Process a batch, and advance the position of its bucket.

        Raises:
            Deferred: the processor cannot process the batch now; read it again later.
            StopAtEvent: the worker stops at an event.
        """
        category, offsets = batch.bucket.category, batch.offsets()
        for begin, end, state_only in shard.spans(category, offsets):
            if not state_only and shard.is_state_only:
                shard.reach(category, offsets[begin])
            chains = self._rebuilding if state_only else self._live
            self._pass(shard, batch.part(begin, end), chains[category])

    def _pass(self, shard: OpenShard, received: RawBatch, chain: _Chain) -> None:
        """Let a batch pass a chain."""
        batch = chain.intake.split(received)
        arrivals_ms = batch.arrivals_ms()
        accepted = chain.intake.accept(shard, batch, arrivals_ms)
        for cut in chain.cuts:
            accepted = cut(batch, accepted)
        began_s = self._clock.monotonic_s()
        fed = self._fed(shard, batch, chain.intake, accepted)
        took_s = self._clock.monotonic_s() - began_s
        # A poll is limited by its messages, of which each may have several events.
        self.sizer.record(min(len(accepted.events), len(received.messages)), took_s)
        rejected = chain.describe(batch, fed)
        processed = _Fed(shard, batch, arrivals_ms, accepted, fed.result, rejected, took_s)
        for effect in chain.effects:
            effect(processed)

    def _fed(self, shard: OpenShard, batch: RawBatch, intake: BatchIntake, accepted: AcceptedBatch) -> FedBatch:
        category = intake.category
        try:
            with event_fields(batch, accepted, category), exits_named(type(self._processor).__name__, failed_event):
                return shard.feed(category, accepted)
        except Halted as error:
            # At the first message, since no earlier event of the batch was rejected yet.
            raise stop_at(shard, batch, 0, str(error)) from error

    def _record_times(self, fed: _Fed) -> None:
        self._metrics.timings.processing.record_one(fed.took_s)
        known_ms = fed.arrivals_ms[fed.arrivals_ms != UNKNOWN_ARRIVAL_MS]
        # Clocks of other machines may be ahead.
        self._metrics.timings.event_age.record(np.maximum(self._clock.now_ms() - known_ms, 0) / 1000)

    def _send(self, fed: _Fed) -> None:
        shard, batch, accepted, result = fed.shard, fed.batch, fed.accepted, fed.result
        causes = result.causes if self._processor.trace_context else None
        with self._tracer.batch(ProcessedBatch(batch, accepted, fed.rejected, causes, fed.took_s)) as contexts:
            try:
                self._outputs.send(shard, result.outputs, contexts)
            except OutputTooLarge as error:
                raise stop_at_output(shard, batch, accepted, result, error) from error
            except OutputRefused as error:
                raise error.of(place_of(error.at, batch, accepted, result)) from error

    def _set_aside(self, fed: _Fed) -> None:
        for event in fed.rejected:
            if not event.stops:
                self._outputs.set_aside(fed.shard, fed.batch, event)

    def _stop(self, fed: _Fed) -> None:
        stop = fed.rejected[-1] if fed.rejected else None
        if stop is not None and stop.stops:
            saves = not divides_message(stop, fed.accepted, fed.rejected, fed.batch.offsets())
            raise stop_at_event(fed.shard, fed.batch, stop, saves=saves) from stop.cause

    def _reach(self, fed: _Fed) -> None:
        """Advance the position, and count the batch; its messages without an event, such as a header line of CSV, are work, too."""
        shard, batch, result = fed.shard, fed.batch, fed.result
        shard.reach(batch.bucket.category, batch.next_offset)
        self._time.record_events(batch.bucket)
        self.hot_keys.record(batch)
        size_bytes, events = batch.size_bytes(), len(fed.accepted.at) + len(fed.accepted.rejected)
        self._checkpoints.add_work(len(batch.messages), size_bytes)
        shard.events_in += events
        self._metrics.events_in += events
        self._metrics.bytes_in += size_bytes
        self._metrics.late += result.late
        self._metrics.dropped += result.dropped
        self._metrics.unmatched += result.unmatched

    def pass_time(self, shard: OpenShard) -> None:
        """Send the outputs that upstream watermarks, idle inputs and the time of day make due; none while the state catches up."""
        if shard.catching_up:
            return
        low_ms = shard.operator.time.low_ms
        outputs = shard.pass_time(*self._time.input_progress(shard), self._clock.now_ms())
        if outputs:
            with self._tracer.timers(shard.number, len(outputs)) as contexts:
                self._outputs.send(shard, outputs, contexts)
        due = len(outputs) + int(shard.operator.time.low_ms > low_ms)
        if due:
            self._checkpoints.add_work(due, 0)
            self._time.record_change(shard.number)

    def reach_end(self, shard: OpenShard, bucket: Bucket, end: int) -> None:
        """Advance the position past the bus's transaction markers at the end of a bucket, and let a checkpoint save it."""
        before = shard.position.get(bucket.category, -1)
        if end > before:
            shard.reach(bucket.category, end)
            if end > max(before, 0):
                self._checkpoints.note_moved_position()


def _composed(intake: BatchIntake, cuts: tuple[Cut, ...], effects: tuple[_Effect, ...]) -> _Chain:
    if not intake.divides:
        return _Chain(intake, cuts, lambda _, fed: fed.rejected, effects)
    return _Chain(
        intake, (*cuts, lambda batch, accepted: before_message_of_stop(accepted, batch.offsets())), _numbered, effects
    )


def _numbered(batch: RawBatch, fed: FedBatch) -> list[RejectedEvent]:
    return [numbered_in_message(event, batch.offsets()) for event in fed.rejected]


def _count_letters(count: Count, fed: _Fed) -> None:
    exceeding = count(fed.batch, [event for event in fed.rejected if not event.retried_in])
    if exceeding is not None:
        raise stop_after(fed.shard, fed.batch, exceeding)
