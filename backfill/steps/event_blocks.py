"""Events in blocks, so that Spark's shuffle moves and sorts a few large rows instead of each event.

events --packed: by part of the keys or buckets, bucket and range of offsets--> blocks --shuffled by part, sorted by bucket and range-->
the blocks of a part --unpacked: those of a range are sorted together--> its events, in bus order

A range limits what a task sorts in memory, also if the files of each day contain offsets of the whole archive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it

from ...processors import runs_of
from ...processors.declare import numbers_of
from ..sources import spark_schema
from ..spark import BATCH_EVENTS, Batches, Transform, from_block, joined, to_block
from ..warehouse import ELEMENT, relaxed_schema

PACKED_BYTES = 4 * 2**20
"""The size of the events that a task packs at a time."""
RANGE_OFFSETS = 65_536
"""The offsets of a bucket whose events a task sorts in memory."""
_FIELDS: list[pa.Field[Any]] = [
    pa.field("part", pa.int32(), nullable=False),
    pa.field("bucket", pa.int32(), nullable=False),
    pa.field("range", pa.int64(), nullable=False),
    pa.field("events", pa.binary(), nullable=False),
]
_BLOCKS = pa.schema(_FIELDS)
"""The rows of the shuffle."""


class PartOf(Enum):
    """What the events of a part have in common."""

    KEY = "key"
    """A part has all events of some keys."""
    BUCKET = "bucket"
    """A part has all events of some buckets."""


class Split(NamedTuple):
    """The split of events into parts, for a task each.

    Args:
        by: what determines the part of an event.
        parts: the number of parts.
    """

    by: PartOf
    parts: int

    def part_of(self, events: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return the part of each event."""
        numbers = numbers_of(events.column("_bucket")) if self.by is PartOf.BUCKET else _hashes(events.column("_key"))
        part: npt.NDArray[np.int64] = numbers % self.parts
        return part


class _Block(NamedTuple):
    bucket: int
    range: int
    events: pa.Buffer


@dataclass(frozen=True)
class EventBlocks:
    """The form of packed events.

    Args:
        schema: the columns of the events, with their keys and their positions.
        split: how the events are split.
        range_offsets: the number of offsets of a range.
    """

    schema: pa.Schema
    split: Split
    range_offsets: int = RANGE_OFFSETS

    @staticmethod
    def of(schema: pa.Schema, split: Split, range_offsets: int = RANGE_OFFSETS) -> EventBlocks:
        """Return the form for some columns. Files of earlier record types may lack values of any of them."""
        return EventBlocks(relaxed_schema(schema), split, range_offsets)

    def shuffled(self, rows: DataFrame, pack: Transform) -> DataFrame:
        """Return the blocks of the events that a step packs, one task for each part."""
        blocks = rows.mapInArrow(pack, spark_schema(_BLOCKS)).repartitionById(self.split.parts, F.col("part"))
        return blocks.sortWithinPartitions("bucket", "range")

    def packed(self, batches: Batches) -> Batches:
        """Yield the blocks of events in any order."""
        waiting: list[pa.RecordBatch] = []
        waiting_bytes = 0
        for batch in batches:
            waiting.append(batch.select(self.schema.names).cast(self.schema))
            waiting_bytes += batch.nbytes
            if waiting_bytes >= PACKED_BYTES:
                yield self._blocks(joined(waiting))
                waiting, waiting_bytes = [], 0
        if waiting:
            yield self._blocks(joined(waiting))

    def _blocks(self, events: pa.RecordBatch) -> pa.RecordBatch:
        places = [
            self.split.part_of(events),
            numbers_of(events.column("_bucket")),
            numbers_of(events.column("_offset")) // self.range_offsets,
        ]
        order = np.lexsort(places[::-1])
        begins, ends = _runs_of_all([place[order] for place in places])
        ordered = events.take(order)
        blocks = [to_block(ordered.slice(begin, end - begin)) for begin, end in zip(begins, ends, strict=True)]
        columns: list[Any] = [*(place[order][begins] for place in places), blocks]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _BLOCKS, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_BLOCKS)

    def unpacked(self, rows: Batches) -> Batches:
        """Yield the events of a part's sorted blocks, bucket by bucket, in the order of their offsets."""
        for _, blocks in groupby(_blocks_in(rows), key=lambda block: (block.bucket, block.range)):
            events = joined([from_block(block.events, self.schema) for block in blocks])
            in_order = events.take(np.lexsort(_in_bucket(events)))
            yield from (in_order.slice(begin, BATCH_EVENTS) for begin in range(0, in_order.num_rows, BATCH_EVENTS))


def _hashes(keys: pa.Array[Any]) -> npt.NDArray[np.int64]:
    distinct = keys.dictionary_encode(null_encoding="encode")
    hashes = np.array([crc32((key or "").encode()) for key in distinct.dictionary.to_pylist()], np.int64)
    of_events: npt.NDArray[np.int64] = hashes[numbers_of(distinct.indices)]
    return of_events


def _runs_of_all(columns: Sequence[npt.NDArray[np.int64]]) -> tuple[list[int], list[int]]:
    """Return the begins and the ends of the runs in which all columns have one value."""
    begins = sorted({begin for column in columns for begin, _ in runs_of(column)})
    return begins, [*begins[1:], len(columns[0])]


def _in_bucket(events: pa.RecordBatch) -> Sequence[npt.NDArray[np.int64]]:
    """Return the columns that determine the order of events in a bucket, the last one first."""
    names = [name for name in (ELEMENT.name, "_offset") if name in events.schema.names]
    return [numbers_of(events.column(name).fill_null(0)) for name in names]


def _blocks_in(batches: Batches) -> Iterator[_Block]:
    for batch in batches:
        buckets, ranges = (numbers_of(batch.column(name)).tolist() for name in ("bucket", "range"))
        yield from map(_Block, buckets, ranges, (events.as_buffer() for events in batch.column("events")))
