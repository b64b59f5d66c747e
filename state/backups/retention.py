"""Retention: which intact backups of a shard are kept.

    the newest backups         for restores
    the first of each hour     of the 24 latest hours, so that a past state needs a replay of an hour at most
    the first of each day      of as many days as the history lasts

Only hours and days with backups count. So a backup of a machine whose clock is ahead takes the place of one hour and one day, and does not
make all others old. The first backup of a slot stays the first one, and newer slots only push out older ones. So an owner that was paused
while it pruned deletes nothing that a later owner counts on.
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
        history: how many hours, at most 24, and days (UTC) keep their first backup; zero for none.
    """

    newest: int = NEWEST
    history: timedelta = timedelta(0)

    def kept(self, intact: Sequence[Manifest]) -> set[BackupId]:
        """Return the backups to keep of some intact ones, in any order."""
        in_order = sorted(intact, key=lambda manifest: manifest.id, reverse=True)
        kept = {manifest.id for manifest in in_order[: self.newest]}
        if not in_order or not self.history:
            return kept
        history_ms = self.history // timedelta(milliseconds=1)
        kept |= _first_of_each(intact, HOUR_MS, min(history_ms, DAY_MS))
        return kept | _first_of_each(intact, DAY_MS, history_ms)


def _first_of_each(manifests: Iterable[Manifest], slot_ms: int, span_ms: int) -> set[BackupId]:
    """Return the first backup of each of the latest slots of time: those of a span, and the present one.

    A slot expires as a whole, so no other backup becomes its first.
    """
    first: dict[int, Manifest] = {}
    for manifest in manifests:
        slot = manifest.time_ms // slot_ms
        if slot not in first or _order(manifest) < _order(first[slot]):
            first[slot] = manifest
    latest = sorted(first, reverse=True)[: -(-span_ms // slot_ms) + 1]
    return {first[slot].id for slot in latest}


def _order(manifest: Manifest) -> tuple[int, BackupId]:
    return manifest.time_ms, manifest.id
