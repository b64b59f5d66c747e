"""A warehouse in memory, and one whose user dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.backfill.errors import NotStored
from penstock.backfill.warehouse.layout import Stored
from penstock.backfill.warehouse.protocols import Warehouse

T = TypeVar("T")


class MemoryWarehouse:
    """A warehouse that lives as long as the object."""

    location = "memory:"

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def write(self, file: Stored, content: bytes) -> None:
        """Store a file."""
        self.stored[file.path] = content

    def create(self, file: Stored, content: bytes) -> bool:
        """Store a file where there is none."""
        return self.stored.setdefault(file.path, content) is content

    def read(self, file: Stored, start: int = 0) -> bytes:
        """Return what is stored, from a byte on."""
        if file.path not in self.stored:
            raise NotStored(f"{file.path} is not there.")
        return self.stored[file.path][start:]

    def remove(self, file: Stored) -> None:
        """Remove a file."""
        self.stored.pop(file.path, None)

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of what is in a folder."""
        found: dict[str, int | None] = {}
        for path, content in list(self.stored.items()):
            if path.startswith(f"{folder}/"):
                name, _, below = path.removeprefix(f"{folder}/").partition("/")
                found[name] = None if below else len(content)
        return found


class Killed(Exception):
    """The process died."""


class DyingWarehouse:
    """A warehouse whose user is killed right before its n-th call."""

    def __init__(self, warehouse: Warehouse, calls: int) -> None:
        self._warehouse = warehouse
        self._left = calls
        self.location = warehouse.location

    def write(self, file: Stored, content: bytes) -> None:
        """Store a file, or die."""
        self._call(lambda: self._warehouse.write(file, content))

    def create(self, file: Stored, content: bytes) -> bool:
        """Store a file where there is none, or die."""
        return self._call(lambda: self._warehouse.create(file, content))

    def read(self, file: Stored, start: int = 0) -> bytes:
        """Return what is stored, or die."""
        return self._call(lambda: self._warehouse.read(file, start))

    def remove(self, file: Stored) -> None:
        """Remove a file, or die."""
        self._call(lambda: self._warehouse.remove(file))

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return what is there, or die."""
        return self._call(lambda: self._warehouse.contents(folder))

    def _call(self, ask: Callable[[], T]) -> T:
        self._left -= 1
        if self._left <= 0:
            raise Killed  # and whatever else its threads still try
        return ask()
