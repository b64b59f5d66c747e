"""A shard: one processor on one bucket number of its inputs, and the snapshot that a checkpoint saves. No I/O, no clock.

batch --spans--> parts whose outputs count, or that only build state --feed--> outputs, rejected events
time  --pass_time--> outputs
drain --> outputs; changes go to the overlay --snapshot--> checkpoint --complete or roll_back-->
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from ..declare import AnyCategory, ErrorPolicy, MessageHeaders, Processor, Semantics, plan_of
from ..keyed_state import Changes, StateReader
from ..operators import Operator, StepResult, merge_of, open_operator
from ..time import NO_TIMES, CommittedTimes, InFlight, SavedTimes, ShardTime
from .batches import AcceptedBatch, RejectedEvent, rejected_events
from .checkpoints import next_id
from .overlay import Overlay
from .position import Offsets, StatePosition
from .resume_point import ResumePoint

S = TypeVar("S", bound=StateReader)
_NOTHING_IN_FLIGHT = InFlight()


class HeldOutput(NamedTuple):
    """An output that is sent after its state is saved.

    Args:
        category: its category.
        key: its key.
        value: its payload.
        bucket: the number of its bucket, or a negative number for the bucket of its key.
        headers: its headers.
    """

    category: str
    key: bytes | None
    value: bytes | None
    bucket: int
    headers: MessageHeaders | None


class HeldRow(NamedTuple):
    """A row that a checkpoint writes to a sink.

    Args:
        sink: the sink's name.
        row: a record or a tombstone.
    """

    sink: str
    row: Any


class MessageSpan(NamedTuple):
    """Consecutive messages of a batch, by index; `state_only` where their outputs are on the bus already."""

    begin: int
    end: int
    state_only: bool


class FedBatch(NamedTuple):
    """The result of a batch.

    Args:
        result: the operator's result.
        rejected: the rejected events in order, up to the first that stops the shard.
    """

    result: StepResult
    rejected: list[RejectedEvent]

    @property
    def stop(self) -> RejectedEvent | None:
        """The event at which the shard stops."""
        return self.rejected[-1] if self.rejected and self.rejected[-1].stops else None


@dataclass
class Shard(Generic[S]):
    """A running operator, the state below it, and its progress.

    Args:
        processor: open.
        number: the bucket number, the same in every input.
        state: the saved state; None for a stateless processor.
        overlay: the state as the operator reads it.
        operator: the processor's step.
        position: next unread offset by input category.
        state_only_until: by category, the offset up to which outputs are on the bus already.
        committed: the group's offsets, as far as the worker knows them.
        checkpoint_id: the last checkpoint's id; None where checkpoints have no ids.
        topic_ids: by category, the topics of the offsets.
        saved_position: the position at the last checkpoint.
        saved_times: the event times at the last checkpoint.
        held: outputs to send in a later step of a checkpoint.
        rows: rows to write to sinks at the next checkpoint.
        has_sent: whether outputs were sent since the last checkpoint began; a checkpoint has to flush or commit them.
        events_in: the number of events read.
        events_out: the number of records written.
    """

    processor: Processor
    number: int
    state: S | None
    overlay: Overlay
    operator: Operator
    position: Offsets
    state_only_until: Offsets
    committed: Offsets
    checkpoint_id: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    saved_position: Offsets = field(default_factory=dict)
    saved_times: SavedTimes = NO_TIMES
    held: list[HeldOutput] = field(default_factory=list)
    rows: list[HeldRow] = field(default_factory=list)
    has_sent: bool = False
    events_in: int = 0
    events_out: int = 0

    @property
    def saved_low_ms(self) -> int:
        """The low watermark at the last checkpoint."""
        return self.saved_times.low_ms

    @property
    def in_flight(self) -> InFlight:
        """The events that wait for a retry."""
        time = self.operator.time
        return time.in_flight if isinstance(time, ShardTime) else _NOTHING_IN_FLIGHT

    @property
    def catching_up(self) -> bool:
        """Whether the state is still behind the outputs in some input."""
        return any(self.position.get(name, 0) < end for name, end in self.state_only_until.items())

    @property
    def is_state_only(self) -> bool:
        """Whether the outputs of a drain, and of the passing of time, are on the bus already."""
        return self.catching_up and not repeats_outputs(type(self.processor))

    @property
    def has_news(self) -> bool:
        """Whether a checkpoint would save, send or commit anything; a moved low watermark counts, since consumers wait for it."""
        moved = self.position != self.saved_position or self._reached() != self.committed
        passed = self.operator.time.low_ms > self.saved_low_ms
        return moved or passed or self.has_sent or bool(self.held or self.rows) or bool(self.overlay.changes)

    def _reached(self) -> Offsets:
        """Return the group's offsets as they should be: while the state catches up, they stay ahead of it."""
        return {name: max(offset, self.state_only_until.get(name, 0)) for name, offset in self.position.items()}

    def _first(self) -> Offsets:
        """Return the offsets before the first events whose outputs the next checkpoint contains."""
        names = (category.name for category in plan_of(self.processor).inputs)
        return {name: max(self.saved_position.get(name, 0), self.state_only_until.get(name, 0)) for name in names}

    def spans(self, category: str, offsets: Sequence[int]) -> Iterator[MessageSpan]:
        """Split messages where their outputs begin to count, without messages that were read before."""
        begin = bisect_left(offsets, self.position.get(category, 0))
        border = max(begin, bisect_left(offsets, self.state_only_until.get(category, 0)))
        if border > begin:
            yield MessageSpan(begin, border, state_only=not repeats_outputs(type(self.processor)))
        if border < len(offsets):
            yield MessageSpan(border, len(offsets), state_only=False)

    def feed(self, category: AnyCategory, batch: AcceptedBatch) -> FedBatch:
        """Process a batch, up to the first event that stops the shard. The position stays; see `reach`.

        Raises:
            Deferred: nothing was processed; feed the batch again.
            Halted: nothing was processed, nor will it be.
        """
        stops = self.processor.on_error is ErrorPolicy.STOP
        result = self.operator.feed(category, batch.events, stop_at_error=stops)
        return FedBatch(result, rejected_events(category, batch, result, self.processor))

    def reach(self, category: str, offset: int) -> None:
        """Move the position. When the state has caught up, drop the outputs of the drain: they are on the bus already."""
        was_state_only = self.is_state_only
        self.position[category] = offset
        self.in_flight.reach(category, offset)
        if was_state_only and not self.catching_up:
            self.drain()

    def pass_time(self, upstream: Mapping[str, int], idle: Mapping[str, int], now_ms: int) -> list[Any]:
        """Return the outputs that are due.

        Args:
            upstream: the upstream watermark of each input that has one.
            idle: the idle inputs; see `ShardTime.advance`.
            now_ms: the time of day (milliseconds since 1970, UTC).
        """
        return [*self.operator.advance(upstream, idle).outputs, *self.operator.tick(now_ms).outputs]

    def drain(self) -> list[Any]:
        """Move the operator's changes to the overlay; return the outputs of a checkpoint."""
        drained = self.operator.drain()
        self.overlay.add(drained.changes)
        return drained.outputs

    def snapshot(self) -> CheckpointSnapshot[S]:
        """Return a snapshot of the shard for a checkpoint. Later changes and outputs belong to the next checkpoint."""
        held, self.held = self.held, []
        rows, self.rows = self.rows, []
        self.has_sent = False
        if self.checkpoint_id is not None:
            self.checkpoint_id = next_id(self.checkpoint_id)
        return CheckpointSnapshot(
            self.number,
            self.state,
            self.committed,
            dict(self.position),
            self._reached(),
            self.checkpoint_id,
            self.topic_ids,
            self.overlay.snapshot(),
            held,
            self._times(),
            self._first(),
            rows,
        )

    def _times(self) -> SavedTimes:
        """Return the event times to save; a state contains those of the inputs."""
        time = self.operator.time
        return time.saved() if self.state is None and isinstance(time, ShardTime) else SavedTimes(time.low_ms)

    def complete(self, snapshot: CheckpointSnapshot[S]) -> None:
        """Record a complete checkpoint."""
        self.overlay.finish(snapshot.changes)
        self.saved_position, self.committed = snapshot.position, snapshot.reached
        self.saved_times = snapshot.times

    def roll_back(self, snapshot: CheckpointSnapshot[S]) -> None:
        """Keep the unsaved changes and unsent outputs of an unfinished checkpoint for the next one."""
        self.overlay.finish(snapshot.changes)
        self.held[:0] = snapshot.held
        self.rows[:0] = snapshot.rows
        self.has_sent = True


