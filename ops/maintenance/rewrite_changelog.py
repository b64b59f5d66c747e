"""A changelog told that the state of a shard is another now: what it makes of an empty state is, from then on, that state."""

from __future__ import annotations

from ...state.local.folder import current
from ...state.local.rocksdb import opened_read_only
from ...transport.bus import Bus
from ...transport.changelog import rewrite_changelog_bucket
from ..worker.changelog_replay import changelog_of
from .processor_positions import LocalStates


def rewrite_changelog(bus: Bus, states: LocalStates, bucket: int) -> None:
    """Make the changelog of a shard give the state that is on this machine; nothing where there is no such state, or no changelog."""
    changelog, folder = changelog_of(states.processor), current(states.folder(bucket))
    if changelog is None or folder is None or changelog.name not in bus.catalog.names():
        return
    with opened_read_only(folder) as state:
        rewrite_changelog_bucket(bus, changelog.name, bucket, state.items(), state.position())
