"""Stateful processor as a reducer: each key's events in bus order, without buffering them.

The operator takes a checkpoint after each batch and drops the states of finished keys; only the last key's state continues into the next
batch. Events before the range warm up the state without output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa

from ...processors.declare.stateful import Stateful
from ...processors.keyed_state.changes import Changes
from ...processors.operators import StatefulOperator
from ...processors.runs import runs_of
from ...processors.time.shard_time import UntrackedTime
from ..errors import BackfillFailed
from ..spark.batches import Batches, Transform
from ..warehouse.layout import Days
from .step import Step, guarded


class _LastKey:
    """The saved state of the key whose events may continue in the next batch."""

    def __init__(self) -> None:
        self._key: bytes | None = None
        self._state: bytes | None = None

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the last key's state; every other key is new."""
        return [self._state if key == self._key else None for key in keys]

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:  # noqa: ARG002 - the protocol's signature
        """Return no entries."""
        return []

    def keep(self, key: bytes, changes: Changes) -> None:
        """Keep the state of the last key of a batch."""
        self._state = changes.get(key, self._state if key == self._key else None)
        self._key = key


def reducer_step(step: Step, within: Days) -> Transform:
    """Return the step for Spark, on partitions of complete keys, sorted by key, bucket and offset."""
    return partial(_run, step, within)


def _run(step: Step, within: Days, batches: Batches) -> Batches:
    return guarded(step, _reduced(step, within, batches))


def _reduced(step: Step, within: Days, batches: Batches) -> Batches:
    saved = _LastKey()
    # The events of some keys determine no watermark.
    operator = StatefulOperator(cast("Stateful", step.opened.processor), saved, UntrackedTime())
    for batch in step.accepted(batches):
        events = step.columns.records(batch)
        expect_keys(step, batch, events)
        for inside, start, end in _runs(step.input.event_times_of(events), within):
            result = step.feed(operator, events[start:end], batch, start)
            if inside:
                step.counters.events_in.add(end - start)
                step.counters.rejected.add(len(result.rejected))
                yield from step.output_rows(result.outputs)
        if events:
            saved.keep(step.input.keys_of(events[-1:])[0].encode(), operator.drain().changes)


def expect_keys(step: Step, batch: pa.RecordBatch, events: Sequence[Any]) -> None:
    """Raise BackfillFailed unless the archived keys, by which events were grouped, are the declared keys."""
    if batch.column("_key").to_pylist() != step.input.keys_of(events):
        raise BackfillFailed(
            f"Category {step.category} was archived with another key than it declares now, so that events of one key are not "
            f"together and {step.processor} cannot process them. Nothing was published. Declare the former key, or archive the "
            "category again under another name."
        )


def _runs(times: Sequence[int], within: Days) -> Iterator[tuple[bool, int, int]]:
    """Split a batch into runs of events inside or outside of the range: (inside, start, end)."""
    at = np.array(times, np.int64)
    inside = (within.start_ms <= at) & (at < within.end_ms)
    for start, end in runs_of(inside):
        yield bool(inside[start]), start, end
