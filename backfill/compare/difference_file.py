"""A Parquet file of every difference between stream and batch, a row for each field, written as they are found."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import WarehouseError
from ..warehouse.layout import aside_name
from .keyed_records import shown
from .record_difference import as_text

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
"""A field that differs, or, without a field, a record that only one side has; values are JSON, times milliseconds since 1970, UTC."""

_ROWS = 10_000


@final
class DifferenceFile:
    """The file, as a context: it takes the place of an older one when the block ends, and is dropped when that raises.

    Args:
        path: where it will be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._aside = path.with_name(aside_name(path.name))

    def add(self, category: str, found: Iterable[Any]) -> None:
        """Add what is different of a category: rows with what `comparing.JUDGED` has, one for each pair of records."""
        rows = (row for pair in found for row in _rows(category, pair))
        while some := list(islice(rows, _ROWS)):
            self._writer.write_table(pa.Table.from_pylist(some, schema=DIFFERENCES))

    def __enter__(self) -> DifferenceFile:
        try:
            self._writer = pq.ParquetWriter(self._aside, DIFFERENCES, compression="zstd")
        except OSError as error:
            raise WarehouseError(
                f"{self._path} cannot be written: {_reason(error)}. Nothing was compared. Name a file in a folder that exists "
                "and may be written to."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        if kind is None:
            self._aside.replace(self._path)
        else:
            self._aside.unlink(missing_ok=True)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)  # Arrow's own text names the file in the making


def _rows(category: str, pair: Any) -> Iterator[Mapping[str, Any]]:
    place = {"category": category, "key": pair["key"], "event_time": pair["time"], "kind": pair["kind"]}
    if pair["fields"]:
        for field in pair["fields"]:
            yield {**place, **{name: field[name] for name in DIFFERENCES.names[len(place) :]}}
    else:
        yield {
            **place,
            **{side: None if pair[side] is None else as_text(shown(pair[side])) for side in ("stream", "batch")},
        }
