"""A file store on HDFS, over WebHDFS.

A write goes to a temporary file, which the NameNode renames in one step. So readers see a file whole or not at all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from posixpath import basename, dirname, join
from typing import Any
from urllib.parse import urlsplit

from hdfs import Client, HdfsError

from ..errors import FileMissing, FileStoreRefuses, FileStoreUnreachable
from .durable import temporary_name
from .hdfs_access import HdfsAccess, expect_configured, without_tokens
from .unreached_server import UnreachedServer
from .webhdfs_session import WebHdfsSession

CONNECT_LIMIT_S = 5.0
ANSWER_LIMIT_S = 30.0
_CHUNK_BYTES = 2**20
_EXISTS = "FileAlreadyExistsException"
_DENIED = "AccessControlException"
_MISSING = "FileNotFoundException"
_FOLDER = "DIRECTORY"
_OR_ITS_EXPIRY = ", and the token, which may have expired"
_CLIENT_ERRORS = (HdfsError, OSError, KeyError, ValueError)
"""Errors of the client, of its HTTP library, and of parsing answers that are not from WebHDFS."""


class HdfsFileStore:
    """A folder on HDFS. Each thread has its own connections.

    Args:
        location: ``hdfs://host:port/path``; only the path is used here.
        webhdfs: the WebHDFS address, ``http://host:port``.

    Raises:
        FileStoreRefuses: the configuration lacks a value for HDFS.
    """

    def __init__(self, location: str, webhdfs: str) -> None:
        expect_configured()
        self._location = location.rstrip("/")
        self._root = urlsplit(self._location).path
        self._webhdfs = webhdfs
        self._threads = threading.local()

    def __reduce__(self) -> tuple[type[HdfsFileStore], tuple[str, str]]:
        """A copy in another process opens its own connections."""
        return HdfsFileStore, (self._location, self._webhdfs)

    @property
    def location(self) -> str:
        """The root as a URL."""
        return self._location

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file."""
        target = self._path(path)
        with self._translated_errors(f"{target} was not written"), self._temporary(target, chunks) as temporary:
            self._client.replace(temporary, target)

    def create(self, path: str, content: bytes) -> bool:
        """Store a file unless the path exists."""
        target = self._path(path)
        with self._translated_errors(f"{target} was not written"), self._temporary(target, [content]) as temporary:
            is_new = self._client.rename_if_absent(temporary, target)
            if not is_new:
                self._client.delete(temporary)
            return is_new

    @contextmanager
    def _temporary(self, target: str, chunks: Iterable[bytes]) -> Iterator[str]:
        """Write a temporary file beside a target. If the block fails, delete the file, so that a late rename request finds nothing."""
        temporary = join(dirname(target), temporary_name(basename(target)))
        try:
            self._client.write(temporary, iter(chunks))
            yield temporary
        except BaseException:
            # A DataNode may create the file even later; readers skip it.
            with suppress(*_CLIENT_ERRORS):
                self._client.delete(temporary)
            raise

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        target = self._path(path)
        with self._translated_errors(f"{target} was not read"):
            try:
                with self._client.read(target, offset=start, chunk_size=_CHUNK_BYTES) as chunks:
                    yield from self._client.received(chunks)
            except HdfsError as error:
                if error.exception == _MISSING:
                    raise FileMissing(f"{target} does not exist.") from error
                raise

    def list_folder(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of the files in a folder."""
        return {
            status["pathSuffix"]: None if status["type"] == _FOLDER else status["length"]
            for status in self._statuses(folder)
        }

    def tags(self, folder: str) -> dict[str, str]:
        """Return the number, size and time of each file in a folder."""
        return {
            status["pathSuffix"]: f"{status['fileId']}-{status['length']}-{status['modificationTime']}"
            for status in self._statuses(folder)
            if status["type"] != _FOLDER
        }

    def _statuses(self, folder: str) -> list[dict[str, Any]]:
        with self._translated_errors(f"{self._path(folder)} was not listed"):
            try:
                return self._client.statuses(self._path(folder))
            except HdfsError as error:
                if error.exception == _MISSING:
                    return []
                raise

    def delete(self, path: str) -> None:
        """Delete a file."""
        with self._translated_errors(f"{self._path(path)} was not deleted"):
            self._client.delete(self._path(path))

    def _path(self, path: str) -> str:
        return join(self._root, path).rstrip("/")

    @property
    def _client(self) -> _Client:
        access = HdfsAccess.current()
        client: _Client | None = getattr(self._threads, "client", None)
        if client is None or client.access != access:
            client = self._threads.client = _Client(self._webhdfs, access)
        return client

    @contextmanager
    def _translated_errors(self, failure: str) -> Iterator[None]:
        try:
            yield
        except _CLIENT_ERRORS as error:
            # The traceback of an error with a token would show it.
            cause = error if without_tokens(str(error)) == str(error) else None
            raise self._translated(failure, error) from cause

    def _translated(self, failure: str, error: Exception) -> FileStoreUnreachable | FileStoreRefuses:
        unreached = UnreachedServer.of(error)
        if unreached is not None:
            return FileStoreUnreachable(
                f"{failure}: {unreached.problem}. Files stored earlier are intact. {self._advice(unreached)}"
            )
        reason = without_tokens(str(error).partition("\n")[0])
        is_denied = isinstance(error, HdfsError) and error.exception == _DENIED
        return (FileStoreRefuses if is_denied else FileStoreUnreachable)(
            f"{failure}: {type(error).__name__}: {reason}. Files stored earlier are intact. Check the service and its WebHDFS "
            f"address, {self._webhdfs}{_OR_ITS_EXPIRY if HdfsAccess.current().token else ''}."
        )

    def _advice(self, unreached: UnreachedServer) -> str:
        """Return what to do about a server that was not reached."""
        address = urlsplit(self._webhdfs)
        if (unreached.host, unreached.port) != (address.hostname, address.port):
            return "It is the DataNode that WebHDFS names for this file: start it, or make its name and port reachable from this machine."
        remedy = "Make the name known to this machine" if unreached.is_unknown else "Start the NameNode"
        return f"{remedy}, or correct the WebHDFS address, {self._webhdfs} (--webhdfs; by default port 9870 of the location's host)."


class _Client(Client):  # type: ignore[misc]  # the package has no types
    """The client, with an atomic replacing rename and a listing in one request. Its own rename leaves a moment without a file.

    Args:
        webhdfs: the WebHDFS address.
        access: its identity, and the certificates that it trusts.
    """

    def __init__(self, webhdfs: str, access: HdfsAccess) -> None:
        super().__init__(webhdfs, timeout=(CONNECT_LIMIT_S, ANSWER_LIMIT_S), session=access.session(ANSWER_LIMIT_S))
        self.access = access

    def _request(self, method: str, url: str, **kwargs: Any) -> Any:
        # Of the session, the certificates would yield to those of an environment variable.
        return super()._request(method, url, **({"verify": self.access.ca} if self.access.ca else {}), **kwargs)

    def received(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        session: WebHdfsSession = self._session
        return session.received(chunks)

    def replace(self, source: str, target: str) -> None:
        self._rename(source, destination=target, renameoptions="OVERWRITE")

    def rename_if_absent(self, source: str, target: str) -> bool:
        """Rename a file unless the target exists; return whether it was renamed."""
        try:
            self._rename(source, destination=target, renameoptions="NONE")
        except HdfsError as error:
            if error.exception == _EXISTS:
                return False
            raise
        return True

    def statuses(self, folder: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._list_status(folder).json()["FileStatuses"]["FileStatus"]
        return found
