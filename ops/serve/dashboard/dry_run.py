"""A dry run of a dead letter: processes its message again with the saved state, and stores nothing.

bytes -> decode -> process with the saved state --> the outputs and the state changes of the message, or the reason of another rejection
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....processors import Deferred, Halted, PenstockError, ProcessorFailed, ending, start, user_traceback
from ....processors.declare import AnyCategory, DeadLetter, Processor, Routes, Sink, Tombstone, plan_of
from ....processors.keyed_state import EmptyState, StateReader
from ....processors.monoids import to_json_value
from ....processors.operators import StepResult
from ....processors.shard import (
    Overlay,
    RejectedEvent,
    Scratch,
    ShardDriver,
    SourceEvents,
    accept_batch,
    is_remote,
    new_shard,
)
from ....processors.time import Due, pending
from ....state import StateError
from ....state.backups import ShardName, StateEntry, decoded_values, read_database, state_inspector
from ....state.local import RocksShardState
from ....transport import Bus, connect_lookup
from ....transport.codecs import Codecs, rejected_message, whole_record_json
from ...shell import SystemClock

TIMERS_SHOWN = 20
"""The largest number of timers in a result."""


@dataclass(frozen=True)
class DryRunOutput:
    """A record that a worker would write.

    Args:
        category: its category or sink.
        key: its key; empty for a row of a sink.
        record: the record, as JSON values; None for a tombstone.
    """

    category: str
    key: str
    record: Any


@dataclass(frozen=True)
class StateChange:
    """A change that a worker would make to the values of a key.

    Args:
        before: the saved values.
        after: the new values.
    """

    before: Sequence[StateEntry]
    after: Sequence[StateEntry]


@dataclass(frozen=True)
class DryRun:
    """The result of a dry run.

    Args:
        processed: whether a worker would process the message.
        message: the result in words.
        state_source: the state that the dry run used; empty for a stateless processor.
        traceback: the traceback of an error in the processor's code; empty without one.
        outputs: the records that a worker would write.
        state_changes: the changes that a worker would make to the state.
        timers: the timers of the key after the message.
    """

    processed: bool
    message: str
    state_source: str = ""
    traceback: str = ""
    outputs: Sequence[DryRunOutput] = ()
    state_changes: Sequence[StateChange] = ()
    timers: Sequence[Due] = field(default=())


def dry_run(processor: type[Processor], letter: DeadLetter, bus: Bus, root: Path) -> DryRun:
    """Process the message of a dead letter as if it arrived now, and discard all results.

    Args:
        processor: the current declaration of the processor.
        letter: the dead letter.
        bus: the bus of the Avro schemas; nothing is written to it.
        root: the folder of states.
    """
    category = next((category for category in plan_of(processor).inputs if category.name == letter.category), None)
    if category is None:
        return DryRun(
            processed=False,
            message=f"{processor.__name__} no longer reads {letter.category}, the category of this message.",
        )
    if letter.truncated_bytes:
        return DryRun(
            processed=False,
            message=f"The dead letter omits {letter.truncated_bytes:,} bytes of the message because of its size. Until it expires, the whole message is "
            f"at offset {letter.offset:,} of {letter.category}/{letter.bucket}.",
        )
    try:
        with _opened(processor, bus) as opened:
            step = _DryRunStep(opened, category, letter, Codecs(bus))
            return _run_with_saved_state(step, ShardName(processor.name, letter.bucket).folder(root))
    except PenstockError as error:
        return DryRun(processed=False, message=str(error))
    except SystemExit as error:
        return DryRun(processed=False, message=f"It would end the worker's process: {error!r}.")


@contextmanager
def _opened(processor: type[Processor], bus: Bus) -> Iterator[Processor]:
    try:
        opened = processor()
        connect_lookup(opened, bus)
        start(opened)
    except PenstockError:
        raise
    except Exception as error:
        raise ProcessorFailed(f"{processor.__name__} does not open: {type(error).__name__}: {error}.") from error
    with ending(opened):
        yield opened


def _run_with_saved_state(step: _DryRunStep, shard: Path) -> DryRun:
    """Run a step with the state of the shard on this machine, or with an empty state."""
    processor = type(step.processor)
    if plan_of(processor).state_shape is None:
        return step.run(EmptyState())
    if is_remote(processor):
        return replace(
            step.run(EmptyState()), state_source="an empty state, because the processor's state is in a remote store"
        )
    inspect = state_inspector(processor, None, 0)

    def run_with(state: RocksShardState) -> DryRun:
        return replace(step.run(state), state_source=f"the saved state at {inspect(state).position}")

    return read_database(shard, run_with) or replace(
        step.run(EmptyState()), state_source="an empty state, because this machine has no state of the bucket"
    )


@dataclass(frozen=True)
class _DryRunStep:
    """One message for an opened processor."""

    processor: Processor
    category: AnyCategory
    letter: DeadLetter
    codecs: Codecs

    def run(self, saved: StateReader) -> DryRun:
        """Process the message with a state, which stays unchanged."""
        now_ms, letter = SystemClock().now_ms(), self.letter
        decoded = self.codecs.of(self.category).decode([rejected_message(letter)])
        batch = accept_batch(decoded, self.category, np.array([now_ms]), self.processor)
        rejection = batch.rejected[0] if batch.rejected else None
        events = SourceEvents(self.category, letter.bucket, batch.events, [letter.offset], [now_ms], rejection)
        driver = ShardDriver(new_shard(self.processor, letter.bucket, saved), Scratch(None, self.processor.checkpoint))
        driven = driver.feed(events, now_ms)
        if driven.rejected:
            return _rejected(driven.rejected[0])
        outputs = [*driven.outputs, *driver.drain(now_ms).outputs]
        return self._processed(driven.result, outputs, driver.shard.overlay, saved, batch.events)

    def _processed(
        self, result: StepResult, outputs: list[Any], overlay: Overlay, saved: StateReader, events: Sequence[Any]
    ) -> DryRun:
        try:
            records = list(self._output_records(outputs))
        except TypeError as error:
            return DryRun(processed=False, message=str(error))
        [key] = self.category.keys_of(events)
        return DryRun(
            processed=True,
            message=_summary(result, len(records)),
            outputs=records,
            state_changes=list(self._state_changes(overlay, saved)),
            timers=pending(overlay, key, TIMERS_SHOWN),
        )

    def _output_records(self, outputs: Sequence[Any]) -> Iterator[DryRunOutput]:
        for category, records in Routes(type(self.processor)).split(outputs):
            if isinstance(category, Sink):
                yield from (DryRunOutput(category.name, "", to_json_value(record)) for record in records)
                continue
            # JSON checks the types of records, whatever the codec of the category: the Avro codec would publish its schema.
            whole_record_json(category).encode([record for record in records if type(record) is not Tombstone])
            for record in records:
                if type(record) is Tombstone:
                    yield DryRunOutput(category.name, record.key, None)
                else:
                    yield DryRunOutput(category.name, category.keys_of([record])[0], to_json_value(record))

    def _state_changes(self, after: Overlay, before: StateReader) -> Iterator[StateChange]:
        """Yield the changes of keys' values; none for a stateless processor or a remote store."""
        processor, keys = type(self.processor), list(after.changes)
        with suppress(StateError):
            for key, value in zip(keys, before.fetch(keys), strict=True):
                values = decoded_values(processor, after, [(key, after.changes[key])])
                if values:
                    yield StateChange(decoded_values(processor, before, [(key, value)]), values)


def _rejected(event: RejectedEvent) -> DryRun:
    cause = event.cause
    if isinstance(cause, Deferred | Halted):
        return DryRun(processed=False, message=str(cause))
    action = "The worker would stop" if event.stops else "It would become a dead letter again"
    return DryRun(
        processed=False, message=f"{action}: {event.reason}.", traceback="" if cause is None else user_traceback(cause)
    )


def _summary(result: StepResult, records: int) -> str:
    if result.dropped:
        return "It would be dropped: it is too late for every window."
    if result.unmatched:
        return "It would be dropped: its lookup finds no row."
    late = " as a late event" if result.late else ""
    return f"It would be processed{late}, and write {records or 'no'} record{'s' * (records != 1)}."
