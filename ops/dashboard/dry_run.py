"""What a processor would make of one message now: in memory, over its state as it is saved, which stays as it is.

bytes -> decode -> the core's step, over the saved state --> what it would write, and what would change; or why not
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...processors.declare.categories import AnyCategory
from ...processors.declare.dead_letters import DeadLetter
from ...processors.declare.processor import Processor
from ...processors.declare.routes import Routes
from ...processors.errors import PenstockError, ProcessorFailed
from ...processors.keyed_state.changes import Changes, EmptyState, StateReader
from ...processors.monoids.equality import shown
from ...processors.operators import Operator, StepResult, merge_of, open_operator
from ...processors.time.timers import Due, pending
from ...state.backups.decoded_state import StateEntry, inspection, own_values
from ...state.backups.inventory import ShardName, look
from ...state.checkpoints import is_remote
from ...state.errors import StateError
from ...state.local.overlay import Overlay
from ...state.local.rocksdb import RocksShardState
from ...transport.bus import Bus
from ...transport.codecs.by_category import Codecs
from ...transport.codecs.codec import JsonCodec
from ..clock import SystemClock
from ..worker.positions import shown_position
from ..worker.rejected_events import RejectedEvent, refusals, taken

TIMERS_SHOWN = 20


@dataclass(frozen=True)
class Written:
    """A record that would be written.

    Args:
        category: where.
        key: under which key.
        record: as JSON has it.
    """

    category: str
    key: str
    record: Any


@dataclass(frozen=True)
class Change:
    """A key whose values would change.

    Args:
        before: what is saved of it.
        after: what would be.
    """

    before: Sequence[StateEntry]
    after: Sequence[StateEntry]


@dataclass(frozen=True)
class DryRun:
    """What would become of a message.

    Args:
        processed: whether it would be processed.
        says: what would happen, in words.
        over: over which state.
        trace: where in the processor's code it failed; may be empty.
        written: what would be written.
        changes: what would change in the state.
        timers: the key's timers as they would be then.
    """

    processed: bool
    says: str
    over: str = ""
    trace: str = ""
    written: Sequence[Written] = ()
    changes: Sequence[Change] = ()
    timers: Sequence[Due] = field(default=())


def dry_run(processor: type[Processor], letter: DeadLetter, bus: Bus, root: Path) -> DryRun:
    """Take a dead letter's message through a processor as if it came now, and keep nothing of it.

    Args:
        processor: as it is declared now.
        letter: the message.
        bus: where the schemas of Avro messages are; nothing is written there.
        root: the folder of states.
    """
    category = next((one for one in processor.inputs() if one.name == letter.category), None)
    if category is None:
        return DryRun(
            processed=False, says=f"It was read from {letter.category}, which {processor.__name__} reads no more."
        )
    if letter.cut_bytes:
        return DryRun(
            processed=False,
            says=f"{letter.cut_bytes:,} bytes of the message were too many for its dead letter. The whole message is at offset {letter.offset:,} of "
            f"{letter.category}/{letter.bucket}, as long as that keeps it.",
        )
    try:
        with _opened(processor) as opened:
            step = _Step(opened, category, letter, Codecs(bus))
            return _over_state(step, ShardName(processor.name, letter.bucket).folder(root))
    except PenstockError as error:
        return DryRun(processed=False, says=str(error))
    except SystemExit as error:
        return DryRun(processed=False, says=f"It would end the process: {error!r}.")


@contextmanager
def _opened(processor: type[Processor]) -> Iterator[Processor]:
    try:
        opened = processor()
        opened.open()
    except PenstockError:
        raise
    except Exception as error:
        raise ProcessorFailed(f"{processor.__name__} does not open: {type(error).__name__}: {error}.") from error
    try:
        yield opened
    finally:
        opened.close()


def _over_state(step: _Step, shard: Path) -> DryRun:
    """Try it over what is saved of the shard on this machine."""
    processor = type(step.processor)
    if processor.state_shape() is None:
        return step.over(EmptyState())
    if is_remote(processor):
        return replace(step.over(EmptyState()), over="no state: its own is in a store, which is left alone")
    measure = inspection(processor, None, 0)

    def over_saved(state: RocksShardState) -> DryRun:
        return replace(
            step.over(state), over=f"its state as it is saved now, at {shown_position(measure(state).position)}"
        )

    seen = look(shard, over_saved)
    return seen or replace(step.over(EmptyState()), over="no state: there is none of this bucket on this machine")


@dataclass(frozen=True)
class _Step:
    """One message on its way through a processor's pure step."""

    processor: Processor
    category: AnyCategory
    letter: DeadLetter
    codecs: Codecs

    def over(self, saved: StateReader) -> DryRun:
        decoded = self.codecs.of(self.category).decode([self.letter.value])
        given = taken(decoded, self.category, [SystemClock().now_ms()], self.processor)
        overlay = Overlay(saved, merge_of(self.processor))
        core = open_operator(self.processor, overlay)
        fed = core.feed(self.category, given.events, stop_at_error=False) if given.events else StepResult([], [])
        refused = next(refusals(given, fed, self.processor), None)
        if refused is not None:
            return _refused(refused)
        return self._went_through(core, fed, overlay, saved, given.events)

    def _went_through(
        self, core: Operator, fed: StepResult, overlay: Overlay, saved: StateReader, events: list[Any]
    ) -> DryRun:
        drained = core.drain()
        overlay.add(drained.changes)
        try:
            written = list(self._written([*fed.outputs, *drained.outputs]))
        except TypeError as error:
            return DryRun(processed=False, says=str(error))
        [key] = self.category.keys_of(events)
        return DryRun(
            processed=True,
            says=_told(fed, len(written)),
            written=written,
            changes=list(self._changes(drained.changes, saved)),
            timers=pending(overlay, key, TIMERS_SHOWN),
        )

    def _written(self, outputs: Sequence[Any]) -> Iterator[Written]:
        for category, records in Routes(type(self.processor)).split(outputs):
            # Raises for what does not fit its own type, whatever the codec: that of Avro would tell the bus its schema.
            JsonCodec(category).encode(records)
            for key, record in zip(category.keys_of(records), records, strict=True):
                yield Written(category.name, key, shown(record))

    def _changes(self, changes: Changes, saved: StateReader) -> Iterator[Change]:
        """Give what would change of keys' own values; nothing where none are kept, or in a store."""
        processor, keys = type(self.processor), list(changes)
        with suppress(StateError):
            for key, value in zip(keys, saved.fetch(keys), strict=True):
                after = own_values(processor, [(key, changes[key])])
                if after:
                    yield Change(own_values(processor, [(key, value)]), after)


def _refused(refusal: RejectedEvent) -> DryRun:
    fate = "The worker would stop there" if refusal.stops else "It would be set aside again"
    cause = refusal.cause
    return DryRun(processed=False, says=f"{fate}: {refusal.reason}.", trace="" if cause is None else _trace(cause))


def _trace(error: Exception) -> str:
    """Return where it was raised, from the user's own code on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("penstock."):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _told(fed: StepResult, written: int) -> str:
    if fed.dropped:
        return "It would be processed, but comes too late for every window: it would be in none."
    if fed.unmatched:
        return "It would be left out: nothing was found outside that belongs to it."
    late = ", as a late event" if fed.late else ""
    return f"It would be processed{late}, and give {written or 'no'} record{'s' * (written != 1)}."
