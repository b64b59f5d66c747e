"""The seam to where backups are kept: files that appear whole or not at all; and a folder on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from ..files.durable import aside_name, sync_folder
from .errors import BackupError, BackupStoreUnreachable, NotStored

CHUNK_BYTES = 2**20


class BackupStore(Protocol):
    """Files below one root, by relative paths with slashes. Durable on return; any thread may call; nothing waits for ever.

    Every call may be repeated, and raises BackupStoreUnreachable where the place does not answer or refuses. A `put` that did not
    come to its end may leave something, under a name that `aside_name` gave; pruning removes it.
    """

    @property
    def location(self) -> str:
        """Where the root is, for messages."""
        ...

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file: it appears whole, in place of one of that name, or not at all, as when `chunks` raises."""
        ...

    def create(self, path: str, content: bytes) -> bool:
        """Take a name: of all who ever try, one is told True. The content may be missing where that one was killed."""
        ...

    def read(self, path: str) -> Iterator[bytes]:
        """Give a file's bytes, from the first.

        Raises:
            NotStored: there is no such file.
        """
        ...

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return what is in a folder: the size in bytes by name, None for folders; nothing where there is no folder."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file; nothing where there is none."""
        ...


class LocalBackupStore:
    """A folder on this machine, or one that is mounted here.

    Args:
        root: the folder; it is made when the first file is stored.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    def location(self) -> str:
        """Where the root is."""
        return str(self._root)

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file: written aside, then renamed."""
        target = self._root / path
        aside = target.with_name(aside_name(target.name))
        with _explained(f"{target} was not written"):
            _make_folder(target.parent)
            try:
                with aside.open("wb") as out:
                    out.writelines(chunks)
                    out.flush()
                    os.fsync(out.fileno())
                aside.replace(target)
            finally:
                aside.unlink(missing_ok=True)
            sync_folder(target.parent)

    def create(self, path: str, content: bytes) -> bool:
        """Take a name."""
        target = self._root / path
        with _explained(f"{target} was not written"):
            _make_folder(target.parent)
            try:
                with target.open("xb", buffering=0) as out:
                    out.write(content)
                    os.fsync(out.fileno())
            except FileExistsError:
                return False
            sync_folder(target.parent)
            return True

    def read(self, path: str) -> Iterator[bytes]:
        """Give a file's bytes."""
        stored = self._root / path
        with _explained(f"{stored} was not read"):
            try:
                with stored.open("rb") as source:
                    while chunk := source.read(CHUNK_BYTES):
                        yield chunk
            except FileNotFoundError as error:
                raise NotStored(f"{stored} is not there.") from error

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of what is in a folder."""
        with _explained(f"{self._root / folder} was not listed"):
            return dict(_sizes(self._root / folder))

    def delete(self, path: str) -> None:
        """Remove a file."""
        target = self._root / path
        with _explained(f"{target} was not removed"):
            if target.parent.is_dir():
                target.unlink(missing_ok=True)
                sync_folder(target.parent)


def open_backup_store(location: str, webhdfs: str | None = None) -> BackupStore:
    """Return the place at a location; it is not asked yet.

    Args:
        location: a folder, or ``hdfs://host:port/path``.
        webhdfs: for HDFS, the address of WebHDFS; by default ``http://host:9870``.

    Raises:
        BackupError: a location of another kind, or an incomplete one.
    """
    parts = urlsplit(location)
    match parts.scheme:
        case "hdfs":
            from .hdfs_store import HdfsBackupStore  # noqa: PLC0415 - its client is slow to import and seldom needed

            if not parts.hostname or not parts.path.strip("/"):
                raise BackupError(
                    f"{location} is not a whole location for backups: give hdfs://host:port/path, with a path of its own."
                )
            return HdfsBackupStore(location, webhdfs or f"http://{parts.hostname}:9870")
        case "file" | "":
            return LocalBackupStore(Path(parts.path if parts.scheme else location))
        case other:
            raise BackupError(
                f"{location}: backups are kept in a folder or on HDFS (hdfs://host:port/path); {other} is neither."
            )


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def _sizes(folder: Path) -> Iterator[tuple[str, int | None]]:
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            yield path.name, None if path.is_dir() else path.stat().st_size
        except FileNotFoundError:
            continue  # renamed or removed since it was listed


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackupStoreUnreachable(
            f"{what}: {error.strerror or error}. Earlier backups are whole. Mend the folder (place, rights, space, mount); it "
            "is tried again."
        ) from error
