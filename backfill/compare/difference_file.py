"""Parquet file of the differences between stream and batch, one row per differing field."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import final

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import WarehouseError
from ..warehouse import aside_name
from .comparer import STREAM_AND_BATCH, RecordPair, as_json_text

_DIFFERENCES: dict[str, pa.DataType] = {
    "category": pa.string(),
    "key": pa.string(),
    "event_time": pa.int64(),
    "kind": pa.string(),
    "field": pa.string(),
    "stream": pa.string(),
    "batch": pa.string(),
    "absolute": pa.float64(),
    "relative": pa.float64(),
    "within_error": pa.bool_(),
}
DIFFERENCES = pa.schema(_DIFFERENCES)
"""A differing field, or, with a null field, a record of one side only. Values are JSON, times milliseconds since 1970, UTC."""

_ROWS = 10_000


@final
class DifferenceFile:
    """The file as a context manager: it replaces an older file when the block succeeds, and is removed when the block fails.

    Args:
        path: the path of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(aside_name(path.name))

    def add(self, category: str, pairs: Iterable[RecordPair]) -> None:
        """Append the differences of a category."""
        rows = (row for pair in pairs for row in _rows(category, pair))
        while chunk := list(islice(rows, _ROWS)):
            self._writer.write_table(pa.Table.from_pylist(chunk, schema=DIFFERENCES))

    def __enter__(self) -> DifferenceFile:
        try:
            self._writer = pq.ParquetWriter(self._temporary, DIFFERENCES, compression="zstd")
        except OSError as error:
            raise WarehouseError(
                f"{self._path} cannot be written: {_reason(error)}. Nothing was compared. Choose a file in a writable folder that exists."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        if kind is None:
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)  # Arrow's own text names the temporary file


def _rows(category: str, pair: RecordPair) -> Iterator[Mapping[str, object]]:
    record = {
        "category": category,
        "key": pair.key,
        "event_time": pair.event_time,
        "kind": STREAM_AND_BATCH.kind_name(pair.kind),
    }
    for field in pair.fields:
        yield {
            **record,
            "field": field.field,
            "stream": field.left,
            "batch": field.right,
            "absolute": field.absolute,
            "relative": field.relative,
            "within_error": field.within_error,
        }
    if not pair.fields:
        sides = {"stream": pair.left, "batch": pair.right}
        yield {**record, **{side: None if value is None else as_json_text(value) for side, value in sides.items()}}
