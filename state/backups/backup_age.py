"""Ages of the newest backups of open shards, for warnings, the command line and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..protocols import ShardIdentity

LATE_INTERVALS = 3
"""A backup is late when it is older than this many intervals."""


class BackupAge(NamedTuple):
    """The time since a shard's state equalled its newest backup. A state that does not change does not age.

    Args:
        seconds: the age; without a backup, the time since the shard was opened here.
        exists: whether a backup exists. The store is first read when the shard's first backup is due.
    """

    seconds: float
    exists: bool


@dataclass(frozen=True)
class BackupAges:
    """The current backup ages of a worker's open shards.

    Args:
        by_shard: the age of each shard.
        interval_s: the backup interval.
        outage_s: for how many seconds the store has answered no attempt; None while it answers.
    """

    by_shard: Mapping[ShardIdentity, BackupAge]
    interval_s: float
    outage_s: float | None = None

    @property
    def oldest_s(self) -> float | None:
        """Return the greatest age of an existing backup; None without one."""
        return max((age.seconds for age in self.by_shard.values() if age.exists), default=None)

    @property
    def missing_backups(self) -> int:
        """Return the number of shards without a backup."""
        return sum(not age.exists for age in self.by_shard.values())

    @property
    def late(self) -> dict[ShardIdentity, float]:
        """Return the ages in seconds of late backups, and of shards that have waited too long for their first one."""
        return {shard: age.seconds for shard, age in self.by_shard.items() if is_late(age.seconds, self.interval_s)}

    def older_than(self, age_s: float) -> list[ShardIdentity]:
        """Return the shards whose state has not equalled their newest backup for longer than a time in seconds."""
        return [shard for shard, age in self.by_shard.items() if age.seconds > age_s]


def is_late(age_s: float, interval_s: float) -> bool:
    """Return whether a backup is older than regular backups allow."""
    return age_s > LATE_INTERVALS * interval_s
