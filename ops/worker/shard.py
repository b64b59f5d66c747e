"""A shard: one processor at work on one bucket number of its inputs, with what its next checkpoint has to save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from ...processors.declare.processor import Processor
from ...processors.keyed_state.changes import Changes, EmptyState
from ...processors.operators import Operator, merge_of, open_operator
from ...processors.time.watermarks import NEVER_MS
from ...state.checkpoints import CHECKPOINT_ID, Step, next_id
from ...state.local.overlay import Overlay
from ...state.protocols import Delta, Offsets, Outbox, ShardState
from ...transport.bus import Bucket, Position, RawBatch
from .resume_point import ResumePoint

HeldOutput = tuple[str, bytes | None, bytes | None]
"""Category, key and value."""


_STATE_IS_SAVED = frozenset({Step.SAVE_STATE, Step.SAVE_TOGETHER, Step.SAVE_WITH_OUTBOX, Step.APPLY_STATE})


class Part(NamedTuple):
    """A stretch of a batch; a muted one is read for the state alone, as its outputs are on the bus already."""

    batch: RawBatch
    state_only: bool


@dataclass
class Shard:
    """A core, the state under it, and how far it has read.

    Args:
        number: the bucket number, the same in every input.
        core: the processor's step.
        overlay: the state as the core sees it.
        state: its saved state, of the kind that the row's steps ask for; None for a stateless processor.
        position: next unread offset by input category.
        muted_until: by category, the offset up to which outputs are on the bus already.
        committed: the group's positions, as far as is known.
        checkpoint_id: that of its last checkpoint; None where its checkpoints have none.
        topic_marks: of which topics its position is.
        saved_position: the position at the last checkpoint.
        saved_low_ms: the low watermark at the last checkpoint.
        held: outputs that wait for their step of a checkpoint.
        has_sent: whether outputs were sent since the last checkpoint began; it has to flush, or commit, them.
        events_in: how many events were read.
        events_out: how many records were written.
    """

    number: int
    core: Operator
    overlay: Overlay
    state: Any
    position: Offsets
    state_only_until: Offsets
    committed: Offsets
    checkpoint_id: int | None = None
    topic_marks: Offsets = field(default_factory=dict)
    saved_position: Offsets = field(default_factory=dict)
    saved_low_ms: int = NEVER_MS
    held: list[HeldOutput] = field(default_factory=list)
    has_sent: bool = False
    events_in: int = 0
    events_out: int = 0

    @property
    def catching_up(self) -> bool:
        """Whether some input is still read for the state alone."""
        return any(self.position.get(name, 0) < end for name, end in self.state_only_until.items())

    @property
    def has_news(self) -> bool:
        """Whether there is anything for a checkpoint, be it only that the group does not know yet how far the state is.

        Or that consumers do not know how far event time is, which goes on without an event, too.
        """
        moved = self.position != self.saved_position or self._reached() != self.committed
        passed = self.core.time.low_ms > self.saved_low_ms
        return moved or passed or self.has_sent or bool(self.held) or bool(self.overlay.changes)

    def _reached(self) -> Offsets:
        """Return the group's positions as they should be: while a state catches up, they stay ahead of it."""
        return {name: max(offset, self.state_only_until.get(name, 0)) for name, offset in self.position.items()}

    def parts(self, batch: RawBatch) -> Iterator[Part]:
        """Split a batch where its outputs begin to count, without what was read before."""
        begin = self.position.get(batch.bucket.category, 0)
        border = self.state_only_until.get(batch.bucket.category, 0)
        if border > begin:
            yield from _part(_between(batch, begin, border), state_only=True)
        yield from _part(_between(batch, max(begin, border)), state_only=False)

    def seal(self) -> CheckpointSnapshot:
        """Hand what is to be saved over to a checkpoint, as it is now."""
        held, self.held = self.held, []
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
            self.topic_marks,
            self.overlay.seal(),
            held,
            self.core.time.low_ms,
        )

    def settle(self, sealed: CheckpointSnapshot) -> None:
        """Note that a checkpoint is complete."""
        self.overlay.settle(sealed.changes)
        self.saved_position, self.committed = sealed.position, sealed.reached
        self.saved_low_ms = sealed.low_ms

    def take_back(self, sealed: CheckpointSnapshot) -> None:
        """Keep for the next checkpoint what one that was broken off has not saved."""
        self.overlay.settle(sealed.changes)
        self.held[:0] = sealed.held
        self.has_sent = True

    def close(self) -> None:
        """Let go of the state; what was not saved is dropped."""
        if self.state is not None:
            self.state.close()


