"""What tables in files have in common, whatever is in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from ...processors.lookups.row_shape import RowShape
from .file_rows import FileRows


@dataclass(frozen=True)
class FileTable(ABC):
    """A file that is held whole and loaded again when it changes.

    Replace it by renaming: what is half written when a batch comes is loaded as it is, or kept out if it does not load.

    Args:
        path: where it is, on every machine that processes events; a Spark cluster is sent it.
        row: what each of its rows becomes; fields are found by their columns' names.
        key: the column of the key, of which each has one row.

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
        rows = FileRows(Path(self.path), self.rows_of)
        rows.load()
        return rows

    @abstractmethod
    def rows_of(self, content: bytes) -> Mapping[str, Any]:
        """Return the rows of a file by key.

        Raises:
            LookupRefused, InvalidRow: they cannot be had.
        """

    def __str__(self) -> str:
        return str(self.path)
