"""The seam to the warehouse: files that appear whole or not at all; and a folder on this machine.

The archiver writes and reads back through it; Spark reads the same files by their location.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from ...state.durable import sync_folder
from ..errors import NotStored, WarehouseError
from .layout import Stored, aside_name, folder_of, is_day

WRITERS = 8
"""How many files are read or written at a time."""


class Warehouse(Protocol):
    """Files by category and day. Calls are complete on return, may be repeated, and come from several threads.

    All raise WarehouseError.
    """

    @property
    def location(self) -> str:
        """Where Spark finds the root."""
        ...

    def write(self, file: Stored, content: bytes) -> None:
        """Store a file durably. Readers see it whole or not at all; one of that name is replaced at once."""
        ...

    def read(self, file: Stored, start: int = 0) -> bytes:
        """Return what is stored, from a byte on.

        Raises:
            NotStored: there is no such file.
        """
        ...

    def remove(self, file: Stored) -> None:
        """Remove a file; nothing where there is none."""
        ...

    def contents(self, category: str) -> dict[str, int]:
        """Return what is in a category's folder and in those of its days: sizes in bytes by path below that folder."""
        ...


class LocalWarehouse:
    """A folder on this machine, or one that is mounted here.

    Args:
        root: the folder; it is made when the first file is written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    def location(self) -> str:
        """Where Spark finds the root."""
        return f"file://{self._root}"

    def write(self, file: Stored, content: bytes) -> None:
        """Store a file durably: written aside, then renamed."""
        target = self._root / file.path
        aside = target.with_name(aside_name(target.name))
        with _explained(f"{target} was not written"):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with aside.open("wb") as out:
                    out.write(content)
                    out.flush()
                    os.fsync(out.fileno())
                aside.replace(target)
            finally:
                aside.unlink(missing_ok=True)
            sync_folder(target.parent)

    def read(self, file: Stored, start: int = 0) -> bytes:
        """Return what is stored, from a byte on."""
        with _explained(f"{self._root / file.path} was not read"):
            try:
                with (self._root / file.path).open("rb") as stored:
                    stored.seek(start)
                    return stored.read()
            except FileNotFoundError as error:
                raise NotStored(f"{self._root / file.path} is not there.") from error

    def remove(self, file: Stored) -> None:
        """Remove a file."""
        with _explained(f"{self._root / file.path} was not removed"):
            (self._root / file.path).unlink(missing_ok=True)

    def contents(self, category: str) -> dict[str, int]:
        """Return the sizes of what is there."""
        folder = self._root / folder_of(category)
        with _explained(f"{folder} was not listed"):
            if not folder.exists():
                return {}
            own, days = _entries(folder)
            return own | {f"{day}/{name}": size for day in days for name, size in _entries(folder / day)[0].items()}


def _entries(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Return the sizes of a folder's files, and the names of the days' folders in it."""
    sizes: dict[str, int] = {}
    days: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                days += [entry.name] if is_day(entry.name) else []
            else:
                with suppress(FileNotFoundError):  # renamed since: no longer of that name
                    sizes[entry.name] = entry.stat().st_size
    return sizes, days


def open_warehouse(location: str, webhdfs: str | None = None) -> Warehouse:
    """Return the warehouse at a location.

    Args:
        location: a folder, or ``hdfs://host:port/path`` with the address that Spark uses (the NameNode's RPC port).
        webhdfs: for HDFS, the address of WebHDFS; by default ``http://host:9870``.

    Raises:
        WarehouseError: a location of another kind, or an incomplete one.
    """
    parts = urlsplit(location)
    match parts.scheme:
        case "hdfs":
            from .hdfs import HdfsWarehouse  # noqa: PLC0415 - its client is slow to import and seldom needed

            if not parts.hostname or not parts.path.strip("/"):
                raise WarehouseError(
                    f"{location} is not a whole location: give hdfs://host:port/path, with the port of the NameNode's RPC."
                )
            return HdfsWarehouse(location, webhdfs or f"http://{parts.hostname}:9870")
        case "file":
            return LocalWarehouse(Path(parts.path))
        case "":
            return LocalWarehouse(Path(location))
        case other:
            raise WarehouseError(
                f"{location}: a warehouse is a folder or lies on HDFS (hdfs://host:port/path); {other} is neither."
            )


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WarehouseError(
            f"{what}: {error.strerror or error}. What is in the warehouse is whole; mend the folder (place, rights, space) "
            "and run again."
        ) from error
