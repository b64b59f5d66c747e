"""The seam to a shard's state, and the in-memory implementation of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..processors.keyed_state.changes import Changes, MergeChanges
from ..processors.shard.position import Offsets, StatePosition


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


@dataclass(frozen=True)
class Delta:
    """What one checkpoint does to a shard.

    Args:
        before: the group's committed offsets when the checkpoint began.
        after: the position of the state with the changes.
        changes: what changed between them.
    """

    before: Offsets
    after: StatePosition
    changes: Changes


@dataclass(frozen=True)
class Outbox:
    """Outputs that were saved with the state, to be sent from there.

    Args:
        before: the group's committed offsets when the checkpoint began.
        after: the position of the state whose changes caused the outputs.
        messages: category, key and value of each, in order.
    """

    before: Offsets
    after: StatePosition
    messages: Sequence[tuple[str, bytes | None, bytes | None]]


class ShardState(Protocol):
    """One shard's saved state and the position it reflects. One thread; durable on return; every call repeatable."""

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key, None where there is none."""
        ...

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first saved keys from `start` up to, not including, `end`, with their values, in order of keys.

        A store that others read has no order: it gives nothing.
        """
        ...

    def position(self) -> StatePosition:
        """Return the saved position; empty before the first save."""
        ...

    def save(self, changes: Changes) -> None:
        """Save changes of state, all or none."""
        ...

    def save_position(self, position: StatePosition) -> None:
        """Update the position that the state reflects; what `position` lacks stays."""
        ...

    def save_together(self, changes: Changes, position: StatePosition) -> None:
        """Save changes and the position that reflects them as one: both or neither."""
        ...

    def close(self) -> None:
        """Let go of the store, so that another process may open it. May be repeated."""
        ...


class LocalState(ShardState, Protocol):
    """State beside the worker. A delta is prepared, then decided elsewhere, then applied or discarded."""

    def prepare(self, delta: Delta) -> None:
        """Keep a delta beside the state, in place of one that was prepared before."""
        ...

    def prepared(self) -> Delta | None:
        """Return the delta that waits for its decision."""
        ...

    def apply(self) -> None:
        """Make the prepared delta part of the state, with its position; nothing where there is none.

        Durable with the next `prepare` at the latest: until then a crash of the machine leaves it prepared.
        """
        ...

    def discard(self) -> None:
        """Drop the prepared delta; nothing where there is none."""
        ...

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Return what is saved, in order of keys, from a key on."""
        ...

    def clear(self) -> None:
        """Drop all values, and of the position all but the maintenance number. The position goes first: after a crash in between, clear again."""
        ...


class RemoteState(ShardState, Protocol):
    """State in a store that others can read. Whoever opened it last owns it; every write of an older owner is refused.

    Every call that writes may raise `StoreFenced`. `save_together` and `save_with_outbox` take effect once, however often a
    lost connection makes them be tried.
    """

    def save_with_outbox(self, changes: Changes, outbox: Outbox) -> None:
        """Save changes, the position at which the outbox ends, and the outbox, as one."""
        ...

    def outbox(self) -> Outbox | None:
        """Return the outbox that was saved and not cleared."""
        ...

    def clear_outbox(self) -> None:
        """Drop the outbox."""
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


def _later(_: bytes, later: bytes) -> bytes:
    return later


class MemoryShardState:
    """State that lives as long as the object; `close` keeps it, as closing a file does. Local and remote in one.

    Args:
        join: what a saved value and a change of it amount to: by default the change.
    """

    def __init__(self, join: MergeChanges = _later) -> None:
        self._join = join
        self._outbox: Outbox | None = None
        self._values: dict[bytes, bytes] = {}
        self._position = StatePosition()
        self._prepared: Delta | None = None

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key, None where there is none."""
        return [self._values.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first saved keys of a range, with their values, in order of keys."""
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
        """Keep a delta beside the state."""
        self._prepared = delta

    def prepared(self) -> Delta | None:
        """Return the delta that waits for its decision."""
        return self._prepared

    def apply(self) -> None:
        """Make the prepared delta part of the state."""
        if self._prepared is not None:
            self.save_together(self._prepared.changes, self._prepared.after)
            self._prepared = None

    def discard(self) -> None:
        """Drop the prepared delta."""
        self._prepared = None

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Return what is saved, in order of keys, from a key on."""
        return iter([(key, self._values[key]) for key in sorted(self._values) if key >= start])

    def clear(self) -> None:
        """Drop all values, and of the position all but the maintenance number."""
        self._position = StatePosition(maintenance_number=self._position.maintenance_number)
        self._values.clear()

    def save_with_outbox(self, changes: Changes, outbox: Outbox) -> None:
        """Save changes, position and outbox."""
        self.save_together(changes, outbox.after)
        self._outbox = outbox

    def outbox(self) -> Outbox | None:
        """Return the outbox."""
        return self._outbox

    def clear_outbox(self) -> None:
        """Drop the outbox."""
        self._outbox = None

    def close(self) -> None:
        """Keep what there is."""


class MemoryStateFolder:
    """States of shards in memory; a reopened shard finds what it saved.

    Args:
        join: what a saved value and a change of it amount to: by default the change.
    """

    def __init__(self, join: MergeChanges = _later) -> None:
        self._join = join
        self._shards: dict[ShardIdentity, MemoryShardState] = {}

    def open(self, identity: ShardIdentity) -> MemoryShardState:
        """Open a shard's state."""
        return self._shards.setdefault(identity, MemoryShardState(self._join))
