"""Backups of one open shard, from adoption to release."""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from ...processors.shard import StatePosition
from ..errors import FileStoreUnreachable
from ..files import FileStore
from ..local import opened_read_only, translated_errors
from ..protocols import ShardIdentity
from .backup_age import BackupAge
from .errors import BackupCanceled
from .manifest import BackupId
from .retention import Retention
from .shard import ShardBackups, damages_of
from .writer import BackupWriter, claim


class OpenState(Protocol):
    """An open state, as a backup needs it. A second thread calls this beside the one that saves."""

    @property
    def folder(self) -> Path:
        """Its folder."""
        ...

    def position(self) -> StatePosition:
        """Return the saved position."""
        ...

    def snapshot(self, target: Path) -> None:
        """Write the current state to a new folder on the same disk, quickly."""
        ...


@dataclass(frozen=True)
class StateCopy:
    """A copy of a state as of one checkpoint, on its way to the backup store.

    Args:
        pin: the snapshot that needs it.
        folder: the copied database.
        position: the position of the state.
        stored: completes with the backup.
    """

    pin: str
    folder: Path
    position: StatePosition
    stored: Future[BackupId]

    def fail(self, error: Exception) -> None:
        """Give the copy up."""
        _remove(self.folder)
        if not self.stored.done():
            self.stored.set_exception(error)


