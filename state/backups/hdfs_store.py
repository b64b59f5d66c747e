"""Backups on HDFS, over WebHDFS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..files.durable import aside_name
from ..files.webhdfs import HdfsFolder, NoSuchFile, WebHdfsError
from .errors import BackupStoreUnreachable, NotStored

ANSWER_LIMIT_S = 30.0


class HdfsBackupStore:
    """A folder on HDFS.

    Args:
        location: ``hdfs://host:port/path``; only the path counts.
        webhdfs: the address of WebHDFS, ``http://host:port``.
    """

    def __init__(self, location: str, webhdfs: str) -> None:
        self._folder = HdfsFolder(location, webhdfs, answer_limit_s=ANSWER_LIMIT_S, aside_name=aside_name)

    @property
    def location(self) -> str:
        """Where the root is."""
        return self._folder.location

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file."""
        with _explained():
            self._folder.put(path, chunks)

    def create(self, path: str, content: bytes) -> bool:
        """Take a name."""
        with _explained():
            return self._folder.create(path, content)

    def read(self, path: str) -> Iterator[bytes]:
        """Give a file's bytes."""
        with _explained():
            yield from self._folder.read(path)

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of what is in a folder."""
        with _explained():
            return self._folder.contents(folder)

    def delete(self, path: str) -> None:
        """Remove a file."""
        with _explained():
            self._folder.delete(path)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except NoSuchFile as error:
        raise NotStored(str(error)) from error
    except WebHdfsError as error:
        raise BackupStoreUnreachable(f"{error} Earlier backups are whole.") from error
