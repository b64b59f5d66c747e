"""Backups on HDFS, over WebHDFS."""

from __future__ import annotations

import getpass
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from posixpath import dirname, join
from typing import Any
from urllib.parse import urlsplit

from hdfs import HdfsError, InsecureClient

from .errors import NotStored, PlaceUnreachable
from .places import CHUNK_BYTES, aside_name

CONNECT_LIMIT_S = 5.0
ANSWER_LIMIT_S = 30.0
_TAKEN = ("FileAlreadyExistsException", "AlreadyBeingCreatedException")
_MISSING = "FileNotFoundException"
_REFUSED = (HdfsError, OSError, KeyError, ValueError)
"""The client's own errors, those of the HTTP library under it, and what it makes of answers that are not WebHDFS's."""


class HdfsPlace:
    """A folder on HDFS.

    Args:
        location: ``hdfs://host:port/path``; only the path counts.
        webhdfs: the address of WebHDFS, ``http://host:port``.
    """

    def __init__(self, location: str, webhdfs: str) -> None:
        self._location = location.rstrip("/")
        self._root = urlsplit(self._location).path
        self._webhdfs = webhdfs
        self._threads = threading.local()

    @property
    def location(self) -> str:
        """Where the root is."""
        return self._location

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file: written aside, then renamed in one step of the NameNode."""
        target = self._path(path)
        aside = join(dirname(target), aside_name(target.rpartition("/")[2]))
        with self._explained(f"{target} was not written"):
            try:
                self._client.write(aside, iter(chunks))
                self._client.replace(aside, target)
            except BaseException:
                # A DataNode may make the file only after this; nobody reads it, and pruning removes it.
                with suppress(*_REFUSED):
                    self._client.delete(aside)
                raise

    def create(self, path: str, content: bytes) -> bool:
        """Take a name."""
        target = self._path(path)
        with self._explained(f"{target} was not written"):
            try:
                self._client.write(target, content, overwrite=False)
            except HdfsError as error:
                if error.exception in _TAKEN:
                    return False
                raise
            return True

    def read(self, path: str) -> Iterator[bytes]:
        """Give a file's bytes."""
        target = self._path(path)
        with self._explained(f"{target} was not read"):
            try:
                with self._client.read(target, chunk_size=CHUNK_BYTES) as chunks:
                    yield from chunks
            except HdfsError as error:
                if error.exception == _MISSING:
                    raise NotStored(f"{target} is not there.") from error
                raise

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of what is in a folder."""
        with self._explained(f"{self._path(folder)} was not listed"):
            try:
                return self._client.sizes(self._path(folder))
            except HdfsError as error:
                if error.exception == _MISSING:
                    return {}
                raise

    def delete(self, path: str) -> None:
        """Remove a file."""
        with self._explained(f"{self._path(path)} was not removed"):
            self._client.delete(self._path(path))

    def _path(self, path: str) -> str:
        return join(self._root, path).rstrip("/")

    @property
    def _client(self) -> _Client:
        """The thread's own client: they keep connections, which threads do not share well."""
        if not hasattr(self._threads, "client"):
            user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
            limits = CONNECT_LIMIT_S, ANSWER_LIMIT_S
            self._threads.client = _Client(self._webhdfs, user=user, timeout=limits)
        client: _Client = self._threads.client
        return client

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except _REFUSED as error:
            reason = str(error).partition("\n")[0]
            raise PlaceUnreachable(
                f"{what}: {type(error).__name__}: {reason}. Earlier backups are whole. WebHDFS was asked at {self._webhdfs}; mend "
                "the address or the service."
            ) from error


class _Client(InsecureClient):  # type: ignore[misc]  # the package has no types
    """The client, with a rename that replaces (its own leaves a moment without a file) and a listing in one request."""

    def replace(self, source: str, target: str) -> None:
        self._rename(source, destination=target, renameoptions="OVERWRITE")

    def sizes(self, folder: str) -> dict[str, int | None]:
        found: list[dict[str, Any]] = self._list_status(folder).json()["FileStatuses"]["FileStatus"]
        return {status["pathSuffix"]: None if status["type"] == "DIRECTORY" else status["length"] for status in found}
