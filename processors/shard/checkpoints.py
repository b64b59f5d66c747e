"""The steps of a checkpoint, as data: durable writes in their order.

Outputs O, state S, position P. The order decides what a crash between two steps does to the data, and every gap between
two steps is a place where a test can stop the process. A position is stored twice: beside the state, where it decides, and as
the group's committed offset: for other tools, for processors without state, and for states that catch up.

Source: Chen et al., "Realtime Data Processing at Facebook", 2016, section 4.3.
"""

from __future__ import annotations

import secrets
from enum import Enum
from typing import NamedTuple

from ..declare import Aggregator, Processor, RemoteStore, Semantics, plan_of


class Step(Enum):
    """One durable step of a checkpoint."""

    LOG_CHANGES = "log changes"
    """The changes of state are sent to the changelog, in a transaction."""
    FLUSH_OUTPUTS = "flush outputs"
    """Outputs, which were sent at once, are on the bus: in a transaction that is still open, or visible to all."""
    SEND_OUTPUTS = "send outputs"
    """Held outputs are sent, and flushed."""
    SAVE_STATE = "save state"
    SAVE_POSITION = "save position"
    SAVE_TOGETHER = "save state and position"
    """Both in one write."""
    SAVE_WITH_OUTBOX = "save state, position and outputs"
    """All three in one write to the remote store."""
    PREPARE_STATE = "prepare state"
    """The changes are stored beside the state, until the commit decides about them."""
    APPLY_STATE = "apply state"
    """The prepared changes become part of the state."""
    COMMIT_OFFSETS = "commit offsets"
    """The group's positions."""
    COMMIT_TRANSACTION = "commit transaction"
    """Outputs and the group's positions in one transaction of the bus."""
    CLEAR_OUTBOX = "clear outbox"
    WRITE_SINKS = "write sinks"
    """Held rows are written to their sinks. Exactly once: with the position, which decides about the checkpoint."""


Steps = tuple[Step, ...]

_LEAST, _MOST, _EXACT = Semantics.AT_LEAST_ONCE, Semantics.AT_MOST_ONCE, Semantics.EXACTLY_ONCE

_STATELESS: dict[Semantics, Steps] = {
    _LEAST: (Step.FLUSH_OUTPUTS, Step.COMMIT_OFFSETS),
    _MOST: (Step.COMMIT_OFFSETS, Step.SEND_OUTPUTS),
    _EXACT: (Step.FLUSH_OUTPUTS, Step.COMMIT_TRANSACTION),
}

_STATEFUL: dict[tuple[Semantics, Semantics], Steps] = {
    # A crash between two of these repeats events; in the other order it would lose them.
    (_LEAST, _LEAST): (Step.FLUSH_OUTPUTS, Step.SAVE_STATE, Step.SAVE_POSITION, Step.COMMIT_OFFSETS),
    (_MOST, _MOST): (Step.COMMIT_OFFSETS, Step.SAVE_POSITION, Step.SAVE_STATE, Step.SEND_OUTPUTS),
    (_EXACT, _LEAST): (Step.FLUSH_OUTPUTS, Step.SAVE_TOGETHER, Step.COMMIT_OFFSETS),
    # The group's offset is committed before the outputs are sent: if the state is lost, it shows which outputs may have been sent.
    (_EXACT, _MOST): (Step.SAVE_TOGETHER, Step.COMMIT_OFFSETS, Step.SEND_OUTPUTS),
}

_EXACT_LOCAL: Steps = (Step.FLUSH_OUTPUTS, Step.PREPARE_STATE, Step.COMMIT_TRANSACTION, Step.APPLY_STATE)
_EXACT_LOGGED: Steps = (Step.LOG_CHANGES, *_EXACT_LOCAL)
# The outputs are outside the transaction: the transaction decides about the state, and its outputs are sent at most once.
_MOST_LOGGED: Steps = (*_EXACT_LOGGED, Step.SEND_OUTPUTS)
_EXACT_REMOTE: Steps = (Step.SAVE_WITH_OUTBOX, Step.COMMIT_TRANSACTION, Step.CLEAR_OUTBOX)

