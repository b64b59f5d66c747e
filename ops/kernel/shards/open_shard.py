"""An open shard: its state, and the checkpoint steps that change it."""

from __future__ import annotations

from typing import cast

from ....processors.shard import CheckpointSnapshot, Shard, Step
from ....state import Delta, LocalState, Outbox, RemoteState, ShardState

OpenShard = Shard[ShardState]
OpenSnapshot = CheckpointSnapshot[ShardState]

_STATE_IS_SAVED = frozenset({Step.SAVE_STATE, Step.SAVE_TOGETHER, Step.SAVE_WITH_OUTBOX, Step.APPLY_STATE})


def save_step(step: Step, snapshot: OpenSnapshot) -> None:
    """Perform a step on the state of a shard; durable on return."""
    position, changes = snapshot.state_position, snapshot.changes
    match step:
        case Step.SAVE_STATE:
            saved(snapshot.state).save(changes)
        case Step.SAVE_POSITION:
            saved(snapshot.state).save_position(position)
        case Step.SAVE_TOGETHER:
            saved(snapshot.state).save_together(changes, position)
        case Step.PREPARE_STATE:
            local(snapshot.state).prepare(Delta(snapshot.before, position, changes))
        case Step.APPLY_STATE:
            local(snapshot.state).apply()
        case Step.SAVE_WITH_OUTBOX:
            remote(snapshot.state).save_with_outbox(changes, Outbox(snapshot.before, position, snapshot.held))
        case Step.CLEAR_OUTBOX:
            remote(snapshot.state).clear_outbox()
        case _:
            raise TypeError(f"{step} does not change the state")
    if step in _STATE_IS_SAVED:
        snapshot.changes = {}


def saved(state: ShardState | None) -> ShardState:
    """Return the state of a stateful shard."""
    if state is None:
        raise TypeError("a stateless processor has no state to save")
    return state


def local(state: ShardState | None) -> LocalState:
    """Return a state on the worker's machine."""
    if not hasattr(state, "prepare"):
        raise TypeError(f"{state} cannot prepare changes, so it is no local state")
    return cast("LocalState", state)


def remote(state: ShardState | None) -> RemoteState:
    """Return a state in a remote store."""
    if not hasattr(state, "save_with_outbox"):
        raise TypeError(f"{state} has no outbox, so it is no remote state")
    return cast("RemoteState", state)


def close_shard(shard: OpenShard) -> None:
    """Close the state of a shard; unsaved changes are dropped."""
    if shard.state is not None:
        shard.state.close()
