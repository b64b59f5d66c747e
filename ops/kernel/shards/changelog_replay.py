"""A worker's use of the changelog: it records each checkpoint, and replays them into an outdated state."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from ....processors.declare import Processor
from ....processors.shard import StatePosition, Step, steps_of
from ....state import LocalState
from ....transport import (
    DELETIONS,
    Bucket,
    Bus,
    CategorySpec,
    Outgoing,
    changelog_batches,
    changelog_spec,
    logged_changes,
)
from .open_shard import OpenSnapshot


def changelog_of(processor: type[Processor]) -> CategorySpec | None:
    """Return the category of a processor's changelog; None without one."""
    return changelog_spec(processor) if Step.LOG_CHANGES in steps_of(processor) else None


def logged(snapshot: OpenSnapshot) -> Iterator[Outgoing]:
    """Yield the messages that describe a checkpoint's changes to a shard."""
    return logged_changes(snapshot.changes.items(), snapshot.state_position, snapshot.number)


def replay(bus: Bus, changelog: str, number: int, state: LocalState, now_ms: int) -> None:
    """Bring a state up to the last committed checkpoint.

    May be interrupted and repeated: the state's position is written last.

    Args:
        bus: contains the changelog.
        changelog: its category.
        number: the bucket's number.
        state: the state, without prepared changes.
        now_ms: the time of day (milliseconds since 1970, UTC).
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
    if begin == 0 and not position.offsets:
        state.clear()  # a part of a first write, whose worker has died, is no state
    elif position:
        state.save_position(position)


def _may_lack_deletions(bus: Bus, bucket: Bucket, begin: int, now_ms: int) -> bool:
    """Return whether deletions of keys after an offset may have expired in the changelog.

    The bus keeps deletions for a time after it compacts them. Half of that time counts here, so clocks need not be exact.
    """
    kept = bus.catalog.describe(bucket.category).least_delete_retention
    retention = DELETIONS if kept is None else kept
    since = datetime.fromtimestamp(now_ms / 1000, UTC) - retention / 2
    return begin < bus.catalog.at_time(bucket.category, since)[bucket.number] or begin == 0
