"""The columns of a category's table: one for each field, also of nested records.

click.device.os --> column "device.os"; lists and dicts --> JSON text; bytes --> hexadecimal text
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....backfill.warehouse import EVENT_MARKS, MARKS, RecordColumns
from ....processors.declare import AnyCategory
from .errors import ScubaRefused

RATE = "_rate"
"""The sampling rate of a row."""
BUCKET, OFFSET, EVENT_TIME, ARRIVED = EVENT_MARKS
_MARKS = pa.schema([MARKS.field(name) for name in EVENT_MARKS])
_to_json = msgspec.json.Encoder(enc_hook=str).encode


class FlatColumns:
    """The columns of a category's records, and of their positions and times.

    Args:
        category: the category.

    Raises:
        DeclarationError: a field has no column type.
        ScubaRefused: two columns have the same name; DuckDB ignores case.
    """

    def __init__(self, category: AnyCategory) -> None:
        self._category = category
        self._columns = RecordColumns(category.record)
        empty = self._columns.schema.empty_table()
        flat = [pair for name in empty.column_names for pair in _flat(name, _array(empty.column(name)))]
        self.schema = pa.schema([pa.field(name, array.type) for name, array in flat] + list(_MARKS))
        """The columns of the table, without the sampling rate."""
        named = category.event_time
        is_number = isinstance(named, str) and any(
            field.name == named and pa.types.is_integer(field.type) for field in self.schema
        )
        self.event_time = named if isinstance(named, str) and is_number else ""
        """The column of the record with the event time, in milliseconds; empty if it has none."""
        seen: dict[str, str] = {}
        for name in (*self.schema.names, RATE):
            if (other := seen.setdefault(name.lower(), name)) is not name:
                raise ScubaRefused(
                    f"Category {category.name}: the columns {other!r} and {name!r} of its table have the same name, apart from case and nesting. "
                    "Nothing was started. Rename one of the fields, or leave the category out."
                )

    def table(
        self, bucket: int, records: Sequence[Any], offsets: npt.NDArray[np.int64], arrivals_ms: npt.NDArray[np.int64]
    ) -> pa.Table:
        """Return the rows of records of one bucket.

        Raises:
            Exception: a value does not fit its column, or a function of the category fails.
        """
        arrays = self._columns.arrays(records)
        flat = [
            column
            for name, array in zip(self._columns.schema.names, arrays, strict=True)
            for _, column in _flat(name, array)
        ]
        marks = [
            pa.array(np.full(len(records), bucket, np.int32)),
            pa.array(offsets),
            pa.array(self._category.time_array_of(records)),
            pa.array(arrivals_ms),
        ]
        return pa.Table.from_arrays([*flat, *marks], schema=self.schema)


def _array(column: Any) -> pa.Array[Any]:
    found: pa.Array[Any] = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return found


def _flat(name: str, array: pa.Array[Any]) -> Iterator[tuple[str, pa.Array[Any]]]:
    kind: pa.DataType = array.type
    if isinstance(array, pa.StructArray) and isinstance(kind, pa.StructType):
        for index, child in enumerate(array.flatten()):
            yield from _flat(f"{name}.{kind.field(index).name}", child)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        yield name, _texts(array, lambda value: _to_json(_plain(kind, value)).decode())
    elif pa.types.is_binary(kind):
        yield name, _texts(array, bytes.hex)
    elif pa.types.is_timestamp(kind):
        yield name, array.cast(pa.timestamp("us"))  # all times are UTC
    else:
        yield name, array


def _texts(array: pa.Array[Any], text_of: Callable[[Any], str]) -> pa.Array[Any]:
    return pa.array([None if value is None else text_of(value) for value in array.to_pylist()], pa.string())


def _plain(kind: pa.DataType, value: Any) -> Any:
    """Return a value with maps, which Arrow returns as pairs, as dicts."""
    if value is None:
        return None
    if isinstance(kind, pa.MapType):
        return {key: _plain(kind.item_type, item) for key, item in value}
    if isinstance(kind, pa.ListType):
        return [_plain(kind.value_type, item) for item in value]
    if isinstance(kind, pa.StructType):
        return {field.name: _plain(field.type, value[field.name]) for field in kind}
    return value