@dataclass
class CheckpointSnapshot(Generic[S]):
    """A snapshot of a shard, to save in a checkpoint. `changes`, `held` and `rows` become empty once they are saved or sent.

    Args:
        number: the shard's bucket number.
        state: the saved state; None for a stateless processor.
        before: the group's offsets before the checkpoint.
        position: next unread offset by input category.
        reached: the group's offsets after the checkpoint.
        checkpoint_id: None where checkpoints have no ids.
        topic_ids: by category, the topics of the offsets.
        changes: the changes of state.
        held: outputs to send in a later step.
        times: the event times; everything due before the low watermark is in this checkpoint or an earlier one.
        first: the offsets before the first events whose outputs it contains.
        rows: rows to write to sinks.
    """

    number: int
    state: S | None
    before: Offsets
    position: Offsets
    reached: Offsets
    checkpoint_id: int | None
    topic_ids: Mapping[str, str]
    changes: Changes
    held: list[HeldOutput]
    times: SavedTimes
    first: Offsets
    rows: list[HeldRow]

    @property
    def low_ms(self) -> int:
        """The low watermark."""
        return self.times.low_ms

    @property
    def state_position(self) -> StatePosition:
        """The position of the state after the checkpoint."""
        return StatePosition(self.position, checkpoint_id=self.checkpoint_id or 0, topic_ids=dict(self.topic_ids))

    def take_held(self) -> list[HeldOutput]:
        """Return the held outputs, and remove them from the snapshot."""
        held, self.held = self.held, []
        return held


def new_shard(
    processor: Processor,
    number: int,
    state: S | None,
    resume_point: ResumePoint = ResumePoint(),  # noqa: B008 - frozen
    committed: Offsets | None = None,
) -> Shard[S]:
    """Return a shard that continues at a position."""
    overlay = Overlay(CommittedTimes(resume_point.times) if state is None else state, merge_of(processor))
    operator = open_operator(processor, overlay, number)
    position = dict(resume_point.position)
    return Shard(
        processor,
        number,
        state,
        overlay,
        operator,
        position,
        resume_point.state_only_until,
        committed or {},
        resume_point.checkpoint_id,
        resume_point.topic_ids,
        saved_position=dict(position),
        saved_times=resume_point.times if state is None else SavedTimes(operator.time.low_ms),
    )


def repeats_outputs(processor: type[Processor]) -> bool:
    """Whether outputs are sent again while a state catches up.

    One of several inputs may catch up before another, so that an output depends on old and on new events. It is sent again where outputs
    may repeat, and dropped where they may be missing.
    """
    return len(plan_of(processor).inputs) > 1 and processor.output_semantics is Semantics.AT_LEAST_ONCE
