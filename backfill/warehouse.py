"""The seam to the warehouse: files that appear whole or not at all; and a folder on this machine.

The archiver writes and reads back through it; Spark reads the same files by their location.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from ..state.durable import sync_folder
from .errors import WarehouseError
from .layout import StoredFile, aside_name, folder_of


class Warehouse(Protocol):
    """Files by category and day. Calls are complete on return, may be repeated, and come from several threads.

    All raise WarehouseError.
    """

    @property
    def location(self) -> str:
        """Where Spark finds the root."""
        ...

    def write(self, file: StoredFile, content: bytes) -> None:
        """Store a file durably. Readers see it whole or not at all; one of that name is replaced at once."""
        ...

    def read(self, file: StoredFile) -> bytes:
        """Return what is stored."""
        ...

    def files(self, category: str) -> list[StoredFile]:
        """Return the files of a category, sorted; none where nothing was ever written."""
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

    def write(self, file: StoredFile, content: bytes) -> None:
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

    def read(self, file: StoredFile) -> bytes:
        """Return what is stored."""
        with _explained(f"{self._root / file.path} was not read"):
            return (self._root / file.path).read_bytes()

    def files(self, category: str) -> list[StoredFile]:
        """Return the files of a category, sorted."""
        folder = self._root / folder_of(category)
        with _explained(f"{folder} was not listed"):
            found = [StoredFile.parse(category, path.parent.name, path.name) for path in folder.glob("ds=*/*")]
        return sorted(filter(None, found))


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
            from .hdfs_warehouse import HdfsWarehouse  # noqa: PLC0415 - its client is slow to import and seldom needed

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
