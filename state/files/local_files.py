"""A file store in a local or mounted folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...processors import file_remedy
from ..errors import FileMissing, FileStoreRefuses, FileStoreUnreachable
from .durable import sync_folder, temporary_name

CHUNK_BYTES = 2**20
_REFUSALS = frozenset(
    {errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS}
)
"""Errors of paths and rights, which remain until a person corrects them."""


class LocalFileStore:
    """A folder on this machine, or a mounted one.

    Args:
        root: the folder; the first write creates it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    def location(self) -> str:
        """The root as a path."""
        return str(self._root)

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file: write a temporary one, then rename it."""
        target = self._root / path
        with _translated_errors(f"{target} was not written"):
            with _temporary(target, chunks) as temporary:
                temporary.replace(target)
            sync_folder(target.parent)

    def create(self, path: str, content: bytes) -> bool:
        """Store a file unless the path exists: write a temporary one, then link it to the path."""
        target = self._root / path
        with _translated_errors(f"{target} was not written"):
            with _temporary(target, [content]) as temporary:
                try:
                    os.link(temporary, target)
                except FileExistsError:
                    return False
            sync_folder(target.parent)
            return True

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        target = self._root / path
        with _translated_errors(f"{target} was not read"):
            try:
                with target.open("rb") as file:
                    file.seek(start)
                    while chunk := file.read(CHUNK_BYTES):
                        yield chunk
            except FileNotFoundError as error:
                raise FileMissing(f"{target} does not exist.") from error

    def list_folder(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of the files in a folder."""
        with _translated_errors(f"{self._root / folder} was not listed"):
            return _sizes(self._root / folder) if (self._root / folder).exists() else {}

    def tags(self, folder: str) -> dict[str, str]:
        """Return the number, size and time of each file in a folder."""
        with _translated_errors(f"{self._root / folder} was not listed"):
            return _tags(self._root / folder) if (self._root / folder).exists() else {}

    def delete(self, path: str) -> None:
        """Delete a file."""
        target = self._root / path
        with _translated_errors(f"{target} was not deleted"):
            if target.parent.is_dir():
                target.unlink(missing_ok=True)
                sync_folder(target.parent)


@contextmanager
def _temporary(target: Path, chunks: Iterable[bytes]) -> Iterator[Path]:
    """Write a temporary file beside a target, durably; delete it at the end if it was not renamed."""
    _make_folder(target.parent)
    temporary = target.with_name(temporary_name(target.name))
    try:
        with temporary.open("wb") as out:
            out.writelines(chunks)
            out.flush()
            os.fsync(out.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def _sizes(folder: Path) -> dict[str, int | None]:
    sizes: dict[str, int | None] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # renamed or deleted since the scan
                sizes[entry.name] = None if entry.is_dir() else entry.stat().st_size
    return sizes


def _tags(folder: Path) -> dict[str, str]:
    tags: dict[str, str] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # renamed or deleted since the scan
                if not entry.is_dir():
                    found = entry.stat()
                    tags[entry.name] = f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"
    return tags


@contextmanager
def _translated_errors(failure: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        refuses = error.errno in _REFUSALS
        raise (FileStoreRefuses if refuses else FileStoreUnreachable)(
            f"{failure}: {error.strerror or error}. Files stored earlier are intact. {file_remedy(error)}"
        ) from error