# The transaction of the sink decides, as the transaction of the bus does elsewhere. Only dead letters are sent to the bus.
_SINK_STATELESS: Steps = (Step.FLUSH_OUTPUTS, Step.WRITE_SINKS, Step.COMMIT_OFFSETS)
_SINK_STATEFUL: Steps = (
    Step.FLUSH_OUTPUTS,
    Step.PREPARE_STATE,
    Step.WRITE_SINKS,
    Step.APPLY_STATE,
    Step.COMMIT_OFFSETS,
)


def steps_of(processor: type[Processor]) -> Steps:
    """Return the steps of a processor's checkpoints, by its two semantics, the place of its state, and whether it has sinks."""
    plan = plan_of(processor)
    if not plan.sinks:
        return _steps_without_sinks(processor)
    match processor.output_semantics:
        case Semantics.EXACTLY_ONCE:
            return _SINK_STATELESS if plan.state_shape is None else _SINK_STATEFUL
        case Semantics.AT_MOST_ONCE:
            return (*_steps_without_sinks(processor), Step.WRITE_SINKS)
        case Semantics.AT_LEAST_ONCE:
            # Before the position, as the outputs.
            return (Step.WRITE_SINKS, *_steps_without_sinks(processor))


def uses_transactions(processor: type[Processor]) -> bool:
    """Return whether checkpoints commit transactions of the bus. Changes of state are only logged in them."""
    return Step.COMMIT_TRANSACTION in steps_of(processor)


_VISIBLE_WITH = {Step.SEND_OUTPUTS, Step.COMMIT_TRANSACTION, Step.WRITE_SINKS}


def do_results_wait(processor: type[Processor]) -> bool:
    """Return whether results wait for a checkpoint: outputs that are not sent at once, rows of sinks, and the values of aggregators."""
    return issubclass(processor, Aggregator) or not _VISIBLE_WITH.isdisjoint(steps_of(processor))


def are_decided_by_sink(steps: Steps) -> bool:
    """Return whether the position in a sink decides which checkpoint is the last one, instead of the group's committed offsets."""
    return steps in {_SINK_STATELESS, _SINK_STATEFUL}


def _steps_without_sinks(processor: type[Processor]) -> Steps:
    if plan_of(processor).state_shape is None:
        return _STATELESS[processor.output_semantics]
    pair = processor.state_semantics, processor.output_semantics
    if _is_logged(processor):
        return _MOST_LOGGED if processor.output_semantics is _MOST else _EXACT_LOGGED
    if pair != (_EXACT, _EXACT):
        return _STATEFUL[pair]
    return _EXACT_REMOTE if is_remote(processor) else _EXACT_LOCAL


def _is_logged(processor: type[Processor]) -> bool:
    """Return whether changes of state go to a changelog, because a lost state could not be rebuilt otherwise.

    Outputs at least once may repeat, so their events are read again. State at most once never reads events again: a state older than
    its outputs would repeat the outputs that no event causes, such as those of timers and windows.
    """
    plan = plan_of(processor)
    if is_remote(processor) or processor.output_semantics is _LEAST:
        return False
    return plan.emits_without_input if processor.state_semantics is _MOST else not plan.is_repeatable


_LOT_BITS = 20


def have_ids(steps: Steps) -> bool:
    """Return whether checkpoints have ids: where changes are logged, because the results depend on more than the events.

    The group's offsets do not identify the last committed checkpoint then. A checkpoint may not move them, as when an upstream watermark
    completes windows; and a worker that died may have prepared another one with the same offsets.
    """
    return Step.LOG_CHANGES in steps


def next_id(before: int) -> int:
    """Return the id of the next checkpoint: greater than `before`, and different from any other worker's next id."""
    return ((before >> _LOT_BITS) + 1 << _LOT_BITS) + secrets.randbits(_LOT_BITS)


def reads_again(processor: type[Processor]) -> bool:
    """Return whether a lost or outdated state is rebuilt from the events of the inputs."""
    return (
        plan_of(processor).state_shape is not None
        and processor.state_semantics is not _MOST
        and Step.LOG_CHANGES not in steps_of(processor)
    )


def is_remote(processor: type[Processor]) -> bool:
    """Return whether a processor keeps its state in a remote store."""
    return issubclass(processor, Aggregator) and isinstance(processor.store, RemoteStore)


class Gap(NamedTuple):
    """A place where a process can die: before a step, or after the last one if `before` is None."""

    before: Step | None

    def __str__(self) -> str:
        return f"before {self.before.value}" if self.before else "after the last step"
