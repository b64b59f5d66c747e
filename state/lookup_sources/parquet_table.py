"""Rows in a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...processors.lookups import LookupRefused
from ...processors.lookups.row_shape import RowShape, by_key
from .file_table import FileTable


class ParquetTable(FileTable):
    """A Parquet file, whose key is a column of texts or whole numbers; see `FileTable`."""

    def rows_of(self, content: bytes) -> Mapping[str, Any]:
        """Return the rows of its row groups."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and of use to few
        import pyarrow.parquet as pq  # noqa: PLC0415

        shape = RowShape(self.row)
        try:
            file = pq.ParquetFile(pa.BufferReader(content))
            columns = shape.columns(file.schema_arrow.names, self.key, str(self))
            values = file.read(columns=[*{*columns, self.key}]).to_pylist()
        except pa.ArrowException as error:
            raise LookupRefused(f"{self} is not a Parquet file that can be read: {error}.") from error
        return by_key(list(self._keyed(values, columns, shape)), str(self))

    def _keyed(
        self, values: list[dict[str, Any]], columns: list[str], shape: RowShape
    ) -> Iterator[tuple[str, str, Any]]:
        for number, found in enumerate(values):
            place, key = f"{self} row {number}", found[self.key]
            if type(key) not in (str, int):
                raise LookupRefused(f"{place} has the key {key!r}: a key is a text or a whole number.")
            yield str(key), place, shape.of_values({name: found[name] for name in columns}, place)
