"""The backup at the end of a run that stops at the end of its input."""

from __future__ import annotations

import time
from collections.abc import Collection

from ....state import ShardIdentity
from .backups import WorkerBackups


class LastBackup:
    """Backs up the final states of a worker, and determines when the worker may stop.

    Args:
        backups: the worker's backups.
        limit_s: the time after which the worker does not wait for a backup that fails. A long backup is awaited.
    """

    def __init__(self, backups: WorkerBackups, limit_s: float) -> None:
        self._backups = backups
        self._limit_s = limit_s
        self._began_s: float | None = None
        self.missing: Collection[ShardIdentity] = ()

    def __call__(self) -> bool:
        """Return whether each open shard has been backed up since the first call. True also after the limit: then some are `missing`."""
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s = now_s
            self._backups.back_up_now()
        waited_s = now_s - self._began_s
        self.missing = self._backups.ages().older_than(waited_s)
        return not self.missing or (waited_s >= self._limit_s and self._backups.is_failing)

    @property
    def is_awaited(self) -> bool:
        """Whether the worker is finished but for its backups."""
        return self._began_s is not None
