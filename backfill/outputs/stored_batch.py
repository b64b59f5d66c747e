"""The output of a batch run in its folder, as it is sent: always in the same order.

<folder>/category=…/ds=…/*.parquet --a file at a time, in order of event time--> parts
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from ...processors.declare import RecordType
from ..warehouse import OUTPUT_MARKS, WRITERS, EventFile, RecordColumns, StoredCategory, Warehouse, footer_of

PART_RECORDS = 50_000
"""The number of records in a part, or up to twice as many."""


@dataclass(frozen=True)
class StoredBatch:
    """The batch output for one category or sink.

    Args:
        record: the type of its records.
        stored: its files.
        counts: the number of records of each file, in the order of sending.
    """

    record: RecordType
    stored: StoredCategory
    counts: dict[EventFile, int]

    @staticmethod
    def of(folder: Warehouse, name: str, record: RecordType) -> StoredBatch:
        """Read the files' footers.

        Args:
            folder: the location of the batch output.
            name: the name in it.
            record: the type of its records.

        Raises:
            WarehouseError: the folder cannot be read.
        """
        schema = pa.schema([*RecordColumns(record).schema, *OUTPUT_MARKS])
        stored = StoredCategory.of(folder, name, schema)
        files, sizes = stored.listing.all_files, stored.listing.sizes
        with ThreadPoolExecutor(WRITERS) as pool:
            footers = pool.map(lambda file: footer_of(folder, file, sizes[file]), files)
            return StoredBatch(
                record, stored, {file: footer.num_rows for file, footer in zip(files, footers, strict=True)}
            )

    @property
    def digest(self) -> str:
        """The identity of this batch: each run gives its files a new name."""
        files = "\n".join(f"{file.path} {self.stored.listing.sizes[file]}" for file in self.counts)
        return hashlib.sha256(files.encode()).hexdigest()

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(self.counts.values())

    def parts(self, start: int) -> Iterator[list[object]]:
        """Yield the records from a number on, in parts; one empty part for an empty batch.

        So an empty batch has a mark too, and is not computed again.
        """
        part: list[object] = []
        for records in self._in_order(start):
            part += records
            if len(part) >= PART_RECORDS:
                yield part
                part = []
        if part or not self.records:
            yield part

    def _in_order(self, start: int) -> Iterator[list[object]]:
        """Yield the records from a number on, always in the same order: day by day, each file in order of event time."""
        columns = RecordColumns(self.record)
        for file, count in self.counts.items():
            if start < count:
                rows = pa.Table.from_batches(self.stored.read_files([file], self.stored.schema.names))
                # The sort is stable: records of the same time keep the order of the file.
                in_order = rows.sort_by("_event_time").slice(start)
                for batch in in_order.to_batches(PART_RECORDS):
                    yield columns.records(batch)
            start = max(start - count, 0)
