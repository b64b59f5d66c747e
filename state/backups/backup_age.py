"""How old the newest backups of open shards are: the figure that warnings, the command line and metrics show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..protocols import ShardIdentity

TOO_OLD = 3
"""How many intervals old the newest backup of a shard may be before it is late."""


class BackupAge(NamedTuple):
    """How long ago a shard's state was what its newest backup is. A state that does not go on does not age.

    Args:
        seconds: since the shard was opened here, where no backup is known of.
        known: whether a backup is known of; the place is first asked when the shard's first backup is due.
    """

    seconds: float
    known: bool


@dataclass(frozen=True)
class BackupAges:
    """The ages of the backups of a worker's open shards, as of now.

    Args:
        of: each shard's; one that another owner backs up is left out.
        interval_s: how often each is backed up.
    """

    of: Mapping[ShardIdentity, BackupAge]
    interval_s: float

    @property
    def oldest_s(self) -> float | None:
        """Return the greatest age of a backup that is known of; None where there is none."""
        return max((age.seconds for age in self.of.values() if age.known), default=None)

    @property
    def without(self) -> int:
        """Return of how many shards no backup is known."""
        return sum(not age.known for age in self.of.values())

    @property
    def late(self) -> dict[ShardIdentity, float]:
        """Return the ages in seconds of those that are late, also for want of any backup."""
        return {shard: age.seconds for shard, age in self.of.items() if is_late(age.seconds, self.interval_s)}


def is_late(age_s: float, interval_s: float) -> bool:
    """Tell whether a backup is older than it would be if backups kept up."""
    return age_s > TOO_OLD * interval_s
