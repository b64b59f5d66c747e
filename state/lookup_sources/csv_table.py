"""Rows in a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from ...processors.lookups import LookupRefused
from ...processors.lookups.row_shape import RowShape, by_key
from .file_table import FileTable


class CsvTable(FileTable):
    """A CSV file with a header, in UTF-8; see `FileTable`."""

    def rows_of(self, content: bytes) -> Mapping[str, Any]:
        """Return the rows of its lines."""
        shape = RowShape(self.row)
        try:
            return by_key(list(self._keyed(content.decode("utf-8-sig"), shape)), str(self))
        except (UnicodeDecodeError, csv.Error) as error:
            raise LookupRefused(f"{self} is not a CSV file in UTF-8: {error}.") from error

    def _keyed(self, text: str, shape: RowShape) -> Iterator[tuple[str, str, Any]]:
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = next(lines, [])
        columns = shape.columns(header, self.key, str(self))
        at = [(header.index(name), name) for name in columns]
        key_at = header.index(self.key)
        for cells in lines:
            if not cells:
                continue
            place = f"{self} line {lines.line_num}"
            if len(cells) != len(header):
                raise LookupRefused(f"{place} has {len(cells)} cells, and the header {len(header)}.")
            yield cells[key_at], place, shape.of_texts({name: cells[index] for index, name in at}, place)
