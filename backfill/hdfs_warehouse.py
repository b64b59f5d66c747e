"""A warehouse on HDFS: written over WebHDFS, read by Spark over RPC."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from posixpath import dirname, join
from urllib.parse import urlsplit

from hdfs import HdfsError, InsecureClient

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
        self._location = location.rstrip("/")
        self._root = urlsplit(self._location).path
        self._webhdfs = webhdfs
        user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self._client = _Client(webhdfs, user=user, timeout=ANSWER_LIMIT_S)

    @property
    def location(self) -> str:
        """Where Spark finds the root."""
        return self._location

    def write(self, file: StoredFile, content: bytes) -> None:
        """Store a file durably: written aside, then renamed over one of that name in one step of the NameNode."""
        target = join(self._root, file.path)
        aside = join(dirname(target), aside_name(target.rpartition("/")[2]))
        with self._explained(f"{target} was not written"):
            try:
                self._client.write(aside, content)
                self._client.replace(aside, target)
            except BaseException:
                with suppress(HdfsError, OSError):
                    self._client.delete(aside)
                raise

    def read(self, file: StoredFile) -> bytes:
        """Return what is stored."""
        path = join(self._root, file.path)
        with self._explained(f"{path} was not read"), self._client.read(path) as stored:
            content: bytes = stored.read()
            return content

    def files(self, category: str) -> list[StoredFile]:
        """Return the files of a category, sorted."""
        folder = join(self._root, folder_of(category))
        with self._explained(f"{folder} was not listed"):
            if self._client.status(folder, strict=False) is None:
                return []
            found = [
                StoredFile.parse(category, day, name)
                for day in self._client.list(folder)
                if day.startswith("ds=")
                for name in self._client.list(join(folder, day))
            ]
        return sorted(filter(None, found))

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (HdfsError, OSError) as error:  # the client's own, and those of the HTTP library under it
            reason = str(error).partition("\n")[0]
            raise WarehouseError(
                f"{what}: {type(error).__name__}: {reason}. What is in the warehouse is whole. WebHDFS was asked at "
                f"{self._webhdfs}; mend the address or the service and run again."
            ) from error


class _Client(InsecureClient):  # type: ignore[misc]  # the package has no types
    """The client, with a rename that replaces: its own leaves a moment in which no file is there."""

    def replace(self, source: str, target: str) -> None:
        self._rename(source, destination=target, renameoptions="OVERWRITE")
