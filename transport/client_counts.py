"""Counts of this process's clients of the bus."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ClientCounts:
    """Counts since the start of the process.

    Args:
        replaced: clients that were replaced, because they had no answer for long although a new client had one.
    """

    replaced: int = 0


CLIENT_COUNTS = ClientCounts()
"""The counts of this process."""
