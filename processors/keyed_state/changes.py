"""The saved state of a shard as its operator reads it, and the changes that the operator returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Changes = dict[bytes, "bytes | None"]
"""Encoded state by encoded key; None removes the key."""

MergeChanges = Callable[[bytes, bytes], bytes]
"""Merges an earlier and a later change of one key."""


class SavedValues(Protocol):
    """Saved values by key."""

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key; None for a key without a value."""
        ...


class StateReader(SavedValues, Protocol):
    """The saved state of one shard."""

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first saved keys from `start` up to, not including, `end`, with their values, in order of keys."""
        ...


class EmptyState:
    """The saved state of a new shard, or of a stateless one."""

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return None for each key."""
        return [None] * len(keys)

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:  # noqa: ARG002 - the protocol
        """Return nothing."""
        return []
