"""Where the events of a step come from, counted in the workers: the warehouse, or the bus behind its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ..spark.counts import TaskCount


@dataclass(frozen=True)
class Origin:
    """Counts, in the workers, where events come from.

    Args:
        borders: by bucket, from which offset on they come from the bus.
        archived: how many came from the warehouse.
        live: how many came from the bus.
    """

    borders: Mapping[int, int]
    archived: TaskCount
    live: TaskCount

    def count(self, batch: pa.RecordBatch) -> None:
        """Count the events of a batch."""
        buckets, offsets = batch.column("_bucket"), batch.column("_offset")
        live = 0
        numbers: set[int] = set(buckets.to_pylist())  # type: ignore[arg-type]  # the column has no nulls
        for number in numbers:
            behind = pc.greater_equal(offsets, pa.scalar(self.borders[number], pa.int64()))
            live += pc.and_(pc.equal(buckets, pa.scalar(number, pa.int32())), behind).true_count
        self.live.add(live)
        self.archived.add(batch.num_rows - live)
