"""Past events from the warehouse, and from the bus after the end of the archive.

An archived event has its bucket, offset and arrival time. Messages that did not decode are not archived.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....backfill.archive import archive_schema_of, archived_ends
from ....backfill.warehouse import (
    ELEMENT,
    ArchivedFile,
    EventFile,
    RecordColumns,
    StoredCategory,
    Warehouse,
    settings_of,
)
from ....processors.declare import AnyCategory, Decoded, Processor, plan_of
from ....processors.shard import SourceEvents, accept_batch
from ....transport import Bucket, Bus, OffsetRange
from .bus_source import BusEventSource, split_rejected
from .errors import ReplayRefused
from .event_source import PastRange

BATCH = 10_000


class ArchiveEventSource:
    """Reads archived events from the warehouse, and later ones from the bus.

    Args:
        processor: the processor, with its inputs and policies.
        warehouse: the archive of the inputs.
        bus: the bus of the inputs.
    """

    def __init__(self, processor: Processor, warehouse: Warehouse, bus: Bus) -> None:
        self._processor = processor
        self._warehouse = warehouse
        self._bus = bus
        self._rest = BusEventSource(processor, bus, from_earliest=True)
        self._ends = lru_cache(maxsize=None)(self._archived_ends)
        self._stored = lru_cache(maxsize=None)(self._look)
        self._arrivals = lru_cache(maxsize=None)(self._read_arrivals)

    def _archived_ends(self, category: str) -> dict[int, int]:
        return archived_ends(self._bus, self._warehouse, category)

    def _look(self, category: AnyCategory) -> tuple[StoredCategory, int]:
        """Return the archive of a category, and its number of offsets per segment."""
        terms = settings_of(self._warehouse, category.name)
        if terms is None:
            raise ReplayRefused(
                f"{category.name} is not archived in {self._warehouse.location}. Nothing was read. Name its warehouse (`--warehouse`), or "
                "replay from Kafka (`--source bus`)."
            )
        schema = archive_schema_of(category)
        return StoredCategory.of(self._warehouse, category.name, schema), terms.segment_events

    def first(self, bucket: Bucket) -> int:
        """Return the first archived or retained offset of a bucket."""
        offsets, _ = self._arrivals(self._category(bucket), bucket.number)
        return min([self._rest.first(bucket), *offsets[:1]])

    def stretch(self, bucket: Bucket, span: PastRange) -> OffsetRange:
        """Return the offsets of a span in a bucket."""
        self._stored(self._category(bucket))  # raises if the category is not archived
        on_bus = self._rest.stretch(bucket, span)
        first_on_bus = self._rest.first(bucket)
        if on_bus.start > first_on_bus:
            return on_bus
        start = self._archived_offset(bucket, span.since, on_bus.start)
        end = on_bus.end
        if span.until is not None and on_bus.end <= first_on_bus:
            end = self._archived_offset(bucket, span.until, on_bus.end)
        return OffsetRange(bucket, start, max(start, end))

    def _archived_offset(self, bucket: Bucket, point: datetime | int, on_bus: int) -> int:
        """Return the offset of a point that may be before the retained events."""
        if not isinstance(point, datetime):
            return min(point, on_bus)
        offsets, arrived = self._arrivals(self._category(bucket), bucket.number)
        at = bisect_left(arrived, int(point.timestamp() * 1000))
        return min(offsets[at], on_bus) if at < len(offsets) else on_bus

    def _read_arrivals(self, category: AnyCategory, number: int) -> tuple[list[int], list[int]]:
        """Return the archived offsets of a bucket in order, and their arrival times."""
        stored, _ = self._stored(category)
        files = [file for file in stored.listing.all_files if not _is_of_other(file, number)]
        table = _joined(
            list(stored.read_files(files, ["_bucket", "_offset", "_arrived"])), stored.schema, number, 0, None
        )
        return _numbers(table.column("_offset")), list(accumulate(_numbers(table.column("_arrived")), max))

    def read(self, category: AnyCategory, stretch: OffsetRange) -> Iterator[SourceEvents]:
        """Yield the events of an offset range in order, and the messages that a worker would reject."""
        border = max(min(self._ends(category.name).get(stretch.bucket.number, 0), stretch.end), stretch.start)
        arrived_ms = 0
        for events in self._archived(category, stretch._replace(end=border)):
            arrived_ms = events.arrived_ms[-1]
            yield events
        first = self._rest.first(stretch.bucket)
        if border < stretch.end and border < first:
            raise ReplayRefused(
                f"{stretch.bucket} is archived up to offset {border:,}, and Kafka retains it only from {first:,}. The events between are lost, and "
                "the replay stops there. Choose a span before or after that."
            )
        for events in self._rest.read(category, stretch._replace(start=border)):
            yield events.arrived_after(arrived_ms)

    def _archived(self, category: AnyCategory, stretch: OffsetRange) -> Iterator[SourceEvents]:
        """Read all archived events of one bucket: files are by day of event time, not in order."""
        if stretch.start >= stretch.end:
            return
        stored, segment_events = self._stored(category)
        number = stretch.bucket.number
        files = [
            file
            for file in stored.listing.all_files
            if not _is_of_other(file, number) and _may_hold(file, stretch, segment_events)
        ]
        batches = list(stored.read_files(files, stored.schema.names))
        table = _joined(batches, stored.schema, number, stretch.start, stretch.end)
        columns, arrived_ms = RecordColumns(category.record), 0
        for batch in table.to_batches(max_chunksize=BATCH):
            offsets, arrivals = (_numbers(batch.column(name)) for name in ("_offset", "_arrived"))
            events = columns.records(batch)
            accepted = accept_batch(
                Decoded(events, range(len(events)), []), category, np.array(arrivals), self._processor
            )
            arrived = list(accumulate(arrivals, max, initial=arrived_ms))[1:]
            arrived_ms = arrived[-1]
            yield from split_rejected(category, number, accepted, offsets, arrived)

    def _category(self, bucket: Bucket) -> AnyCategory:
        [found] = [category for category in plan_of(self._processor).inputs if category.name == bucket.category]
        return found


def _numbers(column: Any) -> list[int]:
    return cast("list[int]", column.to_pylist())


def _is_of_other(file: EventFile, number: int) -> bool:
    return isinstance(file, ArchivedFile) and file.bucket != number


def _may_hold(file: EventFile, stretch: OffsetRange, segment_events: int) -> bool:
    if not isinstance(file, ArchivedFile):
        return True
    return file.segment < stretch.end and file.last_segment + segment_events > stretch.start


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema, number: int, start: int, end: int | None) -> pa.Table:
    """Return the rows of a bucket between two offsets in order."""
    if not batches:
        return schema.empty_table()
    table = pa.Table.from_batches(batches)
    wanted: Any = (pc.field("_bucket") == number) & (pc.field("_offset") >= start)
    if end is not None:
        wanted = wanted & (pc.field("_offset") < end)
    order: list[tuple[str, Literal["ascending", "descending"]]] = [
        (name, "ascending") for name in ("_offset", ELEMENT.name) if name in schema.names
    ]
    return table.filter(wanted).sort_by(order)
