"""A folder on HDFS, over WebHDFS: what backups and the warehouse keep there goes in and out here.

A file is written aside and renamed over its name in one step of the NameNode, so readers see it whole or not at all. Whatever
the client library says becomes one error, which each of the two tells its own callers in its own words.
"""

from __future__ import annotations

import getpass
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from posixpath import basename, dirname, join
from typing import Any
from urllib.parse import urlsplit

from hdfs import HdfsError, InsecureClient

from ...processors.errors import PenstockError

CONNECT_LIMIT_S = 5.0
_CHUNK_BYTES = 2**20
_TAKEN = "FileAlreadyExistsException"
_MISSING = "FileNotFoundException"
_REFUSED = (HdfsError, OSError, KeyError, ValueError)
"""The client's own errors, those of the HTTP library under it, and what it makes of answers that are not WebHDFS's."""


class WebHdfsError(PenstockError):
    """WebHDFS does not answer, or refuses; what was there is whole: mend the address or the service and try again."""


class NoSuchFile(WebHdfsError):
    """A file is not there."""


class HdfsFolder:
    """Files below one folder of HDFS, by relative paths with slashes.

    Calls are durable on return, may be repeated, come from any thread and do not wait for ever. All raise WebHdfsError.

    Args:
        location: ``hdfs://host:port/path``; only the path counts.
        webhdfs: the address of WebHDFS, ``http://host:port``.
        answer_limit_s: how long an answer is waited for.
        aside_name: gives a name to a file in the making; never the same twice, and readers pass over it.
    """

    def __init__(self, location: str, webhdfs: str, *, answer_limit_s: float, aside_name: Callable[[str], str]) -> None:
        self.location = location.rstrip("/")
        self._root = urlsplit(self.location).path
        self._webhdfs = webhdfs
        self._limits_s = CONNECT_LIMIT_S, answer_limit_s
        self._aside_name = aside_name
        self._threads = threading.local()

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file: it appears whole, in place of one of that name, or not at all, as when `chunks` raises."""
        target = self._path(path)
        with self._explained(f"{target} was not written"), self._aside(target, chunks) as aside:
            self._client.replace(aside, target)

    def create(self, path: str, content: bytes) -> bool:
        """Store a file where there is none of that name: it appears whole or not at all. Of all who ever try, one is told True."""
        target = self._path(path)
        with self._explained(f"{target} was not written"), self._aside(target, [content]) as aside:
            is_new = self._client.take_name(aside, target)
            if not is_new:
                self._client.delete(aside)
            return is_new

    @contextmanager
    def _aside(self, target: str, chunks: Iterable[bytes]) -> Iterator[str]:
        """Give a file beside a target with its content; without it, a request to rename that comes late renames nothing."""
        aside = join(dirname(target), self._aside_name(basename(target)))
        try:
            self._client.write(aside, iter(chunks))
            yield aside
        except BaseException:
            # A DataNode may make the file only after this; nobody reads it.
            with suppress(*_REFUSED):
                self._client.delete(aside)
            raise

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        """Give a file's bytes, from the first or another one on.

        Raises:
            NoSuchFile: there is no such file.
        """
        target = self._path(path)
        with self._explained(f"{target} was not read"):
            try:
                with self._client.read(target, offset=start, chunk_size=_CHUNK_BYTES) as chunks:
                    yield from chunks
            except HdfsError as error:
                if error.exception == _MISSING:
                    raise NoSuchFile(f"{target} is not there.") from error
                raise

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return what is in a folder: the size in bytes by name, None for folders; nothing where there is no folder."""
        with self._explained(f"{self._path(folder)} was not listed"):
            try:
                return self._client.sizes(self._path(folder))
            except HdfsError as error:
                if error.exception == _MISSING:
                    return {}
                raise

    def delete(self, path: str) -> None:
        """Remove a file; nothing where there is none."""
        with self._explained(f"{self._path(path)} was not removed"):
            self._client.delete(self._path(path))

    def _path(self, path: str) -> str:
        return join(self._root, path).rstrip("/")

    @property
    def _client(self) -> _Client:
        """The thread's own client: they keep connections, which threads do not share well."""
        if not hasattr(self._threads, "client"):
            user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
            self._threads.client = _Client(self._webhdfs, user=user, timeout=self._limits_s)
        client: _Client = self._threads.client
        return client

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except _REFUSED as error:
            reason = str(error).partition("\n")[0]
            raise WebHdfsError(
                f"{what}: {type(error).__name__}: {reason}. WebHDFS was asked at {self._webhdfs}; mend the address or the "
                "service."
            ) from error


class _Client(InsecureClient):  # type: ignore[misc]  # the package has no types
    """The client, with a rename that replaces (its own leaves a moment without a file) and a listing in one request."""

    def replace(self, source: str, target: str) -> None:
        self._rename(source, destination=target, renameoptions="OVERWRITE")

    def take_name(self, source: str, target: str) -> bool:
        """Rename a file unless there is one of that name; return whether there was none."""
        try:
            self._rename(source, destination=target, renameoptions="NONE")
        except HdfsError as error:
            if error.exception == _TAKEN:
                return False
            raise
        return True

    def sizes(self, folder: str) -> dict[str, int | None]:
        found: list[dict[str, Any]] = self._list_status(folder).json()["FileStatuses"]["FileStatus"]
        return {status["pathSuffix"]: None if status["type"] == "DIRECTORY" else status["length"] for status in found}
