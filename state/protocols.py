"""Protocols of a shard's state, with an implementation in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..processors.keyed_state import Changes, MergeChanges
from ..processors.shard import HeldOutput, Offsets, StatePosition


@dataclass(frozen=True)
class ShardIdentity:
    """The identity of a state, which is never opened under another one.

    Args:
        processor: the processor's name.
        bucket: the shard's bucket number.
        shape: the type of the saved bytes: the processor's kind, the type of its state or monoid, the window.
    """

    processor: str
    bucket: int
    shape: str

    def __str__(self) -> str:
        return f"bucket {self.bucket} of {self.processor} ({self.shape})"


@dataclass(frozen=True)
class Delta:
    """The change of a shard by one checkpoint.

    Args:
        before: the group's committed offsets when the checkpoint began.
        after: the position of the state with the changes.
        changes: the changes between them.
    """

    before: Offsets
    after: StatePosition
    changes: Changes


@dataclass(frozen=True)
class Outbox:
    """Outputs that are saved with the state, and sent from there.

    Args:
        before: the group's committed offsets when the checkpoint began.
        after: the position of the state whose changes caused the outputs.
        messages: the outputs, in order.
    """

    before: Offsets
    after: StatePosition
    messages: Sequence[HeldOutput]


class ShardState(Protocol):
    """A shard's saved state and its position. For one thread; calls are durable on return and repeatable."""

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key; None without one."""
        ...

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first saved keys from `start` up to, not including, `end`, with their values, in key order.

        A remote store is unordered and returns nothing.
        """
        ...

    def position(self) -> StatePosition:
        """Return the saved position; empty before the first save."""
        ...

    def save(self, changes: Changes) -> None:
        """Save changes of state, all or none."""
        ...

    def save_position(self, position: StatePosition) -> None:
        """Update the position that the state reflects; fields that `position` lacks stay."""
        ...

    def save_together(self, changes: Changes, position: StatePosition) -> None:
        """Save changes and the position that reflects them as one: both or neither."""
        ...

    def close(self) -> None:
        """Close the state, so that another process can open it. May be repeated."""
        ...


class LocalState(ShardState, Protocol):
    """A state on the worker's disk. A delta is prepared, and applied or discarded after its checkpoint is decided elsewhere."""

    def prepare(self, delta: Delta) -> None:
        """Store a delta beside the state, in place of an earlier prepared one."""
        ...

    def prepared(self) -> Delta | None:
        """Return the prepared delta that is not decided yet."""
        ...

    def apply(self) -> None:
        """Apply the prepared delta to the state, with its position, if there is one.

        Durable with the next `prepare` at the latest. Until then, a crash of the machine leaves it prepared.
        """
        ...

    def discard(self) -> None:
        """Drop the prepared delta, if there is one."""
        ...

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the saved items in key order, from a key on."""
        ...

    def clear(self) -> None:
        """Drop all values, and the position except for its generation. The position is deleted first: after a crash in between, clear again."""
        ...


class RemoteState(ShardState, Protocol):
    """A state in a remote store. The latest opener owns it; the store refuses writes of former owners.

    Every write may raise `StoreFenced`. `save_together` and `save_with_outbox` take effect once, even if they are repeated after a
    lost connection.
    """

    def save_with_outbox(self, changes: Changes, outbox: Outbox) -> None:
        """Save changes, the outbox, and the position at its end atomically."""
        ...

    def outbox(self) -> Outbox | None:
        """Return the saved outbox, unless it was cleared."""
        ...

    def clear_outbox(self) -> None:
        """Clear the outbox."""
        ...


class StateFolder(Protocol):
    """The states of a processor's shards."""

    def open(self, identity: ShardIdentity) -> ShardState:
        """Open a shard's state; a missing one is created empty.

        Raises:
            ForeignState: the state belongs to another shard or type.
            StateInUse: another process has opened it.
            StateUnwritable: the disk refuses access.
        """
        ...


def _later(_: bytes, later: bytes) -> bytes:
    return later


class MemoryShardState:
    """A state that exists as long as the object, also after `close`. Both local and remote.

    Args:
        join: combines a saved value and its change; by default, the change replaces the value.
    """

    def __init__(self, join: MergeChanges = _later) -> None:
        self._join = join
        self._outbox: Outbox | None = None
        self._values: dict[bytes, bytes] = {}
        self._position = StatePosition()
        self._prepared: Delta | None = None

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key; None without one."""
        return [self._values.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first saved keys of a range, with their values, in key order."""
        return [(key, self._values[key]) for key in sorted(self._values) if start <= key < end][:limit]

    def position(self) -> StatePosition:
        """Return the saved position; empty before the first save."""
        return self._position

    def save(self, changes: Changes) -> None:
        """Save changes of state."""
        for key, value in changes.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = self._join(self._values[key], value) if key in self._values else value

    def save_position(self, position: StatePosition) -> None:
        """Save the position."""
        self._position = self._position.updated(position)

    def save_together(self, changes: Changes, position: StatePosition) -> None:
        """Save changes and position."""
        self.save(changes)
        self.save_position(position)

    def prepare(self, delta: Delta) -> None:
        """Store a delta beside the state."""
        self._prepared = delta

    def prepared(self) -> Delta | None:
        """Return the prepared delta that is not decided yet."""
        return self._prepared

    def apply(self) -> None:
        """Apply the prepared delta to the state."""
        if self._prepared is not None:
            self.save_together(self._prepared.changes, self._prepared.after)
            self._prepared = None

    def discard(self) -> None:
        """Drop the prepared delta."""
        self._prepared = None

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Return the saved items in key order, from a key on."""
        return iter([(key, self._values[key]) for key in sorted(self._values) if key >= start])

    def clear(self) -> None:
        """Drop all values, and the position except for its generation."""
        self._position = StatePosition(generation=self._position.generation)
        self._values.clear()

    def save_with_outbox(self, changes: Changes, outbox: Outbox) -> None:
        """Save changes, position and outbox."""
        self.save_together(changes, outbox.after)
        self._outbox = outbox

    def outbox(self) -> Outbox | None:
        """Return the outbox."""
        return self._outbox

    def clear_outbox(self) -> None:
        """Clear the outbox."""
        self._outbox = None

    def close(self) -> None:
        """Keep the state."""


class MemoryStateFolder:
    """States of shards in memory. A reopened shard keeps its state.

    Args:
        join: combines a saved value and its change; by default, the change replaces the value.
    """

    def __init__(self, join: MergeChanges = _later) -> None:
        self._join = join
        self._shards: dict[ShardIdentity, MemoryShardState] = {}

    def open(self, identity: ShardIdentity) -> MemoryShardState:
        """Open a shard's state."""
        return self._shards.setdefault(identity, MemoryShardState(self._join))
