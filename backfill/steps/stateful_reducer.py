"""A stateful processor as a reducer: a key's events come one after the other, in bus order, and none is held.

The states of finished keys leave with the core's checkpoint, one for each batch; only the last key's is carried into the next.
Events before the range warm the state up and give nothing.
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
from ...processors.time.shard_time import NoShardTime
from ..errors import BackfillFailed
from ..spark.batches import Batches, Transform
from ..warehouse.layout import Days
from .step import Step, guarded


class _LastKey:
    """The saved state of the one key whose events may go on in the next batch."""

    def __init__(self) -> None:
        self._key: bytes | None = None
        self._state: bytes | None = None

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the last key's state; every other key is new."""
        return [self._state if key == self._key else None for key in keys]

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:  # noqa: ARG002 - the seam
        """Return nothing."""
        return []

    def keep(self, key: bytes, changes: Changes) -> None:
        """Note the key that the batch ended with."""
        self._state = changes.get(key, self._state if key == self._key else None)
        self._key = key


def reducer(step: Step, within: Days) -> Transform:
    """Return the step as Spark runs it, on partitions that hold whole keys, sorted by key, bucket and offset."""
    return partial(_run, step, within)


def _run(step: Step, within: Days, batches: Batches) -> Batches:
    return guarded(step, _reduced(step, within, batches))


def _reduced(step: Step, within: Days, batches: Batches) -> Batches:
    saved = _LastKey()
    # No watermark follows from the events of some keys.
    core = StatefulOperator(cast("Stateful", step.opened.processor), saved, NoShardTime())
    for batch in step.taken(batches):
        events = step.columns.records(batch)
        expect_keys(step, batch, events)
        for inside, start, end in _runs(step.input.event_times_of(events), within):
            fed = step.feed(core, events[start:end], batch, start)
            if inside:
                step.counters.events_in.add(end - start)
                step.counters.set_aside.add(len(fed.rejected))
                yield from step.give(fed.outputs)
        if events:
            saved.keep(step.input.keys_of(events[-1:])[0].encode(), core.drain().changes)


def expect_keys(step: Step, batch: pa.RecordBatch, events: Sequence[Any]) -> None:
    """Events were brought together by the key they were archived with: it must be today's."""
    if batch.column("_key").to_pylist() != step.input.keys_of(events):
        raise BackfillFailed(
            f"Category {step.category} was archived under another key than it declares today, so that events of one key do "
            f"not come together and {step.processor} cannot be run over them. Nothing was published. Declare the key as it "
            "was, or archive the category anew under another name."
        )


def _runs(times: Sequence[int], within: Days) -> Iterator[tuple[bool, int, int]]:
    """Cut a batch into runs of events that all lie within the range, or all outside: (within, start, end)."""
    at = np.array(times, np.int64)
    inside = (within.start_ms <= at) & (at < within.end_ms)
    ends = [*(np.flatnonzero(inside[1:] != inside[:-1]) + 1).tolist(), *([len(at)] if len(at) else [])]
    for start, end in zip([0, *ends], ends, strict=False):
        yield bool(inside[start]), start, end
