"""The output of a batch run, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.backfill.steps import name_in_batch
from penstock.backfill.warehouse import OUTPUT_MARKS, RecordColumns, day_of, folder_of


def write_batch(root: Path, destination: ps.Category[Any] | ps.sinks.Sink, records: Sequence[Any]) -> None:
    """Write records as a batch run does: by day, with their keys and event times; rows of a sink with their numbers."""
    columns = RecordColumns(destination.record)
    if isinstance(destination, ps.sinks.Sink):
        keys, times = [""] * len(records), list(range(len(records)))
    else:
        keys, times = destination.keys_of(records), destination.event_times_of(records)
    by_day: dict[str, list[Any]] = {}
    for row in zip(records, keys, times, strict=True):
        by_day.setdefault(day_of(row[2]), []).append(row)
    for day, of_day in by_day.items():
        written, keys, times = map(list, zip(*of_day, strict=True))
        marks: list[Any] = [pa.array(keys), pa.array(times)]
        names = [*columns.schema.names, *OUTPUT_MARKS.names]
        folder = root / folder_of(name_in_batch(destination)) / f"ds={day}"
        folder.mkdir(parents=True)
        pq.write_table(
            pa.Table.from_arrays([*columns.arrays(written), *marks], names=names), folder / "part-00000.parquet"
        )
