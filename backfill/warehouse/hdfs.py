"""A warehouse on HDFS: written over WebHDFS, read by Spark over RPC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...state.files.webhdfs import HdfsFolder, NoSuchFile, WebHdfsError
from ..errors import NotStored, WarehouseError
from .layout import Stored, aside_name

ANSWER_LIMIT_S = 60.0


class HdfsWarehouse:
    """A folder on HDFS.

    Args:
        location: ``hdfs://host:port/path``, with the address that Spark uses.
        webhdfs: the address of WebHDFS, ``http://host:port``.
    """

    def __init__(self, location: str, webhdfs: str) -> None:
        self._webhdfs = webhdfs
        self._folder = HdfsFolder(location, webhdfs, answer_limit_s=ANSWER_LIMIT_S, aside_name=aside_name)

    def __reduce__(self) -> tuple[type[HdfsWarehouse], tuple[str, str]]:
        """A task that is told of it opens connections of its own."""
        return HdfsWarehouse, (self.location, self._webhdfs)

    @property
    def location(self) -> str:
        """Where Spark finds the root."""
        return self._folder.location

    def write(self, file: Stored, content: bytes) -> None:
        """Store a file durably."""
        with _explained():
            self._folder.put(file.path, [content])

    def create(self, file: Stored, content: bytes) -> bool:
        """Store a file durably where there is none."""
        with _explained():
            return self._folder.create(file.path, content)

    def read(self, file: Stored, start: int = 0) -> bytes:
        """Return what is stored, from a byte on."""
        with _explained():
            try:
                return b"".join(self._folder.read(file.path, start))
            except NoSuchFile as error:
                raise NotStored(str(error)) from error

    def remove(self, file: Stored) -> None:
        """Remove a file."""
        with _explained():
            self._folder.delete(file.path)

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of what is in a folder."""
        with _explained():
            return self._folder.contents(folder)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except WebHdfsError as error:
        raise WarehouseError(f"{error} What is in the warehouse is whole; run again then.") from error
