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

from ...state.files.durable import sync_folder
from ..errors import NotStored, WarehouseError
from .layout import Stored, aside_name

WRITERS = 8
"""How many files are read or written at a time."""


class Warehouse(Protocol):
    """Files in folders, by category and day. Calls are complete on return, may be repeated, and come from several threads and processes.

    Each call takes effect at one moment between its beginning and its return, for all processes at once. All raise WarehouseError; one
    that raised may have taken effect, or may not. The effect of one that raised comes, if at all, before a later call on the same file returns.
    """

    @property
    def location(self) -> str:
        """Where Spark finds the root."""
        ...

    def write(self, file: Stored, content: bytes) -> None:
        """Store a file durably. Readers see it whole or not at all; one of that name is replaced in one step, and is never absent."""
        ...

    def create(self, file: Stored, content: bytes) -> bool:
        """Store a file durably where there is none of that name; return whether there was none.

        Readers see it whole or not at all. Of all processes that create one name, one at most gets True.
        """
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

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return what is in a folder below the root: the size in bytes by name, None for folders; nothing where there is no folder.

        A file that was there before the call and is there after it is listed. One that is created or removed meanwhile may be.
        """
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
        with _explained(f"{target} was not written"):
            with _aside(target, content) as aside:
                aside.replace(target)
            sync_folder(target.parent)

    def create(self, file: Stored, content: bytes) -> bool:
        """Store a file durably where there is none: written aside, then linked to its name."""
        target = self._root / file.path
        with _explained(f"{target} was not written"):
            try:
                with _aside(target, content) as aside:
                    os.link(aside, target)
            except FileExistsError:
                return False
            sync_folder(target.parent)
            return True

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

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of what is in a folder."""
        with _explained(f"{self._root / folder} was not listed"):
            return _sizes(self._root / folder) if (self._root / folder).exists() else {}


@contextmanager
def _aside(target: Path, content: bytes) -> Iterator[Path]:
    """Give a file beside a target with its content, durably; it is gone afterwards."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(aside_name(target.name))
    try:
        with aside.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        yield aside
    finally:
        aside.unlink(missing_ok=True)


def _sizes(folder: Path) -> dict[str, int | None]:
    sizes: dict[str, int | None] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # renamed since: no longer of that name
                sizes[entry.name] = None if entry.is_dir() else entry.stat().st_size
    return sizes


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
