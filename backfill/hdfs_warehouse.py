"""A warehouse on HDFS: written over WebHDFS, read by Spark over RPC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from posixpath import join

from ..state.webhdfs import HdfsFolder, WebHdfsError
from .errors import WarehouseError
from .layout import StoredFile, aside_name, folder_of

ANSWER_LIMIT_S = 60.0


class HdfsWarehouse:
    """A folder on HDFS.

    Args:
        location: ``hdfs://host:port/path``, with the address that Spark uses.
        webhdfs: the address of WebHDFS, ``http://host:port``.
    """

    def __init__(self, location: str, webhdfs: str) -> None:
        self._folder = HdfsFolder(location, webhdfs, answer_limit_s=ANSWER_LIMIT_S, aside_name=aside_name)

    @property
    def location(self) -> str:
        """Where Spark finds the root."""
        return self._folder.location

    def write(self, file: StoredFile, content: bytes) -> None:
        """Store a file durably."""
        with _explained():
            self._folder.put(file.path, [content])

    def read(self, file: StoredFile) -> bytes:
        """Return what is stored."""
        with _explained():
            return b"".join(self._folder.read(file.path))

    def files(self, category: str) -> list[StoredFile]:
        """Return the files of a category, sorted."""
        folder = folder_of(category)
        with _explained():
            found = [
                StoredFile.parse(category, day, name)
                for day in self._folder.contents(folder)
                if day.startswith("ds=")
                for name in self._folder.contents(join(folder, day))
            ]
        return sorted(filter(None, found))


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except WebHdfsError as error:
        raise WarehouseError(f"{error} What is in the warehouse is whole; run again then.") from error