@dataclass
class CheckpointSnapshot:
    """What a checkpoint saves of a shard; what has been saved, or sent, is no longer in it.

    Args:
        number: the shard's bucket number.
        state: its saved state.
        before: the group's positions so far.
        position: next unread offset by input category.
        reached: the group's positions after the checkpoint.
        checkpoint_id: the checkpoint's own; None where those have none.
        topic_marks: of which topics the position is.
        changes: what changed in the state.
        held: outputs that wait for their step.
        low_ms: the low watermark; what belongs before it is in this checkpoint, or in earlier ones.
    """

    number: int
    state: Any
    before: Offsets
    position: Offsets
    reached: Offsets
    checkpoint_id: int | None
    topic_marks: Offsets
    changes: Changes
    held: list[HeldOutput]
    low_ms: int

    @property
    def standing(self) -> Offsets:
        """The position that the state reflects after the checkpoint, with the checkpoint's id and its topics'."""
        position = {**self.position, **self.topic_marks}
        return position if self.checkpoint_id is None else {**position, CHECKPOINT_ID: self.checkpoint_id}

    def positions(self) -> list[Position]:
        """Return the group's positions as they should be after the checkpoint."""
        checkpoint_id = self.checkpoint_id or 0
        return [Position(Bucket(name, self.number), offset, checkpoint_id) for name, offset in self.reached.items()]

    def perform(self, step: Step) -> None:
        """Perform a step that concerns the state."""
        state, changes = self.state, self.changes
        match step:
            case Step.SAVE_STATE:
                state.save(changes)
            case Step.SAVE_POSITION:
                state.save_position(self.standing)
            case Step.SAVE_TOGETHER:
                state.save_together(changes, self.standing)
            case Step.PREPARE_STATE:
                state.prepare(Delta(self.before, self.standing, changes))
            case Step.APPLY_STATE:
                state.apply()
            case Step.SAVE_WITH_OUTBOX:
                state.save_with_outbox(changes, Outbox(self.before, self.standing, self.held))
            case Step.CLEAR_OUTBOX:
                state.clear_outbox()
        if step in _STATE_IS_SAVED:
            self.changes = {}

    def take_held(self) -> list[HeldOutput]:
        """Hand over the outputs that wait."""
        held, self.held = self.held, []
        return held


def new_shard(
    processor: Processor,
    number: int,
    state: ShardState | None,
    going_on: ResumePoint,
    committed: Offsets,
) -> Shard:
    """Return a shard that goes on at a position."""
    overlay = Overlay(state or EmptyState(), merge_of(processor))
    position = dict(going_on.position)
    core = open_operator(processor, overlay)
    return Shard(
        number,
        core,
        overlay,
        state,
        position,
        going_on.state_only_until,
        committed,
        going_on.checkpoint_id,
        going_on.topic_marks,
        saved_position=dict(position),
        saved_low_ms=core.time.low_ms,
    )


def _part(batch: RawBatch, *, state_only: bool) -> Iterator[Part]:
    if batch.messages:
        yield Part(batch, state_only)


def _between(batch: RawBatch, begin: int, end: float = inf) -> RawBatch:
    messages = batch.messages
    if not messages or (messages[0].offset() >= begin and messages[-1].offset() < end):
        return batch
    return RawBatch(batch.bucket, [message for message in messages if begin <= message.offset() < end])
