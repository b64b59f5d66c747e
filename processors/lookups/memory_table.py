"""A table that is given as it stands: for tests, and for what never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .protocols import PreloadedTable


@dataclass(frozen=True)
class MemoryTable:
    """Rows by key, in this process; what changes in the mapping is seen by the next batch.

    Args:
        rows: the row of each key.
    """

    rows: Mapping[str, Any] = field(repr=False)

    def open(self) -> MemoryRows:
        """Return the rows."""
        return MemoryRows(self.rows)

    def __str__(self) -> str:
        return "a table in memory"


class MemoryRows(PreloadedTable):
    """Rows that are held as they are; there are none to take their place."""

    failed_loads = 0

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self._rows = rows

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the row of each key that has one."""
        return {key: self._rows[key] for key in keys if key in self._rows}

    def close(self) -> None:
        """Do nothing: there is nothing open."""
