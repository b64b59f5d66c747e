"""A file store and a warehouse in memory, and a file store that kills its user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from penstock.backfill.warehouse import Warehouse
from penstock.state import FileMissing
from penstock.state.files import FileStore
from penstock.state.files.wrappers import WrappedFileStore

T = TypeVar("T")


class MemoryFileStore:
    """A file store in memory."""

    location = "memory:"

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self._writes: Counter[str] = Counter()

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file."""
        self.stored[path] = b"".join(chunks)
        self._writes[path] += 1

    def create(self, path: str, content: bytes) -> bool:
        """Store a file unless it exists."""
        return self.stored.setdefault(path, content) is content

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        """Yield the content of a file from an offset."""
        if path not in self.stored:
            raise FileMissing(f"{path} does not exist.")
        yield self.stored[path][start:]

    def list_folder(self, folder: str) -> dict[str, int | None]:
        """Return the names in a folder with their sizes."""
        found: dict[str, int | None] = {}
        prefix = f"{folder}/" if folder else ""
        for path, content in list(self.stored.items()):
            if path.startswith(prefix):
                name, _, below = path.removeprefix(prefix).partition("/")
                found[name] = None if below else len(content)
        return found

    def tags(self, folder: str) -> dict[str, str]:
        """Return how often each file in a folder was written or deleted."""
        prefix = f"{folder}/" if folder else ""
        sizes = self.list_folder(folder)
        return {name: str(self._writes[prefix + name]) for name, size in sizes.items() if size is not None}

    def delete(self, path: str) -> None:
        """Remove a file."""
        self.stored.pop(path, None)
        self._writes[path] += 1


class MemoryWarehouse(Warehouse):
    """A warehouse in memory."""

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
    """The process was killed."""


class DyingFileStore(WrappedFileStore):
    """A file store that kills its user right before the n-th call."""

    def __init__(self, files: FileStore, calls: int) -> None:
        super().__init__(files)
        self._left = calls

    def _call(self, request: Callable[[], T]) -> T:
        self._left -= 1
        if self._left <= 0:
            raise Killed  # also for later calls of its threads
        return request()


def dying_warehouse(warehouse: Warehouse, calls: int) -> Warehouse:
    """Return a warehouse that kills its user right before the n-th call."""
    return Warehouse(DyingFileStore(warehouse.files, calls))
