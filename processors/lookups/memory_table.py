"""A lookup table in memory, for tests and for constant tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .protocols import PreloadedTable


@dataclass(frozen=True)
class MemoryTable:
    """A lookup source in memory. Changes of the mapping apply from the next batch on.

    Args:
        rows: the row of each key.

    Examples:
        >>> MemoryTable({"JFK": "New York"}).open().fetch(["JFK", "XXX"])
        {'JFK': 'New York'}
    """

    rows: Mapping[str, Any] = field(repr=False)

    def open(self) -> MemoryClient:
        """Return a client of the table."""
        return MemoryClient(self.rows)

    def __str__(self) -> str:
        return "a table in memory"


class MemoryClient(PreloadedTable):
    """The client of a `MemoryTable`. It never reloads."""

    failed_loads = 0

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self._rows = rows

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the row of each key that has one."""
        return {key: self._rows[key] for key in keys if key in self._rows}

    def close(self) -> None:
        """Do nothing."""
