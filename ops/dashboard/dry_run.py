"""A dry run of one message: a replay of one event over the saved state, which stays unchanged.

bytes -> decode -> the shard over the saved state --> the records it would write and the state it would change; or the reason it would not
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
from ...processors.errors import Deferred, Halted, PenstockError, ProcessorFailed
from ...processors.keyed_state.changes import Changes, EmptyState, StateReader
from ...processors.monoids.equality import shown
from ...processors.operators import StepResult
from ...processors.shard.batches import RejectedEvent, accept_batch
from ...processors.shard.checkpoints import is_remote
from ...processors.shard.drive import Scratch, ShardDriver
from ...processors.shard.overlay import Overlay
from ...processors.shard.shard import new_shard
from ...processors.shard.source_events import SourceEvents
from ...processors.time.timers import Due, pending
from ...state.backups.decoded_state import StateEntry, inspection, own_values
from ...state.backups.inventory import ShardName, read_database
from ...state.errors import StateError
from ...state.local.rocksdb import RocksShardState
from ...transport.bus import Bus
from ...transport.codecs.by_category import Codecs
from ...transport.codecs.json_codec import JsonCodec
from ..clock import SystemClock

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
    if letter.truncated_bytes:
        return DryRun(
            processed=False,
            says=f"{letter.truncated_bytes:,} bytes of the message were too many for its dead letter. The whole message is at offset {letter.offset:,} of "
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
        return replace(step.over(state), over=f"its state as it is saved now, at {measure(state).position}")

    seen = read_database(shard, over_saved)
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
        now_ms, letter = SystemClock().now_ms(), self.letter
        batch = accept_batch(decoded, self.category, [now_ms], self.processor)
        rejection = batch.rejected[0] if batch.rejected else None
        events = SourceEvents(self.category, letter.bucket, batch.events, [letter.offset], [now_ms], rejection)
        driver = ShardDriver(new_shard(self.processor, letter.bucket, saved), Scratch(None, self.processor.checkpoint))
        driven = driver.feed(events, now_ms)
        if driven.rejected:
            return _rejected(driven.rejected[0])
        outputs = [*driven.outputs, *driver.drain(now_ms).outputs]
        return self._processed(driven.result, outputs, driver.shard.overlay, saved, batch.events)

    def _processed(
        self, result: StepResult, outputs: list[Any], overlay: Overlay, saved: StateReader, events: list[Any]
    ) -> DryRun:
        try:
            written = list(self._written(outputs))
        except TypeError as error:
            return DryRun(processed=False, says=str(error))
        [key] = self.category.keys_of(events)
        return DryRun(
            processed=True,
            says=_summary(result, len(written)),
            written=written,
            changes=list(self._changes(overlay.changes, saved)),
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


def _rejected(event: RejectedEvent) -> DryRun:
    cause = event.cause
    if isinstance(cause, Deferred | Halted):
        return DryRun(processed=False, says=str(cause))
    action = "The worker would stop there" if event.stops else "It would be set aside again"
    return DryRun(processed=False, says=f"{action}: {event.reason}.", trace="" if cause is None else _trace(cause))


def _trace(error: Exception) -> str:
    """Return where it was raised, from the user's own code on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("penstock."):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _summary(result: StepResult, written: int) -> str:
    if result.dropped:
        return "It would be processed, but comes too late for every window: it would be in none."
    if result.unmatched:
        return "It would be left out: nothing was found outside that belongs to it."
    late = ", as a late event" if result.late else ""
    return f"It would be processed{late}, and give {written or 'no'} record{'s' * (written != 1)}."
