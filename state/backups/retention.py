"""Retention: which intact backups of a shard are kept.

    the newest backups         for restores
    the first of each hour     for a day, so that a past state needs a replay of an hour at most
    the first of each day      for as long as the history lasts

The first backup of a slot stays the first one. So an owner that was paused while it pruned deletes nothing that a later owner counts on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .manifest import BackupId, Manifest

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NEWEST = 3
"""The number of newest backups that are kept."""


@dataclass(frozen=True)
class Retention:
    """Which backups are kept.

    Args:
        newest: the number of newest ones, at least 1.
        history: how far back the first backups of hours and days (UTC) are kept; zero for none.
    """

    newest: int = NEWEST
    history: timedelta = timedelta(0)

    def kept(self, intact: Sequence[Manifest]) -> set[BackupId]:
        """Return the backups to keep of some intact ones, in any order."""
        in_order = sorted(intact, key=lambda manifest: manifest.id, reverse=True)
        kept = {manifest.id for manifest in in_order[: self.newest]}
        if not in_order or not self.history:
            return kept
        now_ms, history_ms = max(manifest.time_ms for manifest in intact), self.history / timedelta(milliseconds=1)
        kept |= _first_of_each(intact, HOUR_MS, now_ms - min(history_ms, DAY_MS))
        return kept | _first_of_each(intact, DAY_MS, now_ms - history_ms)


def _first_of_each(manifests: Iterable[Manifest], slot_ms: int, since_ms: float) -> set[BackupId]:
    """Return the first backup of each slot of time, from the slot of a moment on: a slot expires as a whole, so no other backup becomes its first."""
    first: dict[int, Manifest] = {}
    for manifest in manifests:
        slot = manifest.time_ms // slot_ms
        if slot not in first or _order(manifest) < _order(first[slot]):
            first[slot] = manifest
    return {manifest.id for slot, manifest in first.items() if slot >= since_ms // slot_ms}


def _order(manifest: Manifest) -> tuple[int, BackupId]:
    return manifest.time_ms, manifest.id
