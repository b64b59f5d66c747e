"""The steps of a checkpoint, as data: what is made durable, in which order.

Outputs O, state S, position P. The order decides what a crash between two steps does to the data, and every gap between
two steps is a place where a test can stop the process. A position is kept twice: beside the state, where it decides, and as
the group's committed offset, for everybody to see, for processors without state, and where state has to be caught up with.

Source: Chen et al., "Realtime Data Processing at Facebook", 2016, section 4.3.
"""

from __future__ import annotations

import secrets
from enum import Enum
from typing import NamedTuple

from ..declare.aggregator import Aggregator
from ..declare.emission import AtWatermark
from ..declare.processor import Processor
from ..declare.semantics import Semantics
from ..declare.stores import RemoteStore
from ..time.watermarks import UpstreamWatermark


class Step(Enum):
    """One durable step of a checkpoint."""

    LOG_CHANGES = "log changes"
    """The changes of state are sent to the changelog, in a transaction."""
    FLUSH_OUTPUTS = "flush outputs"
    """Outputs, which were sent as they came, are on the bus: in a transaction still open, or for all to see."""
    SEND_OUTPUTS = "send outputs"
    """Outputs, which were held back, are sent now, and flushed."""
    SAVE_STATE = "save state"
    SAVE_POSITION = "save position"
    SAVE_TOGETHER = "save state and position"
    """Both in one write."""
    SAVE_WITH_OUTBOX = "save state, position and outputs"
    """All three in one write to the remote store."""
    PREPARE_STATE = "prepare state"
    """The changes lie beside the state, until it is known whether they count."""
    APPLY_STATE = "apply state"
    """The prepared changes count."""
    COMMIT_OFFSETS = "commit offsets"
    """The group's positions."""
    COMMIT_TRANSACTION = "commit transaction"
    """Outputs and the group's positions in one transaction of the bus."""
    CLEAR_OUTBOX = "clear outbox"


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
    # The group's offset goes before the outputs: where state is lost, it tells which outputs may have been sent.
    (_EXACT, _MOST): (Step.SAVE_TOGETHER, Step.COMMIT_OFFSETS, Step.SEND_OUTPUTS),
}

_EXACT_LOCAL: Steps = (Step.FLUSH_OUTPUTS, Step.PREPARE_STATE, Step.COMMIT_TRANSACTION, Step.APPLY_STATE)
_EXACT_LOGGED: Steps = (Step.LOG_CHANGES, *_EXACT_LOCAL)
# The outputs are outside the transaction: it decides what the state is, and what that has caused is sent at most once.
_MOST_LOGGED: Steps = (*_EXACT_LOGGED, Step.SEND_OUTPUTS)
_EXACT_REMOTE: Steps = (Step.SAVE_WITH_OUTBOX, Step.COMMIT_TRANSACTION, Step.CLEAR_OUTBOX)


def steps_of(processor: type[Processor]) -> Steps:
    """Return the steps of a processor's checkpoints, as its two settings and the place of its state give them."""
    if processor.state_shape() is None:
        return _STATELESS[processor.output_semantics]
    pair = processor.state_semantics, processor.output_semantics
    if _is_logged(processor):
        return _MOST_LOGGED if processor.output_semantics is _MOST else _EXACT_LOGGED
    if pair != (_EXACT, _EXACT):
        return _STATEFUL[pair]
    return _EXACT_REMOTE if is_remote(processor) else _EXACT_LOCAL


def _is_logged(processor: type[Processor]) -> bool:
    """Tell whether changes of state go to a changelog, because a state that is lost could not be had again otherwise.

    Outputs at least once may come again, so reading events again will do for them. State at most once never reads them again: a state
    that is older than its outputs would cause those again that no event causes, such as timers and windows.
    """
    if is_remote(processor) or processor.output_semantics is _LEAST:
        return False
    return processor.answers_later() if processor.state_semantics is _MOST else not _repeatable(processor)


_LOT_BITS = 20


def have_ids(steps: Steps) -> bool:
    """Tell whether checkpoints have ids: where changes are logged, because it depends on more than the events what comes of them.

    The group's offsets do not tell then which checkpoint was the last one committed. It may have left them where they were, as
    one of windows does that a promise completes; and a worker that died may have prepared another that leads to the same ones.
    """
    return Step.LOG_CHANGES in steps


def next_id(before: int) -> int:
    """Return the id of the checkpoint that follows on another: greater, and nobody else's who follows on the same one."""
    return ((before >> _LOT_BITS) + 1 << _LOT_BITS) + secrets.randbits(_LOT_BITS)


def _repeatable(processor: type[Processor]) -> bool:
    """Tell whether reading the events again gives the same state, and shows what it has caused to be written before.

    It does where all follows from the events of one bucket, in order. How those of several meet, when one of them is idle, when something
    is promised, and the time of day are other each time.
    """
    return (
        processor.deterministic
        and len(processor.inputs()) == 1
        and not (processor.goes_by_time() and isinstance(processor.watermark, UpstreamWatermark))
        and not (
            issubclass(processor, Aggregator)
            and isinstance(processor.emit, AtWatermark)
            and (processor.emit.differences or processor.emit.early is not None)
        )
    )


def reads_again(processor: type[Processor]) -> bool:
    """Tell whether a state that is lost, or older than it should be, is built from the events of the inputs again."""
    return (
        processor.state_shape() is not None
        and processor.state_semantics is not _MOST
        and Step.LOG_CHANGES not in steps_of(processor)
    )


def is_remote(processor: type[Processor]) -> bool:
    """Tell whether a processor's state lies in a store that others can read."""
    return issubclass(processor, Aggregator) and isinstance(processor.store, RemoteStore)


class Gap(NamedTuple):
    """A place where a process can die: before a step, or, where `before` is None, after the last one."""

    before: Step | None

    def __str__(self) -> str:
        return f"before {self.before.value}" if self.before else "after the last step"
