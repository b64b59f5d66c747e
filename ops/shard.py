"""A shard: one processor at work on one bucket number of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..processors.cores import Core, Drained, open_core
from ..processors.kinds import Processor
from ..state.store import Offsets, ShardIdentity, ShardState, StateFolder
from ..transport.bus import Bucket, Position


@dataclass
class Shard:
    """A core, the saved state under it, and how far it has read.

    Args:
        number: the bucket number, the same in every input.
        core: the processor's step.
        state: its saved state; None for a stateless processor, whose position is the group's alone.
        position: next unread offset by input category.
    """

    number: int
    core: Core
    state: ShardState | None
    position: Offsets = field(default_factory=dict)
    _drained: Drained | None = None

    def drain(self) -> Drained:
        """Take what a checkpoint has to send and save."""
        self._drained = self.core.drain()
        return self._drained

    def save_state(self) -> None:
        """Save the changes that were drained last."""
        if self.state is not None and self._drained is not None:
            self.state.save(self._drained.changes)

    def save_position(self) -> None:
        """Save the position that the state reflects."""
        if self.state is not None:
            self.state.save_position(self.position)

    def positions(self) -> list[Position]:
        """Return the position in each input."""
        return [Position(Bucket(category, self.number), offset) for category, offset in self.position.items()]

    def close(self) -> None:
        """Let go of the state; what was not saved is dropped."""
        if self.state is not None:
            self.state.close()


def open_shard(processor: Processor, number: int, states: StateFolder) -> Shard:
    """Open a shard at the position its state reflects."""
    shape = processor.state_shape()
    if shape is None:
        return Shard(number, open_core(processor, _NoState()), None)
    state = states.open(ShardIdentity(processor.name, number, shape))
    return Shard(number, open_core(processor, state), state, state.position())


class _NoState:
    """What is under a stateless shard."""

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return None for each key."""
        return [None] * len(keys)
