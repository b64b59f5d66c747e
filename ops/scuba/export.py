"""Answers as files: CSV, or Parquet with the types of the columns."""

from __future__ import annotations

import io
from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from .answers import Exploration

_to_json = msgspec.json.Encoder(enc_hook=str).encode


class FileFormat(str, Enum):
    """The format of a file."""

    CSV = "csv"
    PARQUET = "parquet"

    @property
    def media_type(self) -> str:
        """Its media type."""
        return "text/csv; charset=utf-8" if self is FileFormat.CSV else "application/vnd.apache.parquet"


def file_of(rows: pa.Table, form: FileFormat) -> bytes:
    """Return rows as a file. In CSV, lists and structs are JSON."""
    content = io.BytesIO()
    if form is FileFormat.PARQUET:
        pq.write_table(rows, content)
    else:
        pc.write_csv(pa.table({name: _flat(rows.column(name)) for name in rows.column_names}), content)
    return content.getvalue()


def _flat(column: Any) -> Any:
    if not pa.types.is_nested(column.type):
        return column
    return pa.array([None if value is None else _to_json(value).decode() for value in column.to_pylist()], pa.string())


def exploration_table(found: Exploration) -> pa.Table:
    """Return the groups of an answer, or with time series their points, as rows."""
    if found.points:
        keys = [found.rows[point.series].group for point in found.points]
        columns = {"time_ms": [point.start_ms for point in found.points]}
        values = [point.values for point in found.points]
    else:
        keys, columns, values = [row.group for row in found.rows], {}, [row.values for row in found.rows]
    arrays: dict[str, Any] = {name: pa.array(each) for name, each in columns.items()}
    arrays |= {name: _array([key[at] for key in keys]) for at, name in enumerate(found.group_by)}
    for at, name in enumerate(found.aggregates):
        arrays[name] = _array([each[at].value for each in values])
        if found.is_sampled:
            arrays[f"{name} margin"] = _array([each[at].margin for each in values])
    return pa.table(arrays)


def _array(values: Sequence[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # such as whole and approximate numbers, of sums beyond 64 bits
        return pa.array([None if value is None else str(value) for value in values], pa.string())
