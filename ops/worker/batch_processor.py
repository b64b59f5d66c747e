"""Processing of a worker's batches and timers: decoding, acceptance, the processor's step, outputs and dead letters.

raw batch --decode, accept--> events --shard.feed--> outputs, rejected events --OutputWriter--> bus
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...processors.declare.categories import AnyCategory
from ...processors.declare.codecs import ColumnCodec, Decoded, Message
from ...processors.declare.column_events import ColumnEvents
from ...processors.declare.dead_letters import dead_letters_of
from ...processors.declare.processor import Processor
from ...processors.errors import Halted, PenstockError
from ...processors.operators import StepResult
from ...processors.shard.batches import (
    AcceptedBatch,
    EventRejected,
    RejectedEvent,
    accept_batch,
    before_message_of_stop,
    divides_message,
    expect_unit,
    numbered_in_message,
    with_deletions,
)
from ...processors.shard.key_check import KeyCheck
from ...processors.shard.key_diagnosis import MisplacedEvent
from ...processors.time.timestamp_validation import UNKNOWN_ARRIVAL_MS
from ...processors.time.watermarks import Times
from ...transport.codecs.by_category import Codecs
from ...transport.messages import Bucket, RawBatch, split_batch
from ...transport.retry_messages import returned
from ..clock import Clock
from ..logs.event_fields import event_fields, failed_event
from .checkpoint_scheduler import CheckpointScheduler
from .dead_letter_guard import DeadLetterGuard
from .hot_keys import HotKeys
from .metrics import Metrics
from .open_shard import OpenShard
from .output_writer import OutputWriter
from .trace_context import EventTracer, ProcessedBatch
from .user_exits import exits_named
from .watermark_tracker import WatermarkTracker

LEAST_COLUMNS = 200
"""The number of events from which columns are faster than records."""


class StopAtEvent(PenstockError):
    """A shard stops at an event or after a batch: save the processed events, then stop the worker.

    Args:
        shard: the shard.
        at: the offset and the reason.
        consequence: the result for the other events; contains `{before}` where it depends on whether they could be saved.
        saves: whether the processed events can be saved. They cannot if the event's message contains some of them.
    """

    def __init__(self, shard: OpenShard, at: str, consequence: str, *, saves: bool = True) -> None:
        super().__init__(at)
        self.shard = shard
        self.saves = saves
        self._at = at
        self._consequence = consequence

    def rejection(self) -> EventRejected:
        """Return the error that stops the worker, after it tried to save."""
        is_saved = self.saves and self.shard.saved_position == self.shard.position
        reason = "they could not be saved just now" if self.saves else "some are in the same message"
        before = "are saved" if is_saved else f"since the last checkpoint will be read again, since {reason},"
        return EventRejected(f"{self._at} {self._consequence.replace('{before}', before)}".rstrip())


class BatchProcessor:
    """Processes the batches of one worker. One thread.

    Args:
        processor: open.
        codecs: decode its inputs.
        outputs: sends outputs and dead letters.
        guard: limits the dead letters.
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
        guard: DeadLetterGuard,
        time: WatermarkTracker,
        checkpoints: CheckpointScheduler,
        metrics: Metrics,
        clock: Clock,
        tracer: EventTracer,
    ) -> None:
        self._processor = processor
        self._inputs = {category.name: category for category in processor.inputs()}
        chain = processor.retry_chain()
        self._sources = {} if chain is None else {category.name: chain.source for category in chain.categories}
        """The category in which the events of a retry category were read first."""
        self._codecs = codecs
        self._outputs = outputs
        self._guard = guard
        self._time = time
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._clock = clock
        self._tracer = tracer
        self._keys = KeyCheck(type(processor))
        self._columns = None if chain else processor.stream_columns()
        self.hot_keys = HotKeys()
        self.sizer = BatchSizer(MOST_EVENTS, processor.min_batch())

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
            self._process_part(shard, batch.part(begin, end), state_only=state_only)

    def _process_part(self, shard: OpenShard, received: RawBatch, *, state_only: bool) -> None:
        category = self._inputs[received.bucket.category]
        batch = split_batch(self._codecs.of(self._sources.get(category.name, category)), received)
        arrivals_ms = batch.arrivals_ms()
        accepted = self._accepted(shard, batch, category, arrivals_ms)
        if not state_only:
            accepted = self._guard.cut(batch, accepted)
        if batch is not received:
            accepted = before_message_of_stop(accepted, batch.offsets())
        began_s = self._clock.monotonic_s()
        result, rejected = self._fed(shard, batch, category, accepted)
        took_s = self._clock.monotonic_s() - began_s
        # A poll is limited by its messages, of which each may have several events.
        self.sizer.record(min(len(accepted.events), len(received.messages)), took_s)
        if batch is not received:
            rejected = [numbered_in_message(event, batch.offsets()) for event in rejected]
        if not state_only:
            self._record_times(arrivals_ms, took_s)
            processed = ProcessedBatch(batch, accepted, rejected, result.causes, took_s)
            with self._tracer.batch(processed) as contexts:
                self._outputs.send(shard, result.outputs, contexts)
        for event in rejected:
            if event.stops:
                saves = batch is received or not divides_message(event, accepted, rejected, batch.offsets())
                raise self._stop(shard, batch, event, saves=saves) from event.cause
            if not state_only:
                self._outputs.set_aside(shard, batch, event)
        final = [event for event in rejected if not event.retried_in]
        exceeding = None if state_only else self._guard.record(batch, final)
        shard.reach(batch.bucket.category, batch.next_offset)
        self._count(shard, batch, result, len(accepted.at) + len(accepted.rejected))
        if exceeding is not None:
            raise self._stop_after(shard, batch, exceeding)

    def _record_times(self, arrivals_ms: Times, took_s: float) -> None:
        self._metrics.timings.processing.record_one(took_s)
        known_ms = arrivals_ms[arrivals_ms != UNKNOWN_ARRIVAL_MS]
        # Clocks of other machines may be ahead.
        self._metrics.timings.event_age.record(np.maximum(self._clock.now_ms() - known_ms, 0) / 1000)

    def _accepted(self, shard: OpenShard, batch: RawBatch, category: AnyCategory, arrivals_ms: Times) -> AcceptedBatch:
        messages: Sequence[Message] = batch.messages
        if category.name in self._sources:
            messages = [returned(message, batch.bucket).message for message in messages]
        decoded = self._decoded(messages, self._sources.get(category.name, category))
        decoded = with_deletions(decoded, messages, category, self._processor)
        decoded = decoded._replace(events=category.batch_of(decoded.events))
        if not shard.position.get(category.name):  # 0 after the start of a worker before the first event
            now_ms = self._clock.now_ms()
            expect_unit(type(self._processor), str(batch.bucket), category, decoded.events, now_ms)
        misplaced = self._misplaced(batch, category, decoded)
        return accept_batch(decoded, category, arrivals_ms, self._processor, misplaced)

    def _decoded(self, messages: Sequence[Message], category: AnyCategory) -> Decoded:
        """Decode a batch, to columns if the processor uses them and the batch is worth it."""
        codec = self._codecs.of(category)
        if self._columns is not None and len(messages) >= LEAST_COLUMNS and isinstance(codec, ColumnCodec):
            columns = codec.decode_columns(messages, self._columns)
            if columns is not None:
                events = ColumnEvents(category, columns, lambda begin, end: codec.decode(messages[begin:end]).events)
                return Decoded(events, range(len(messages)), [])
        return codec.decode(messages)

    def _misplaced(self, batch: RawBatch, category: AnyCategory, decoded: Decoded) -> list[RejectedEvent]:
        found = self._keys.misplaced(category, batch.bucket.number, decoded.events)
        if found is None:
            return []
        event, keys = decoded.events[found.at], [message.key() for message in batch.messages]
        return [MisplacedEvent(found, event, decoded.at[found.at], keys, category).rejection(type(self._processor))]

    def _fed(
        self, shard: OpenShard, batch: RawBatch, category: AnyCategory, accepted: AcceptedBatch
    ) -> tuple[StepResult, list[RejectedEvent]]:
        try:
            with event_fields(batch, accepted, category), exits_named(type(self._processor).__name__, failed_event):
                return shard.feed(category, accepted)
        except Halted as error:
            # At the first message, since no earlier event of the batch was rejected yet.
            raise self._stop_at(shard, batch, 0, str(error)) from error

    def _count(self, shard: OpenShard, batch: RawBatch, result: StepResult, events: int) -> None:
        """Count a batch with a number of events; its messages without one, such as a header line of CSV, are work, too."""
        self._time.record_events(batch.bucket)
        self.hot_keys.record(batch)
        size_bytes = batch.size_bytes()
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

    def _stop(self, shard: OpenShard, batch: RawBatch, event: RejectedEvent, *, saves: bool) -> StopAtEvent:
        name = type(self._processor).__name__
        suspects = name if event.cause is not None else f"{name} or the producer of these events"
        remedy = event.remedy or (
            f"Fix {suspects}, or send such events to {dead_letters_of(type(self._processor)).name} (`{event.setting}`)."
        )
        return self._stop_at(shard, batch, event.at, f"{event.reason}.", remedy, saves=saves)

    def _stop_at(
        self, shard: OpenShard, batch: RawBatch, at: int, reason: str, remedy: str = "", *, saves: bool = True
    ) -> StopAtEvent:
        offset = batch.messages[at].offset()
        shard.position[batch.bucket.category] = offset
        return StopAtEvent(
            shard,
            f"{batch.bucket} at offset {offset}: {reason}",
            "All earlier events {before} and nothing was skipped. The worker stops here, and reads this event again after a restart. "
            f"{remedy}",
            saves=saves,
        )

    def _stop_after(self, shard: OpenShard, batch: RawBatch, event: RejectedEvent) -> StopAtEvent:
        return StopAtEvent(
            shard,
            f"{batch.bucket} at offset {batch.messages[event.at].offset()}: {event.reason}.",
            f"The events up to offset {batch.next_offset - 1} are processed or in the dead letters, and nothing was skipped. The worker stops here, "
            f"and continues after them when you start it again. {event.remedy}",
        )


TARGET_BATCH_S = 0.5
"""How long the processor should take for the events of one poll."""


MOST_EVENTS = 10_000
"""The most events of a poll; a reader may return fewer."""


FIRST_BATCH = 500
"""The size of the first poll, before the processor's speed is known."""


MAX_GROWTH = 4
"""The greatest ratio of one poll's size to the last one's: a few fast events are no proof that the next ones are fast."""


class BatchSizer:
    """Adapts the size of polls to the processor's speed. One thread.

    Args:
        most: the greatest size of a poll.
        least: the size below which a poll does not become faster.
    """

    def __init__(self, most: int, least: int = 1) -> None:
        self._most = most
        self._least = min(least, most)
        self.at_most = max(self._least, min(FIRST_BATCH, most))

    def record(self, events: int, seconds: float) -> None:
        """Record how long the processor took for a number of events."""
        if events:
            fitting = int(events * TARGET_BATCH_S / seconds) if seconds > 0 else self._most
            self.at_most = max(self._least, min(fitting, self.at_most * MAX_GROWTH, self._most))
