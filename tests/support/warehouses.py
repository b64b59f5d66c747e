"""A file store in memory, a warehouse on it, and one whose user dies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from penstock.backfill.warehouse.warehouse import Warehouse
from penstock.state.errors import FileMissing
from penstock.state.files.file_store import FileStore
from penstock.state.files.wrappers import WrappedFileStore

T = TypeVar("T")


class MemoryFileStore:
    """A file store that lives as long as the object."""

    location = "memory:"

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file."""
        self.stored[path] = b"".join(chunks)

    def create(self, path: str, content: bytes) -> bool:
        """Store a file where there is none."""
        return self.stored.setdefault(path, content) is content

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        """Yield what is stored, from a byte on."""
        if path not in self.stored:
            raise FileMissing(f"{path} does not exist.")
        yield self.stored[path][start:]

    def list_folder(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of what is in a folder."""
        found: dict[str, int | None] = {}
        prefix = f"{folder}/" if folder else ""
        for path, content in list(self.stored.items()):
            if path.startswith(prefix):
                name, _, below = path.removeprefix(prefix).partition("/")
                found[name] = None if below else len(content)
        return found

    def delete(self, path: str) -> None:
        """Remove a file."""
        self.stored.pop(path, None)


class MemoryWarehouse(Warehouse):
    """A warehouse that lives as long as the object."""

    def __init__(self) -> None:
        self.memory = MemoryFileStore()
        super().__init__(self.memory)

    @property
    def stored(self) -> dict[str, bytes]:
        """The content of every file by path."""
        return self.memory.stored

    @stored.setter
    def stored(self, stored: dict[str, bytes]) -> None:
        self.memory.stored = stored


class Killed(Exception):
    """The process died."""


class DyingFileStore(WrappedFileStore):
    """A file store whose user is killed right before its n-th call."""

    def __init__(self, files: FileStore, calls: int) -> None:
        super().__init__(files)
        self._left = calls

    def _call(self, request: Callable[[], T]) -> T:
        self._left -= 1
        if self._left <= 0:
            raise Killed  # and whatever else its threads still try
        return request()


def dying_warehouse(warehouse: Warehouse, calls: int) -> Warehouse:
    """Return a warehouse whose user is killed right before its n-th call."""
    return Warehouse(DyingFileStore(warehouse.files, calls))
