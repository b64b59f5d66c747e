"""The warehouse: event files and notes by category and day, in a file store.

The archiver writes and reads them here. Spark reads the same files by their location.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...state import BadStoreAddress, FileMissing, FileStoreUnreachable
from ...state.files import FileStore, open_file_store
from ..errors import WarehouseError, WarehouseFileMissing
from .layout import Stored, folder_of

WRITERS = 8
"""The number of files that are read or written at a time."""


class Warehouse:
    """Files of a file store, by category and day. Calls are as safe as those of the store, and raise WarehouseError instead.

    Args:
        files: the store.
    """

    def __init__(self, files: FileStore) -> None:
        self.files = files

    @property
    def location(self) -> str:
        """The root as a URL for Spark."""
        root = self.files.location
        return f"file://{root}" if root.startswith("/") else root

    def write(self, file: Stored, content: bytes) -> None:
        """Store a file. It replaces a file of the same path in one step."""
        with _translated_errors():
            self.files.write(file.path, [content])

    def create(self, file: Stored, content: bytes) -> bool:
        """Store a file unless the path exists. Return whether the file is new; at most one of all callers gets True."""
        with _translated_errors():
            return self.files.create(file.path, content)

    def read(self, file: Stored, start: int = 0) -> bytes:
        """Return the content of a file, from byte `start` on.

        Raises:
            WarehouseFileMissing: there is no such file.
        """
        with _translated_errors():
            return b"".join(self.files.read(file.path, start))

    def delete(self, file: Stored) -> None:
        """Delete a file, if it exists."""
        with _translated_errors():
            self.files.delete(file.path)

    def has(self, category: str) -> bool:
        """Return whether a category is in the warehouse, with or without events."""
        return bool(self.list_folder(folder_of(category)))

    def list_folder(self, folder: str) -> dict[str, int | None]:
        """Return the size in bytes of each file in a folder by name, and None for each subfolder. A missing folder is empty."""
        with _translated_errors():
            return self.files.list_folder(folder)


def open_warehouse(location: str | Path, webhdfs: str | None = None) -> Warehouse:
    """Return the warehouse at a location, without connecting to it.

    Args:
        location: a folder, or ``hdfs://host:port/path`` with the RPC port of the NameNode, which Spark uses.
        webhdfs: the WebHDFS address of an HDFS location; ``http://host:9870`` by default.

    Raises:
        WarehouseError: the location is incomplete or of another kind.
    """
    with _translated_errors():
        return Warehouse(open_file_store(location, webhdfs))


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except FileMissing as error:
        raise WarehouseFileMissing(str(error)) from error
    except (BadStoreAddress, FileStoreUnreachable) as error:
        raise WarehouseError(str(error)) from error
