"""The backups of a shard while it is open here: from its adoption to its release."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Protocol

from ..files.file_store import FileStore
from ..local.rocksdb import viewed
from ..protocols import Offsets, ShardIdentity
from .backup_age import BackupAge
from .errors import BackupAbandoned
from .shard import ShardBackups
from .snapshots import drop_leftovers, snapshot_folder
from .writer import BackupWriter, claim


class OpenState(Protocol):
    """What a backup needs of an open state. It is used by a second thread, beside the one that saves."""

    @property
    def folder(self) -> Path:
        """Where it lies."""
        ...

    def position(self) -> Offsets:
        """Return the saved position."""
        ...

    def snapshot(self, target: Path) -> None:
        """Write the state as of now to a new folder on the same disk, at once."""
        ...


class AdoptedShard:
    """Backs up one open state. `back_up` is called by one thread, `release` by another.

    Args:
        identity: whose state it is.
        state: the open state.
        place: where backups are kept.
        due_s: when it is to be backed up next; as all times here, of the monotonic clock.
        interval_s: how often it is backed up.
    """

    def __init__(
        self, identity: ShardIdentity, state: OpenState, place: FileStore, due_s: float, interval_s: float
    ) -> None:
        self.identity = identity
        self.due_s = due_s
        self._interval_s = interval_s
        self._state: OpenState | None = state
        self._folder = state.folder
        self._backups = ShardBackups(place, identity.processor, identity.bucket)
        self._owner: BackupWriter | None = None
        self._saved: Offsets = {}
        self._current_s = time.monotonic()
        self._touching = threading.Lock()

    def __str__(self) -> str:
        return str(self._backups)

    def age(self) -> BackupAge:
        """Return how old the newest backup is. Any thread may call."""
        owner = self._owner
        return BackupAge(time.monotonic() - self._current_s, known=owner is not None and owner.newest is not None)

    def release(self) -> None:
        """Touch the state no more. Waits for nothing but a snapshot that is being made."""
        with self._touching:
            self._state = None

    def back_up(self, keep: int) -> bool:
        """Make a backup and remove all but the last `keep`. Return False where the position is that of the last one already.

        Raises:
            BackupAbandoned: the shard was released meanwhile; there is no new backup.
            BackupFenced: somebody else makes the shard's backups now.
            FileStoreUnreachable: there is no new backup, or old ones were not removed.
        """
        if self._is_current():
            return False
        # Before the snapshot: a place that does not answer costs the state no flush.
        owner = self._expect_owner()
        with snapshot_folder(self._folder) as snapshot:
            taken_s = self._take(snapshot)
            with viewed(snapshot) as state:
                position = state.position()
            owner.save(snapshot, position)
        self._saved, self._current_s = position, taken_s
        owner.prune(keep)
        return True

    def _is_current(self) -> bool:
        with self._touching:
            if self._opened.position() != self._saved:
                return False
        self._current_s = time.monotonic()
        return True

    def _expect_owner(self) -> BackupWriter:
        if self._owner is None:
            drop_leftovers(self._folder)
            self._owner = claim(self._backups, self.identity, self._go_on, self._interval_s)
            if self._owner.newest is not None:
                age_s = time.time() - self._owner.newest.time_ms / 1000
                self._current_s = time.monotonic() - max(age_s, 0.0)
        else:
            self._owner.expect_newest()
        return self._owner

    def _take(self, snapshot: Path) -> float:
        with self._touching:
            self._opened.snapshot(snapshot)
            return time.monotonic()

    def _go_on(self) -> None:
        _ = self._opened

    @property
    def _opened(self) -> OpenState:
        if self._state is None:
            raise BackupAbandoned(
                f"{self}: the shard was closed while it was backed up; its earlier backups are whole."
            )
        return self._state
