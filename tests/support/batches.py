"""The output of a batch run, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.backfill.warehouse.columns import OUTPUT_MARKS, Columns
from penstock.backfill.warehouse.layout import day_of, folder_of


def write_batch(root: Path, category: ps.Category[Any], records: Sequence[Any]) -> None:
    """Write records as a batch run does: by day, with their keys and event times."""
    columns = Columns(category.record)
    by_day: dict[str, list[Any]] = {}
    for record, time in zip(records, category.event_times_of(records), strict=True):
        by_day.setdefault(day_of(time), []).append(record)
    for day, of_day in by_day.items():
        marks: list[Any] = [pa.array(category.keys_of(of_day)), pa.array(category.event_times_of(of_day))]
        names = [*columns.schema.names, *OUTPUT_MARKS.names]
        folder = root / folder_of(category.name) / f"ds={day}"
        folder.mkdir(parents=True)
        pq.write_table(
            pa.Table.from_arrays([*columns.arrays(of_day), *marks], names=names), folder / "part-00000.parquet"
        )
