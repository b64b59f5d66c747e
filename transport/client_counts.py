"""Counts of this process's clients of the bus."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakSet


@dataclass
class ClientCounts:
    """Counts of the process.

    Args:
        replaced: clients that were replaced since its start, because they had no answer for long although a new client had one.
        kept: the keepers of open clients.
    """

    replaced: int = 0
    kept: WeakSet[object] = field(default_factory=WeakSet)

    @property
    def open(self) -> int:
        """The number of open clients, without those of a few requests."""
        return len(self.kept)


CLIENT_COUNTS = ClientCounts()
"""The counts of this process."""
