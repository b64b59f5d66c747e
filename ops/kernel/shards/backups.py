"""Backups of a worker's states: restored before a shard is opened, stored while it is open."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from threading import Event

from ....processors import OutageLog
from ....processors.shard import StatePosition
from ....state import FileStoreUnreachable, ShardIdentity, ShardState, StateError
from ....state.backups import (
    THE_NEWEST,
    BackupAges,
    BackupCanceled,
    BackupId,
    BackupScheduler,
    Fetch,
    Retention,
    StandbyCopies,
    backed_up_buckets,
    fetch,
    newest_position,
    restore_shard,
)
from ....state.files import FileStore, InterruptibleFileStore
from ....state.local import RocksShardState, current, opened_read_only, shard_folder
from ..telemetry import Restores, Waits
from .standby import Standby

_LOG = logging.getLogger("penstock.state")
RETRY_S = 2.0
"""The pause before an unreachable backup store is asked again for a state that exists nowhere else."""
LOG_EVERY_S = 30.0
"""The interval of log messages about a waiting shard."""
LONG_WAIT_S = 60.0
"""The wait after which the log message contains advice."""


class WorkerBackups:
    """Backs up a worker's open shards, and restores outdated ones before they are opened.

    Args:
        store: contains the backups.
        states: the folder of all states.
        every: the interval between backups of a shard whose position advances.
        retention: which backups are kept.
    """

    def __init__(self, store: FileStore, states: Path, every: timedelta, retention: Retention = THE_NEWEST) -> None:
        self._closed = Event()
        self._store = InterruptibleFileStore(store, self._expect_open)
        self._states = states
        self._every_s = every.total_seconds()
        self._scheduler = BackupScheduler(store, every, retention)
        self._open: set[ShardIdentity] = set()
        self.standby: Standby | None = None
        self.restores = Restores()
        self.waits = Waits()
        """What its worker waits for."""

    def stand_by(self, identity: Callable[[int], ShardIdentity], processor: str) -> Standby:
        """Keep copies of the states of a processor that other machines own, from now on, and return them. A takeover uses them.

        Args:
            identity: returns the identity of a shard by its bucket number.
            processor: the processor's name.
        """
        self.standby = Standby(
            StandbyCopies(self._store, self._states, processor),
            self._every_s,
            lambda: map(identity, backed_up_buckets(self._store, processor)),
            self._open,
            lambda shard: self._local_position(shard) or StatePosition(),
        )
        self.standby.start()
        return self.standby

    def refresh(
        self, identity: ShardIdentity, required: StatePosition, canceled: Event, *, expired: bool = False
    ) -> bool:
        """Replace a missing or outdated local state with a newer one from a backup; return whether it was replaced.

        Waits for an unreachable store only without a local state. If the group's positions have expired, they do not show whether a state is
        outdated, so any newer backup is used.

        Raises:
            BackupCanceled: closed or canceled meanwhile; nothing was changed.
        """
        local = self._local_position(identity)
        if not expired and not (local or StatePosition()).is_behind(required):
            return False
        if local is None:
            return self._wait_for_backup(identity, canceled)
        try:
            return self._restore_newer(identity, local)
        except FileStoreUnreachable as error:
            _LOG.warning("%s The state on this disk is caught up from the bus.", error)
            return False

    def _local_position(self, identity: ShardIdentity) -> StatePosition | None:
        """Return the position of the local state; None if it does not exist or was never saved."""
        folder = current(shard_folder(self._states, identity))
        if folder is None:
            return None
        with opened_read_only(folder) as state:
            position = state.position()
            return position if position or state.prepared() is not None else None

    def _wait_for_backup(self, identity: ShardIdentity, canceled: Event) -> bool:
        # The state is not rebuilt from the bus meanwhile: early events may have expired there and exist only in the backup.
        waiting, backup = OutageLog(LOG_EVERY_S), f"the backup of its state at {self._store.location}"
        while True:
            try:
                restored = self._restore_newer(identity, StatePosition())
            except FileStoreUnreachable as error:
                self.waits.begin(backup)
                if waiting.is_due():
                    self._log_waiting(identity, waiting.duration_s(), error)
                if canceled.wait(RETRY_S):
                    raise BackupCanceled("This state is not needed any more; nothing was changed.") from error
            else:
                self.waits.end(backup)
                waited_s = waiting.end()
                if waited_s is not None:
                    _LOG.warning(
                        "%s, bucket %d has waited %.0f s for its backup.", identity.processor, identity.bucket, waited_s
                    )
                return restored

    def _log_waiting(self, identity: ShardIdentity, waited_s: float, error: FileStoreUnreachable) -> None:
        _LOG.warning(
            "%s, bucket %d waits for its backup at %s%s, because this disk has no state of it: %s",
            identity.processor,
            identity.bucket,
            self._store.location,
            f" since {waited_s:.0f} s" if waited_s >= LONG_WAIT_S else "",
            error,
        )
        if waited_s >= LONG_WAIT_S:
            _LOG.warning(
                "It continues to wait. Its events wait on the bus and may expire there. Repair the backup store, or name the one with the backups "
                "(--backup). Or stop this worker and start it without --backup: it then rebuilds the state from the bus, or, if the bus has "
                "not kept all events, reports that and changes nothing."
            )

    def _restore_newer(self, identity: ShardIdentity, local: StatePosition) -> bool:
        if self.standby is not None and self._restore_copy(self.standby.copies, identity, local):
            return True
        return self._restore_from(self._store, identity, local, fetch)

    def _restore_copy(self, copies: StandbyCopies, identity: ShardIdentity, local: StatePosition) -> bool:
        """Restore a state from the copy of its newest backup; if that cannot be read, from the copy before it."""
        try:
            copies.update(identity, lambda: local)
        except StateError as error:
            _LOG.warning("%s If this machine has an earlier copy, that one is used, and caught up from the bus.", error)
        return self._restore_from(copies.files, identity, local, copies.link)

    def _restore_from(self, store: FileStore, identity: ShardIdentity, local: StatePosition, get: Fetch) -> bool:
        newest = newest_position(store, identity)
        if newest is None or not local.is_behind(newest):
            return False
        began_s, shard = time.monotonic(), shard_folder(self._states, identity)
        manifest = restore_shard(store, identity, shard, confirm=self._expect_open, get=get)
        if manifest is not None:
            size_bytes, took_s = manifest.size_bytes, time.monotonic() - began_s
            self.restores.record(size_bytes, took_s)
            _LOG.warning(
                "%s, bucket %d: restored from backup %s at %s, in %s: %.1f MB in %.1f s.",
                identity.processor,
                identity.bucket,
                manifest.id,
                manifest.position,
                store.location,
                size_bytes / 1e6,
                took_s,
            )
        return manifest is not None

    def _expect_open(self) -> None:
        if self._closed.is_set():
            raise BackupCanceled("The worker was stopped while it searched for a backup; nothing was changed.")

    def ages(self) -> BackupAges:
        """Return the age of each open state's newest backup. Any thread may call."""
        return self._scheduler.ages()

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to back some open state up has failed."""
        return self._scheduler.is_failing

    def back_up_now(self) -> None:
        """Begin to back up all open states; return at once."""
        self._scheduler.back_up_now()

    def adopt(self, identity: ShardIdentity, state: ShardState) -> None:
        """Back an open state up from now on."""
        if isinstance(state, RocksShardState):
            self._open.add(identity)
            self._scheduler.adopt(identity, state)

    def copy(self, identity: ShardIdentity, pin: str) -> Future[BackupId]:
        """Copy an adopted state as it is now, and begin to store it as a backup that is kept until it is unpinned.

        Raises:
            BackupCanceled: the state is not open any more.
        """
        return self._scheduler.copy(identity, pin)

    def give_up(self, identity: ShardIdentity, pin: str) -> None:
        """Begin to remove what was copied or stored of an adopted state for a snapshot that has failed; return at once."""
        self._scheduler.give_up(identity, pin)

    def release(self, identity: ShardIdentity) -> None:
        """Stop using a state; return at once."""
        self._open.discard(identity)
        self._scheduler.release(identity)

    def close(self) -> None:
        """Stop, and cancel running backups and restores."""
        self._closed.set()
        self._scheduler.close()
        if self.standby is not None:
            self.standby.close()
