"""Answers as files: CSV, or Parquet with the types of the columns."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from itertools import count
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from ....processors import counted
from ..results import BadQuery
from .answers import Exploration

_to_json = msgspec.json.Encoder(enc_hook=str).encode


class FileFormat(StrEnum):
    """The format of a file."""

    CSV = "csv"
    PARQUET = "parquet"

    @property
    def media_type(self) -> str:
        """Its media type."""
        return "text/csv; charset=utf-8" if self is FileFormat.CSV else "application/vnd.apache.parquet"


def file_of(rows: pa.Table, form: FileFormat) -> bytes:
    """Return rows as a file. In CSV, lists and structs are JSON. A second column of a name gets a number.

    Raises:
        BadQuery: the file cannot contain a column of this type.
    """
    names, is_csv, content = _distinct(rows.column_names), form is FileFormat.CSV, io.BytesIO()
    columns = [_flat(column, is_csv=is_csv) for column in rows.columns]
    try:
        (pc.write_csv if is_csv else pq.write_table)(pa.table(columns, names), content)
    except pa.ArrowException as error:
        raise BadQuery(
            f"The answer cannot be a {form.value} file: {error}. Cast the column to a text in the SELECT."
        ) from error
    return content.getvalue()


def _distinct(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        numbered = (f"{name}_{at}" for at in count(1))
        found.append(name if name not in found else next(each for each in numbered if each not in (*found, *names)))
    return found


def _flat(column: Any, *, is_csv: bool) -> Any:
    """Return a column with texts in place of what the file cannot contain: intervals of time, in CSV also lists and structs."""
    if not (pa.types.is_interval(column.type) or (is_csv and pa.types.is_nested(column.type))):
        return column
    return pa.array([None if value is None else _to_text(value) for value in column.to_pylist()], pa.string())


def _to_text(value: Any) -> str:
    if isinstance(value, pa.MonthDayNano):
        rest = timedelta(microseconds=value.nanoseconds // 1_000)
        return f"{counted(value.months, 'month')} {counted(value.days, 'day')} {rest}"
    return _to_json(value).decode()


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
