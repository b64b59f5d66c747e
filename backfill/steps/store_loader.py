"""Values of an aggregator's remote store, computed from the archive and written shard by shard.

    events that a shard has counted --partials--> (bucket, slot, first offset, partial) --shuffled by shard, sorted--> merged
                                                                          --> replace the values in the store

One task writes each shard and becomes its owner. A repeated task starts the shard again, and so does the next run after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from ...processors import runs_of
from ...processors.declare import Aggregator
from ...processors.keyed_state import EmptyState, decode_time, encode_window_key
from ...processors.operators import AggregatorOperator
from ...processors.shard import Offsets
from ...processors.time import UntrackedTime
from ...state.remote import PartialMerger, StoreFenced, open_rebuild
from ..errors import BackfillFailed
from ..spark import BATCH_EVENTS, Batches, Transform
from ..warehouse import Days
from .step import BatchStep, guarded, places_in

FLUSH_EVENTS = 200_000
"""The number of events after which a task emits its partials, which bounds its memory."""

_PARTIALS: dict[str, pa.DataType] = {
    "bucket": pa.int32(),
    "slot": pa.binary(),
    "offset": pa.int64(),
    "partial": pa.binary(),
}
SHARD_PARTIALS = pa.schema(_PARTIALS)
"""The partial of a shard's slot, and the first offset of its events. Every shard also has one row with an empty slot."""

_LOADED: dict[str, pa.DataType] = {"bucket": pa.int32(), "written": pa.int64(), "removed": pa.int64()}
LOADED = pa.schema(_LOADED)
"""The result of each shard."""


def empty_shard_row(bucket: int) -> tuple[int, bytes, int, bytes]:
    """Return the row that makes a task handle a shard without events."""
    return bucket, b"", -1, b""


@dataclass(frozen=True)
class StoreLoad:
    """The target of computed values.

    Args:
        url: the store, with its password.
        positions: the position of each shard; values include the events before it.
        within: the days in which the computed windows begin; None for all windows.
    """

    url: str = field(repr=False)
    positions: Mapping[int, Offsets]
    within: Days | None

    def includes(self, start_ms: int) -> bool:
        """Return whether a window that begins at a time is computed."""
        return self.within is None or self.within.contains(start_ms)

    def is_computed(self, slot: bytes) -> bool:
        """Return whether a slot of the store is computed."""
        return self.includes(decode_time(slot))


def shard_partials(step: BatchStep, load: StoreLoad) -> Transform:
    """Return the first step for Spark, on events."""
    return partial(_run_shard_partials, step, load)


def store_writer(step: BatchStep, load: StoreLoad) -> Transform:
    """Return the second step for Spark, on partitions of complete shards, sorted by shard, slot and offset."""
    return partial(_run_store_writer, step, load)


def _run_shard_partials(step: BatchStep, load: StoreLoad, batches: Batches) -> Batches:
    return guarded(step, _shard_partials(step, load, batches))


def _run_store_writer(step: BatchStep, load: StoreLoad, batches: Batches) -> Batches:
    return guarded(step, _written(step, load, batches))


@dataclass
class _Shard:
    """The partials of a shard in a task, and the offset of their first event."""

    operator: AggregatorOperator
    first: int | None = None


def _shard_partials(step: BatchStep, load: StoreLoad, batches: Batches) -> Batches:
    shards: dict[int, _Shard] = {}
    pending_events = 0
    for batch in step.accepted(_counted(step.category, load, batches)):
        if not batch.num_rows:
            continue
        bucket = batch.column("_bucket")[0].as_py()
        if bucket not in shards:
            opened = cast("Aggregator", step.opened.processor)
            shards[bucket] = _Shard(AggregatorOperator(opened, EmptyState(), UntrackedTime()))
        shard = shards[bucket]
        if shard.first is None:
            shard.first = batch.column("_offset")[0].as_py()
        result = step.feed(shard.operator, step.columns.records(batch), places_in(batch))
        step.counters.events_in.add(batch.num_rows)
        step.counters.rejected.add(len(result.rejected))
        pending_events += batch.num_rows
        if pending_events >= FLUSH_EVENTS:
            yield from _emitted(step, load, shards)
            pending_events = 0
    yield from _emitted(step, load, shards)


def _counted(category: str, load: StoreLoad, batches: Batches) -> Batches:
    """Yield the events before the shards' positions, one bucket per batch."""
    for batch in batches:
        buckets = batch.column("_bucket").to_numpy()
        for start, end in runs_of(buckets):
            limit = load.positions.get(int(buckets[start]), {}).get(category, 0)
            part = batch.slice(start, end - start)
            yield part.filter(pc.less(part.column("_offset"), pa.scalar(limit, pa.int64())))


def _emitted(step: BatchStep, load: StoreLoad, shards: Mapping[int, _Shard]) -> Batches:
    encode = cast("Aggregator", step.opened.processor).monoid.encode
    for bucket, shard in shards.items():
        first, shard.first = shard.first, None
        partials = [(slot, value) for slot, value in shard.operator.take_partials().items() if load.includes(slot[1])]
        for at in range(0, len(partials), BATCH_EVENTS):
            part = partials[at : at + BATCH_EVENTS]
            columns: list[list[Any]] = [
                [bucket] * len(part),
                [encode_window_key(*slot) for slot, _ in part],
                [first] * len(part),
                [encode(value) for _, value in part],
            ]
            yield pa.RecordBatch.from_arrays(list(map(pa.array, columns, SHARD_PARTIALS.types)), schema=SHARD_PARTIALS)


def _written(step: BatchStep, load: StoreLoad, batches: Batches) -> Batches:
    processor = cast("type[Aggregator]", type(step.opened.processor))
    with open_rebuild(load.url, processor) as shards:
        for bucket, rows in groupby(_rows(batches), key=itemgetter(0)):
            with _translated_fencing(processor.__name__, bucket):
                values = _values(PartialMerger(processor.monoid), rows)
                replaced = shards.replace(bucket, load.positions[bucket], values, load.is_computed)
            row = dict(zip(LOADED.names, (bucket, *replaced), strict=True))
            yield pa.RecordBatch.from_pylist([row], schema=LOADED)


@contextmanager
def _translated_fencing(name: str, bucket: int) -> Iterator[None]:
    """Translate the loss of a shard to another owner."""
    try:
        yield
    except StoreFenced as error:
        raise BackfillFailed(
            f"{name}, bucket {bucket}: a worker or another backfill took over the shard while its values were being replaced. Some values "
            "are new and the others are unchanged. All include exactly the events before the position from which the worker continues, so no event is counted twice. "
            "Stop the processor's workers and run this command again."
        ) from error


def _values(merging: PartialMerger, rows: Iterable[tuple[int, bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for slot, of_slot in groupby(rows, key=itemgetter(1)):
        if slot:
            yield slot, merging.combined([encoded for _, _, encoded in of_slot])


def _rows(batches: Batches) -> Iterator[tuple[int, bytes, bytes]]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in ("bucket", "slot", "partial")), strict=True)
