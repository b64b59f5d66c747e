"""Where a shard continues, by the position of its state and the committed positions of its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..declare import Processor, Semantics
from ..errors import PenstockError
from ..time import NO_TIMES, SavedTimes
from .position import Offsets, StatePosition


class AmbiguousTransaction(PenstockError):
    """A checkpoint was prepared, but it is unknown whether it was committed. The user must choose."""


@dataclass(frozen=True)
class ResumePoint:
    """Where a shard continues.

    Args:
        position: next unread offset by category; the first event where a category is missing.
        state_only_until: by category, the offset up to which events only build state.
        checkpoint_id: the last checkpoint's id; None where checkpoints have no ids.
        topic_ids: by category, the topics of the offsets.
        times: the event times of a processor without state; a state contains its own.
    """

    position: Offsets = field(default_factory=dict)
    state_only_until: Offsets = field(default_factory=dict)
    checkpoint_id: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    times: SavedTimes = NO_TIMES


def resume(processor: Processor, saved: StatePosition | None, committed: StatePosition) -> ResumePoint:
    """Return where a shard continues.

    Args:
        processor: its semantics decide.
        saved: the position of the state; None for a stateless processor.
        committed: the group's committed positions.
    """
    if saved is None:
        return ResumePoint(committed.offsets)
    if processor.state_semantics is Semantics.AT_MOST_ONCE:
        # Committed events may have been counted: they are not read again, even if the state does not contain them.
        names = {*saved.offsets, *committed.offsets}
        return ResumePoint({name: max(saved.offsets.get(name, 0), committed.offsets.get(name, 0)) for name in names})
    ahead = {name: offset for name, offset in committed.offsets.items() if offset > saved.offsets.get(name, 0)}
    return ResumePoint(saved.offsets, ahead)


def is_committed(before: Offsets, after: StatePosition, committed: StatePosition, what: str) -> bool:
    """Return whether a prepared checkpoint was committed, according to the group's committed positions.

    Args:
        before: the group's offsets when the checkpoint began.
        after: the position that the checkpoint commits.
        committed: the group's committed positions now.
        what: the checkpoint, as the beginning of a sentence.

    Raises:
        AmbiguousTransaction: the group's positions have expired.
    """
    if before and not committed:
        raise AmbiguousTransaction(
            f"{what} from {StatePosition(before)} to {after} may or may not have been committed: the group's committed positions, which would "
            "decide it, have expired on the bus, because the group was idle for long. Nothing was changed. Restore a backup with "
            "`penstock state restore`, or declare another `name` to start from an empty state."
        )
    is_there = all(committed.offsets.get(name, -1) == offset for name, offset in after.offsets.items())
    return is_there and committed.checkpoint_id == after.checkpoint_id
