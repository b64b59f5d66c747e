"""Outputs as columns: a codec that can encode them needs no object for each output; others get the records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .arrow_values import numbers_of, texts_of
from .categories import AnyCategory
from .flat_records import FlatField, FlatType, flat_fields

if TYPE_CHECKING:
    import pyarrow as pa

_ARROW_TYPES = {
    FlatType.TEXT: "string",
    FlatType.INTEGER: "int64",
    FlatType.REAL: "double",
    FlatType.BOOLEAN: "bool",
}


class ColumnOutputs(Sequence[Any]):
    """Outputs of one category, in order, as Arrow columns. As a sequence, they are records.

    Args:
        category: the category.
        columns: the fields of its records, in the order of the declaration, with values that fit them.
    """

    def __init__(self, category: AnyCategory, columns: pa.RecordBatch) -> None:
        self.category = category
        self.columns = columns

    def __len__(self) -> int:
        return self.columns.num_rows

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._records[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._records)

    @property
    def keys(self) -> list[str] | None:
        """The key of each record; None if it is not one field."""
        if len(self.category.key_fields) != 1:
            return None
        return texts_of(self.columns.column(self.category.key_fields[0]).cast("string"))

    @cached_property
    def _records(self) -> list[Any]:
        [record] = self.category.record_types
        names = [field.attribute for field in flat_fields(record) or ()]
        rows = zip(*(column.to_pylist() for column in self.columns.columns), strict=True)
        return [record(**dict(zip(names, row, strict=True))) for row in rows]


def column_outputs(category: AnyCategory, columns: pa.RecordBatch | pa.Table) -> Sequence[Any] | None:
    """Return columns as outputs; None unless each row certainly is a record of a category."""
    fields = flat_fields(category.record_types[0]) or ()
    names = columns.schema.names
    if len(names) != len(fields) or {field.name for field in fields} != set(names):
        return None
    if not columns.num_rows:
        return ()
    ordered: Any = columns.select([field.name for field in fields])
    whole = ordered.combine_chunks().to_batches()[0] if hasattr(ordered, "combine_chunks") else ordered
    fits = all(_fits(field, column) for field, column in zip(fields, whole.columns, strict=True))
    return ColumnOutputs(category, whole) if fits else None


def _fits(field: FlatField, column: pa.Array[Any]) -> bool:
    if str(column.type) != _ARROW_TYPES[field.type] or (column.null_count and not field.is_optional):
        return False
    if field.type is not FlatType.REAL:
        return True
    values = column.drop_null() if column.null_count else column
    return bool(np.isfinite(numbers_of(values)).all())  # an infinite number is refused with its record
