"""What a worker does with the changelog: each checkpoint is told to it, and a state that is behind is brought up from it."""

from __future__ import annotations

from collections.abc import Iterator

from ...processors.kinds import Processor
from ...state.checkpoints import Step, steps_of
from ...state.store import Offsets, ShardState
from ...transport.bus import Bucket, Bus, CategorySpec, Outgoing
from ...transport.changelog import changelog_spec, logged_changes, stretches
from .shard import Sealed


def changelog_of(processor: type[Processor]) -> CategorySpec | None:
    """Return the category that holds a processor's changelog; None where it needs none."""
    return changelog_spec(processor) if Step.LOG_CHANGES in steps_of(processor) else None


def logged(sealed: Sealed) -> Iterator[Outgoing]:
    """Give the messages that say what a checkpoint does to a shard."""
    return logged_changes(sealed.changes.items(), sealed.standing, sealed.number)


def replay(bus: Bus, changelog: str, number: int, state: ShardState) -> None:
    """Bring a state up to what the last committed checkpoint made of it.

    May be broken off anywhere and done again: the state's own position moves last.
    """
    begin = state.position().get(changelog, 0)
    position: Offsets = {}
    for changes, reached in stretches(bus, Bucket(changelog, number), begin):
        state.save(changes)
        position.update(reached)
    if position:
        state.save_position(position)
