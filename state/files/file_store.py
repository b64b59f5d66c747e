"""The file store protocol: files that appear whole or not at all, for backups and the warehouse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from ..addresses import is_http_address, split_address
from ..errors import BadStoreAddress
from .local_files import LocalFileStore


class FileStore(Protocol):
    """Files below one root, by relative paths with slashes.

    Any thread and any process may call. Every call is durable on return, can be repeated, and ends within a time limit. A call takes
    effect at one moment between its start and its return, for all processes at once. A call that raises FileStoreUnreachable may or may not
    have taken effect; an effect comes before a later call on the same file returns.

    An interrupted write can leave a file with a temporary name, which begins with a dot. Spark and other readers skip such files.
    """

    @property
    def location(self) -> str:
        """The root, as a path or URL."""
        ...

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file. It replaces a file of the same path in one step. If `chunks` raises, nothing changes."""
        ...

    def create(self, path: str, content: bytes) -> bool:
        """Store a file unless the path exists. Return whether the file is new; at most one of all callers gets True."""
        ...

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a file, from byte `start` on. `start` must be less than the file's size.

        Raises:
            FileMissing: there is no such file.
        """
        ...

    def list_folder(self, folder: str) -> dict[str, int | None]:
        """Return the size in bytes of each file in a folder by name, and None for each subfolder. A missing folder is empty.

        The result includes every file that exists before and after the call. It may include a file that appears or disappears meanwhile.
        """
        ...

    def tags(self, folder: str) -> dict[str, str]:
        """Return a tag of each file in a folder by name: another one whenever the file has been replaced. A missing folder is empty."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        ...


def open_file_store(location: str | Path, webhdfs: str | None = None) -> FileStore:
    """Return the store at a location, without connecting to it.

    Args:
        location: a folder, or ``hdfs://host:port/path`` with the RPC port of the NameNode.
        webhdfs: the WebHDFS address of an HDFS location; ``http://host:9870`` by default.

    Raises:
        BadStoreAddress: the location is incomplete or of another kind.
        FileStoreRefuses: the configuration lacks a value for HDFS.
    """
    if isinstance(location, Path):
        return LocalFileStore(location)
    parts = split_address(location)
    if parts is None:
        raise BadStoreAddress(
            f"{location} has an open bracket or an impossible port. Nothing was read or written. Use a folder or hdfs://host:port/path, with an IPv6 "
            "address in brackets: hdfs://[::1]:8020/path."
        )
    match parts.scheme:
        case "hdfs":
            from .hdfs_files import HdfsFileStore  # noqa: PLC0415 - its client is slow to import and rarely needed

            if not parts.hostname or not parts.path.strip("/"):
                raise BadStoreAddress(
                    f"{location} is incomplete. Nothing was read or written. Use hdfs://host:port/path, with the RPC port of the NameNode "
                    "and a path below the root."
                )
            return HdfsFileStore(location, _webhdfs(parts.hostname, webhdfs))
        case "file" | "":
            return LocalFileStore(Path(parts.path if parts.scheme else location))
        case other:
            raise BadStoreAddress(
                f"{location}: {other} is not supported. Nothing was read or written. Use a folder or hdfs://host:port/path."
            )


def _webhdfs(host: str, address: str | None) -> str:
    """Return the WebHDFS address: as named, or the default of the NameNode's host."""
    if not address:
        return f"http://[{host}]:9870" if ":" in host else f"http://{host}:9870"
    if is_http_address(address):
        return address
    raise BadStoreAddress(
        f"{address} is no address of WebHDFS. Nothing was read or written. Use --webhdfs http://host:9870, with an IPv6 address in brackets: http://[::1]:9870."
    )
