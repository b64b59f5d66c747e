"""The values of an aggregator's remote store, computed where the archive lies and put there a shard at a time.

    events that a shard has counted --partials--> (bucket, slot, first offset, partial) --shuffled by shard, sorted--> merged
                                                                          --> in the place of what the store has

Each shard is written by one task, which becomes its owner. One that runs again begins anew, as a run does that was killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...processors.declare.aggregator import Aggregator
from ...processors.keyed_state.changes import EmptyState
from ...processors.keyed_state.key_layout import decode_time
from ...processors.keyed_state.window_keys import encode_slot
from ...processors.operators import AggregatorOperator
from ...processors.shard.position import Offsets
from ...processors.time.shard_time import NoShardTime
from ...state.remote.errors import StoreFenced
from ...state.remote.merging import Merging
from ...state.remote.rebuild import rebuilds
from ..errors import BackfillFailed
from ..spark.batches import Batches, Transform
from ..spark.session import BATCH_EVENTS
from ..warehouse.layout import Days
from .step import Step, guarded

FLUSH_EVENTS = 200_000
"""After how many events a task hands its partials on: so many slots it holds at most."""

_PARTIALS: dict[str, pa.DataType] = {
    "bucket": pa.int32(),
    "slot": pa.binary(),
    "offset": pa.int64(),
    "partial": pa.binary(),
}
SHARD_PARTIALS = pa.schema(_PARTIALS)
"""The partial of a shard's slot, and where the first of the events lay among which it was made. Every shard has one of no slot, too."""

_REFILLED: dict[str, pa.DataType] = {"bucket": pa.int32(), "written": pa.int64(), "removed": pa.int64()}
REFILLED = pa.schema(_REFILLED)
"""What is said of each shard."""


def no_slot(bucket: int) -> tuple[int, bytes, int, bytes]:
    """Return the row by which a shard is dealt with where nothing was observed, too."""
    return bucket, b"", -1, b""


@dataclass(frozen=True)
class Refill:
    """Where computed values go.

    Args:
        url: the store, with its password.
        positions: up to where each shard has counted, or is to have counted; values are computed of the events before.
        within: in which days the windows begin that are computed; None for all windows.
    """

    url: str = field(repr=False)
    positions: Mapping[int, Offsets]
    within: Days | None

    def holds(self, start_ms: int) -> bool:
        """Tell whether a window that begins there is computed."""
        return self.within is None or self.within.holds(start_ms)

    def is_computed(self, slot: bytes) -> bool:
        """Tell whether a slot is computed, if anything was observed there."""
        return self.holds(decode_time(slot))


def sharder(step: Step, refill: Refill) -> Transform:
    """Return the first half as Spark runs it, on events."""
    return partial(_run_sharder, step, refill)


def refiller(step: Step, refill: Refill) -> Transform:
    """Return the second half as Spark runs it, on partitions that hold whole shards, sorted by shard, slot and offset."""
    return partial(_run_refiller, step, refill)


def _run_sharder(step: Step, refill: Refill, batches: Batches) -> Batches:
    return guarded(step, _sharded(step, refill, batches))


def _run_refiller(step: Step, refill: Refill, batches: Batches) -> Batches:
    return guarded(step, _refilled(step, refill, batches))


@dataclass
class _Shard:
    """What a task holds of a shard: its partials, and where the first of their events lay."""

    core: AggregatorOperator
    first: int | None = None


def _sharded(step: Step, refill: Refill, batches: Batches) -> Batches:
    shards: dict[int, _Shard] = {}
    held = 0
    for batch in step.taken(_counted(step.category, refill, batches)):
        if not batch.num_rows:
            continue
        bucket = batch.column("_bucket")[0].as_py()
        if bucket not in shards:
            opened = cast("Aggregator", step.opened.processor)
            shards[bucket] = _Shard(AggregatorOperator(opened, EmptyState(), NoShardTime()))
        shard = shards[bucket]
        if shard.first is None:
            shard.first = batch.column("_offset")[0].as_py()
        fed = step.feed(shard.core, step.columns.records(batch), batch, 0)
        step.counters.events_in.add(batch.num_rows)
        step.counters.set_aside.add(len(fed.rejected))
        held += batch.num_rows
        if held >= FLUSH_EVENTS:
            yield from _handed_on(step, refill, shards)
            held = 0
    yield from _handed_on(step, refill, shards)


def _counted(category: str, refill: Refill, batches: Batches) -> Batches:
    """Give the events before the shards' positions, those of one bucket in each batch."""
    for batch in batches:
        buckets = batch.column("_bucket").to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), batch.num_rows]
        for start, end in pairwise(edges):
            if start < end:
                limit = refill.positions.get(int(buckets[start]), {}).get(category, 0)
                part = batch.slice(start, end - start)
                yield part.filter(pc.less(part.column("_offset"), pa.scalar(limit, pa.int64())))


def _handed_on(step: Step, refill: Refill, shards: Mapping[int, _Shard]) -> Batches:
    encode = cast("Aggregator", step.opened.processor).monoid.encode
    for bucket, shard in shards.items():
        first, shard.first = shard.first, None
        taken = [(slot, value) for slot, value in shard.core.take_partials().items() if refill.holds(slot[1])]
        for at in range(0, len(taken), BATCH_EVENTS):
            part = taken[at : at + BATCH_EVENTS]
            columns: list[list[Any]] = [
                [bucket] * len(part),
                [encode_slot(*slot) for slot, _ in part],
                [first] * len(part),
                [encode(value) for _, value in part],
            ]
            yield pa.RecordBatch.from_arrays(list(map(pa.array, columns, SHARD_PARTIALS.types)), schema=SHARD_PARTIALS)


def _refilled(step: Step, refill: Refill, batches: Batches) -> Batches:
    processor = cast("type[Aggregator]", type(step.opened.processor))
    with rebuilds(refill.url, processor) as shards:
        for bucket, rows in groupby(_rows(batches), key=itemgetter(0)):
            with _taken_over(processor.__name__, bucket):
                values = _values(Merging(processor.monoid), rows)
                replaced = shards.replace(bucket, refill.positions[bucket], values, refill.is_computed)
            row = dict(zip(REFILLED.names, (bucket, *replaced), strict=True))
            yield pa.RecordBatch.from_pylist([row], schema=REFILLED)


@contextmanager
def _taken_over(name: str, bucket: int) -> Iterator[None]:
    """Say what it means here that somebody else has become the owner of a shard."""
    try:
        yield
    except StoreFenced as error:
        raise BackfillFailed(
            f"{name}, bucket {bucket}: a worker, or another backfill, took the shard over while its values were being replaced. Some of them "
            "are replaced and the others are as they were; all of them are of the events before the position from which the worker went on, so "
            "none is counted twice. Stop the processor's workers, and start this again."
        ) from error


def _values(merging: Merging, rows: Iterable[tuple[int, bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for slot, of_slot in groupby(rows, key=itemgetter(1)):
        if slot:
            yield slot, merging.combined([encoded for _, _, encoded in of_slot])


def _rows(batches: Batches) -> Iterator[tuple[int, bytes, bytes]]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in ("bucket", "slot", "partial")), strict=True)
