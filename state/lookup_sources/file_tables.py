"""Tables in CSV and Parquet files, which are loaded whole, and again after each change, by rewriting or renaming.

fetch --has the file changed?--> no: rows
             yes --> load --> new rows
                 --> failed load --> old rows, logged and counted once, until the file changes again
"""

from __future__ import annotations

import csv
import io
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...processors import PenstockError, counted
from ...processors.lookups import LookupRefused, PreloadedTable, RowShape, rows_by_key


@dataclass(frozen=True)
class FileTable(ABC):
    """A file that is loaded whole, and again after each change.

    Replace it by renaming. A half-written file is loaded as it is, or skipped if it cannot be loaded.

    Args:
        path: its path, on every machine that processes events; a Spark cluster receives a copy.
        row: the type of its rows; columns are matched to fields by name.
        key: the column of the key, which must be unique.

    Raises:
        DeclarationError: `row` is not a supported type.
    """

    path: str | PathLike[str]
    row: type[msgspec.Struct]
    key: str

    def __post_init__(self) -> None:
        RowShape(self.row)

    def open(self) -> FileRows:
        """Load the file.

        Raises:
            LookupRefused: it is missing, lacks a column, repeats a key, or has an invalid row.
        """
        rows = FileRows(Path(self.path), self.rows_of)
        rows.load()
        return rows

    @abstractmethod
    def rows_of(self, content: bytes) -> Mapping[str, Any]:
        """Return the rows of a file by key.

        Raises:
            LookupRefused, InvalidRow: the file or a row is invalid.
        """

    def __str__(self) -> str:
        return str(self.path)


_LOG = logging.getLogger("penstock.lookups")


Load = Callable[[bytes], Mapping[str, Any]]
"""Converts a file's content to rows by key; raises PenstockError if it cannot."""


class _Stamp(NamedTuple):
    """Identifies the version of a file; zeros without one."""

    inode: int
    size: int
    modified_ns: int


class FileRows(PreloadedTable):
    """The rows of a file; for one thread.

    Args:
        path: the file.
        load: converts its content.
    """

    def __init__(self, path: Path, load: Load) -> None:
        self._path = path
        self._load = load
        self._stamp = _stamp_of(path)
        self._rows: Mapping[str, Any] = {}
        self._failed_loads = 0

    @property
    def failed_loads(self) -> int:
        """The number of changes that could not be loaded."""
        return self._failed_loads

    def load(self) -> None:
        """Load the file.

        Raises:
            LookupRefused: it is missing or unreadable, or has invalid rows.
        """
        # Before reading: the next fetch then detects changes made meanwhile.
        self._stamp = _stamp_of(self._path)
        try:
            self._rows = self._load(self._path.read_bytes())
        except OSError as error:
            raise LookupRefused(
                f"The table {self._path} cannot be read: {error.strerror or error}. Nothing was looked up. Put the file there, at a path that "
                "is valid on every machine that processes events."
            ) from error
        except PenstockError as error:
            raise LookupRefused(f"{str(error).rstrip('.')}.") from error

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the rows of the keys in the current file; keys without a row are missing."""
        if _stamp_of(self._path) != self._stamp:
            self._load_again()
        rows = self._rows
        return {key: rows[key] for key in keys if key in rows}

    def _load_again(self) -> None:
        try:
            self.load()
        except LookupRefused as error:
            self._failed_loads += 1
            _LOG.warning("%s Lookups still use the previous version with %s.", error, counted(len(self._rows), "row"))
        else:
            _LOG.info("%s has changed and now has %s.", self._path, counted(len(self._rows), "row"))

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _stamp_of(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return _Stamp(0, 0, 0)
    return _Stamp(found.st_ino, found.st_size, found.st_mtime_ns)


class CsvTable(FileTable):
    """A CSV file with a header, in UTF-8; see `FileTable`."""

    def rows_of(self, content: bytes) -> Mapping[str, Any]:
        """Return the rows of the file."""
        shape = RowShape(self.row)
        try:
            return rows_by_key(list(self._keyed(content.decode("utf-8-sig"), shape)), str(self))
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
                raise LookupRefused(f"{place} has {len(cells)} cells, but the header has {len(header)}.")
            yield cells[key_at], place, shape.from_texts({name: cells[index] for index, name in at}, place)


class ParquetTable(FileTable):
    """A Parquet file whose key column contains strings or integers; see `FileTable`."""

    def rows_of(self, content: bytes) -> Mapping[str, Any]:
        """Return the rows of the file."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import and rarely needed
        import pyarrow.parquet as pq  # noqa: PLC0415

        shape = RowShape(self.row)
        try:
            file = pq.ParquetFile(pa.BufferReader(content))
            columns = shape.columns(file.schema_arrow.names, self.key, str(self))
            values = file.read(columns=[*{*columns, self.key}]).to_pylist()
        except pa.ArrowException as error:
            raise LookupRefused(f"{self} is not a readable Parquet file: {error}.") from error
        return rows_by_key(list(self._keyed(values, columns, shape)), str(self))

    def _keyed(
        self, values: list[dict[str, Any]], columns: list[str], shape: RowShape
    ) -> Iterator[tuple[str, str, Any]]:
        for number, found in enumerate(values):
            place, key = f"{self} row {number}", found[self.key]
            if type(key) not in (str, int):
                raise LookupRefused(f"{place} has the key {key!r}: keys must be strings or integers.")
            yield str(key), place, shape.from_values({name: found[name] for name in columns}, place)
