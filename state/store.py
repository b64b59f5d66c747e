"""The seam to a shard's state, and the in-memory implementation of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..processors.cores import Changes

Offsets = dict[str, int]
"""Next unread offset by input category, for the one bucket number that a shard works on."""


@dataclass(frozen=True)
class ShardIdentity:
    """Whose state it is; state is never opened under another identity.

    Args:
        processor: the processor's name.
        bucket: the bucket number the shard works on.
        shape: what the saved bytes mean: the kind, the state's or monoid's type, the window.
    """

    processor: str
    bucket: int
    shape: str


class ShardState(Protocol):
    """One shard's saved state and the position it reflects. One thread; durable on return; every call repeatable."""

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key, None where there is none."""
        ...

    def position(self) -> Offsets:
        """Return the saved position; empty before the first save."""
        ...

    def save(self, changes: Changes) -> None:
        """Save changes of state, all or none."""
        ...

    def save_position(self, position: Offsets) -> None:
        """Save the position that the state reflects."""
        ...

    def close(self) -> None:
        """Let go of the store, so that another process may open it. May be repeated."""
        ...


class StateFolder(Protocol):
    """Where the states of a processor's shards are."""

    def open(self, identity: ShardIdentity) -> ShardState:
        """Open a shard's state, empty where there is none yet.

        Raises:
            ForeignState: what is there is another shard's.
            StateInUse: another process has it open.
            StateUnwritable: the disk refuses.
        """
        ...


class MemoryShardState:
    """State that lives as long as the object; `close` keeps it, as closing a file does."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._position: Offsets = {}

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key, None where there is none."""
        return [self._values.get(key) for key in keys]

    def position(self) -> Offsets:
        """Return the saved position; empty before the first save."""
        return dict(self._position)

    def save(self, changes: Changes) -> None:
        """Save changes of state."""
        for key, value in changes.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def save_position(self, position: Offsets) -> None:
        """Save the position."""
        self._position.update(position)

    def close(self) -> None:
        """Keep what there is."""


class MemoryStateFolder:
    """States of shards in memory; a reopened shard finds what it saved."""

    def __init__(self) -> None:
        self._shards: dict[ShardIdentity, MemoryShardState] = {}

    def open(self, identity: ShardIdentity) -> MemoryShardState:
        """Open a shard's state."""
        return self._shards.setdefault(identity, MemoryShardState())


def shard_folder(root: Path, identity: ShardIdentity) -> Path:
    """Return the folder of a shard's state below `root`."""
    return root / identity.processor / f"{identity.bucket:05d}"
