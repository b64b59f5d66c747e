"""Rows in a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from ...processors.lookups import LookupRefused
from ...processors.lookups.shaping import RowShape, by_key
from .file_rows import FileRows, loaded


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file, held whole and loaded again when it changes.

    Args:
        path: where it is, on every machine that processes events.
        row: what a row becomes; its fields are found by their columns' names.
        key: the column of the key, text or whole numbers, of which each has one row.

    Raises:
        DeclarationError: `row` is no type of rows.
    """

    path: str | PathLike[str]
    row: type[msgspec.Struct]
    key: str

    def __post_init__(self) -> None:
        RowShape(self.row)

    def open(self) -> FileRows:
        """Load it.

        Raises:
            LookupRefused: it is not there, lacks a column, has several rows of a key, or one that does not fit.
        """
        return loaded(Path(self.path), self._load)

    def _load(self, content: bytes) -> Mapping[str, Any]:
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

    def __str__(self) -> str:
        return str(self.path)
