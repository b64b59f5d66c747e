"""Rows in a CSV file."""

from __future__ import annotations

import csv
import io
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
class CsvTable:
    """A CSV file with a header, in UTF-8, held whole and loaded again when it changes.

    Replace it by renaming: what is half written when a batch comes is loaded as it is, or kept out if it does not load.

    Args:
        path: where it is, on every machine that processes events.
        row: what a line becomes; its fields are found by their columns' names.
        key: the column of the key, of which each has one line.

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
            LookupRefused: it is not there, lacks a column, has several lines of a key, or one that does not fit.
        """
        return loaded(Path(self.path), self._load)

    def _load(self, content: bytes) -> Mapping[str, Any]:
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

    def __str__(self) -> str:
        return str(self.path)
