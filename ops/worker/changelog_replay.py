"""What a worker does with the changelog: each checkpoint is told to it, and a state that is behind is brought up from it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from ...processors.declare.processor import Processor
from ...processors.shard.checkpoints import Step, steps_of
from ...processors.shard.position import StatePosition
from ...state.protocols import LocalState
from ...transport.bus import Bus
from ...transport.category_spec import CategorySpec
from ...transport.changelog import DELETIONS, changelog_batches, changelog_spec, logged_changes
from ...transport.messages import Bucket, Outgoing
from .open_shard import OpenSnapshot


def changelog_of(processor: type[Processor]) -> CategorySpec | None:
    """Return the category that holds a processor's changelog; None where it needs none."""
    return changelog_spec(processor) if Step.LOG_CHANGES in steps_of(processor) else None


def logged(snapshot: OpenSnapshot) -> Iterator[Outgoing]:
    """Give the messages that say what a checkpoint does to a shard."""
    return logged_changes(snapshot.changes.items(), snapshot.state_position, snapshot.number)


def replay(bus: Bus, changelog: str, number: int, state: LocalState, now_ms: int) -> None:
    """Bring a state up to what the last committed checkpoint made of it.

    May be broken off anywhere and done again: the state's own position moves last.

    Args:
        bus: where the changelog is.
        changelog: its category.
        number: which bucket.
        state: the state, with nothing prepared.
        now_ms: the time (milliseconds since 1970, UTC).
    """
    before = state.position()
    begin = before.changelog_offset
    if _may_lack_deletions(bus, Bucket(changelog, number), begin, now_ms):
        state.clear()
        begin = 0
    position = StatePosition()
    for changes, reached in changelog_batches(bus, Bucket(changelog, number), begin):
        state.save(changes)
        position = position.updated(reached)
    if position:
        state.save_position(position)


def _may_lack_deletions(bus: Bus, bucket: Bucket, begin: int, now_ms: int) -> bool:
    """Tell whether keys may have been deleted, behind an offset, so long ago that the changelog does not say so any more.

    The bus keeps that for a time, counted from when it cleans; half of it is taken, so that nobody's clock has to be right to the day.
    """
    spec = bus.catalog.describe(bucket.category).spec
    kept = DELETIONS if spec.delete_retention is None else spec.delete_retention
    since = datetime.fromtimestamp(now_ms / 1000, timezone.utc) - kept / 2
    return begin < bus.catalog.at_time(bucket.category, since)[bucket.number] or begin == 0