class AdoptedShard:
    """Backs up one open state. One thread calls `back_up`, another `release`. All times are of the monotonic clock.

    Args:
        identity: the shard.
        state: the open state.
        store: the backup store.
        due_s: the time of its next backup.
        interval_s: the backup interval.
    """

    def __init__(
        self, identity: ShardIdentity, state: OpenState, store: FileStore, due_s: float, interval_s: float
    ) -> None:
        self.identity = identity
        self.due_s = due_s
        self.has_failed = False
        """Whether the last attempt failed."""
        self._interval_s = interval_s
        self._state: OpenState | None = state
        self._folder = state.folder
        self._backups = ShardBackups(store, identity.processor, identity.bucket)
        self._owner: BackupWriter | None = None
        self._saved = StatePosition()
        self._backed_up_s = time.monotonic()
        self._state_lock = threading.Lock()
        self._copies: deque[StateCopy] = deque()
        self._given_up: deque[str] = deque()
        self._is_requested = False

    def __str__(self) -> str:
        return str(self._backups)

    def age(self) -> BackupAge:
        """Return the age of the newest backup. Thread-safe."""
        owner = self._owner
        return BackupAge(time.monotonic() - self._backed_up_s, exists=owner is not None and owner.newest is not None)

    def release(self) -> None:
        """Stop using the state. Waits only for a snapshot in progress."""
        with self._state_lock:
            self._state = None
            copies, self._copies = list(self._copies), deque()
        for copy in copies:
            copy.fail(BackupCanceled(f"{self}: the shard was closed before its copy was stored."))

    def copy(self, pin: str) -> Future[BackupId]:
        """Copy the saved state as it is now, by hard links; the next `back_up` stores it as a backup that is kept until it is unpinned.

        Raises:
            BackupCanceled: the shard was released.
        """
        with self._state_lock:
            folder = _new_folder(self._folder)
            self._open_state.snapshot(folder)
            copy = StateCopy(pin, folder, self._open_state.position(), Future())
            self._copies.append(copy)
        return copy.stored

    def give_up(self, pin: str) -> None:
        """Store no more copies for a snapshot; the next `back_up` unpins a backup that was stored for it already."""
        with self._state_lock:
            dropped = [copy for copy in self._copies if copy.pin == pin]
            self._copies = deque(copy for copy in self._copies if copy.pin != pin)
            self._given_up.append(pin)
        for copy in dropped:
            copy.fail(BackupCanceled(f"{self}: snapshot {pin} was given up before its copy was stored."))

    @property
    def is_waited_for(self) -> bool:
        """Whether `back_up` has something to do that was asked for after it began."""
        return bool(self._copies or self._given_up) or self._is_requested

    def request(self) -> None:
        """Ask for a backup of the state as it is now: by the next `back_up`, not by one that has begun."""
        self._is_requested = True
        self.due_s = min(self.due_s, time.monotonic())

    def back_up(self, retention: Retention) -> bool:
        """Make a backup and delete all that are not retained. Return False if the store contains a backup of the same position.

        Raises:
            BackupCanceled: the shard was released meanwhile; there is no new backup.
            BackupFenced: another owner makes the shard's backups now.
            FileStoreUnreachable: there is no new backup, or old ones were not deleted.
        """
        self._is_requested = False
        self._unpin_given_up()
        if not self._copies and self._is_current() and self._is_stored():
            return False
        # Before the snapshot: if the store is unreachable, the state need not be flushed.
        owner = self._expect_owner()
        self._store_copies(owner)
        if self._is_current() and self._is_stored():
            return True
        with snapshot_folder(self._folder) as snapshot:
            snapshot_s = self._make_snapshot(snapshot)
            self._store_copies(owner)  # they are older than this snapshot, and a later backup has a later position
            with opened_read_only(snapshot) as state:
                position = state.position()
            owner.save(snapshot, position)
        self._saved, self._backed_up_s = position, snapshot_s
        owner.prune(retention)
        return True

    def _store_copies(self, owner: BackupWriter) -> None:
        """Store the copies that snapshots wait for, in order."""
        while (copy := self._next_copy()) is not None:
            try:
                manifest = owner.save(copy.folder, copy.position)
                self._backups.pin(copy.pin, manifest.id)
            except Exception as error:
                copy.fail(error)
                raise
            self._saved, self._backed_up_s = copy.position, time.monotonic()
            _remove(copy.folder)
            copy.stored.set_result(manifest.id)

    def _next_copy(self) -> StateCopy | None:
        with self._state_lock:
            return self._copies.popleft() if self._copies else None

    def _unpin_given_up(self) -> None:
        """Unpin what was stored for snapshots that were given up. A copy that is being stored meanwhile is unpinned the next time."""
        while self._given_up:
            self._backups.unpin(self._given_up[0])
            self._given_up.popleft()

    def _is_current(self) -> bool:
        with self._state_lock:
            if self._open_state.position() != self._saved:
                return False
        self._backed_up_s = time.monotonic()
        return True

    def _is_stored(self) -> bool:
        """Return whether the newest backup is still stored, with all its files. The store may have been emptied, or put back to an older copy.

        A store that does not answer is asked again when the next backup is due.
        """
        newest = None if self._owner is None else self._owner.newest
        with suppress(FileStoreUnreachable):
            return newest is None or (
                newest.id in self._backups.ids() and not damages_of(newest, self._backups.files())
            )
        return True

    def _expect_owner(self) -> BackupWriter:
        if self._owner is None:
            with self._state_lock:
                remove_old_snapshots(self._folder, {copy.folder for copy in self._copies})
            self._owner = claim(self._backups, self.identity, self._check_canceled, self._interval_s)
            if self._owner.newest is not None:
                age_s = time.time() - self._owner.newest.time_ms / 1000
                self._backed_up_s = time.monotonic() - max(age_s, 0.0)
        else:
            self._owner.expect_ownership()
        return self._owner

    def _make_snapshot(self, snapshot: Path) -> float:
        with self._state_lock:
            self._open_state.snapshot(snapshot)
            return time.monotonic()

    def _check_canceled(self) -> None:
        _ = self._open_state

    @property
    def _open_state(self) -> OpenState:
        if self._state is None:
            raise BackupCanceled(f"{self}: the shard was closed during its backup. Earlier backups are intact.")
        return self._state


# Hidden, so that it is never taken for a database of the shard.
_PREFIX = ".backup-"


@contextmanager
def snapshot_folder(database: Path) -> Iterator[Path]:
    """Yield the path of a new folder beside a database, on the same disk, and remove it at the end."""
    folder = _new_folder(database)
    try:
        yield folder
    finally:
        _remove(folder)


def _new_folder(database: Path) -> Path:
    return database.parent / f"{_PREFIX}{uuid4().hex}"


def remove_old_snapshots(database: Path, used: Collection[Path] = ()) -> None:
    """Remove snapshots of killed processes beside a database, except some that are used."""
    with translated_errors(database):
        leftovers = [folder for folder in database.parent.glob(f"{_PREFIX}*") if folder not in used]
    for folder in leftovers:
        _remove(folder)


def _remove(folder: Path) -> None:
    if folder.exists():
        with translated_errors(folder):
            shutil.rmtree(folder)
