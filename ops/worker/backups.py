"""Backups as a worker uses them: a shard is refreshed before it is opened, and backed up while it is open."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from pathlib import Path
from threading import Event

from ...processors.retry import OutageLog
from ...processors.shard.position import StatePosition
from ...state.backups.backup_age import BackupAges
from ...state.backups.errors import BackupCanceled
from ...state.backups.restore import restore_shard
from ...state.backups.scheduler import BackupScheduler
from ...state.backups.shard import newest_position
from ...state.errors import FileStoreUnreachable
from ...state.files.file_store import FileStore
from ...state.files.wrappers import InterruptibleFileStore
from ...state.local.folder import current, shard_folder
from ...state.local.rocksdb import RocksShardState, opened_read_only
from ...state.protocols import ShardIdentity, ShardState

_LOG = logging.getLogger("penstock.state")
ASK_AGAIN_S = 2.0
"""How long to wait before a place that did not answer is asked again for a state that is nowhere else."""
SAY_EVERY_S = 30.0
"""How often it is said that a shard waits for such a place."""
LONG_WAIT_S = 60.0
"""After how long it is said what can be done about it."""


class WorkerBackups:
    """Backs up the open shards of a worker, and restores those that it has to open.

    Args:
        place: where backups are kept.
        states: the folder of all states.
        every: how often a shard is backed up whose position goes on.
    """

    def __init__(self, place: FileStore, states: Path, every: timedelta) -> None:
        self._closed = Event()
        self._place = InterruptibleFileStore(place, self._expect_open)
        self._states = states
        self._keeper = BackupScheduler(place, every)

    def refresh(
        self, identity: ShardIdentity, committed: StatePosition, dropped: Event, *, expired: bool = False
    ) -> bool:
        """Where the local state is missing or behind, put a newer one from a backup in its place; return whether that was done.

        A place that does not answer is waited for only where there is no local state to go on from. Where the group's positions have
        expired, and so do not say what is behind, any newer backup is taken.

        Raises:
            BackupCanceled: closed or dropped meanwhile; nothing was changed.
        """
        local = self._local_position(identity)
        if not expired and not (local or StatePosition()).is_behind(committed):
            return False
        if local is None:
            return self._wait_for_backup(identity, dropped)
        try:
            return self._restore_newer(identity, local)
        except FileStoreUnreachable as error:
            _LOG.warning("%s The state on this disk is caught up from the bus.", error)
            return False

    def _local_position(self, identity: ShardIdentity) -> StatePosition | None:
        """Return what the local state reflects; None where there is none, or one that was begun and never saved to."""
        folder = current(shard_folder(self._states, identity))
        if folder is None:
            return None
        with opened_read_only(folder) as state:
            position = state.position()
            return position if position or state.prepared() is not None else None

    def _wait_for_backup(self, identity: ShardIdentity, dropped: Event) -> bool:
        # Not from the bus meanwhile: it may have dropped early events that only the backup still has.
        waiting = OutageLog(SAY_EVERY_S)
        while True:
            try:
                restored = self._restore_newer(identity, StatePosition())
            except FileStoreUnreachable as error:
                if waiting.is_due():
                    self._say_waiting(identity, waiting.duration_s(), error)
                if dropped.wait(ASK_AGAIN_S):
                    raise BackupCanceled("Nobody waits for this state any more; nothing was changed.") from error
            else:
                waited_s = waiting.end()
                if waited_s is not None:
                    _LOG.warning(
                        "%s, bucket %d has waited %.0f s for its backup.", identity.processor, identity.bucket, waited_s
                    )
                return restored

    def _say_waiting(self, identity: ShardIdentity, waited_s: float, error: FileStoreUnreachable) -> None:
        _LOG.warning(
            "%s, bucket %d waits for its backup at %s%s, for it has no state on this disk: %s",
            identity.processor,
            identity.bucket,
            self._place.location,
            f" since {waited_s:.0f} s" if waited_s >= LONG_WAIT_S else "",
            error,
        )
        if waited_s >= LONG_WAIT_S:
            _LOG.warning(
                "It goes on waiting, and its events wait on the bus, which may drop them in time. Mend the place, or name the one "
                "that has the backups. Or stop this worker and start it without --backup: then the state is built anew from the "
                "bus, or, if the bus no longer keeps all that it was made of, it says so and changes nothing."
            )

    def _restore_newer(self, identity: ShardIdentity, local: StatePosition) -> bool:
        newest = newest_position(self._place, identity)
        if newest is None or not local.is_behind(newest):
            return False
        began_s, shard = time.monotonic(), shard_folder(self._states, identity)
        manifest = restore_shard(self._place, identity, shard, confirm=self._expect_open)
        if manifest is not None:
            size_bytes, took_s = sum(file.size_bytes for file in manifest.files), time.monotonic() - began_s
            _LOG.warning(
                "%s, bucket %d: restored from backup %s at %s: %.1f MB in %.1f s.",
                identity.processor,
                identity.bucket,
                manifest.id,
                manifest.position,
                size_bytes / 1e6,
                took_s,
            )
        return manifest is not None

    def _expect_open(self) -> None:
        if self._closed.is_set():
            raise BackupCanceled("The worker was stopped while it looked for a backup; nothing was changed.")

    def ages(self) -> BackupAges:
        """Return how old the newest backups of the states are that are backed up now. Any thread may call."""
        return self._keeper.ages()

    def adopt(self, identity: ShardIdentity, state: ShardState) -> None:
        """Back an open state up from now on."""
        if isinstance(state, RocksShardState):
            self._keeper.adopt(identity, state)

    def release(self, identity: ShardIdentity) -> None:
        """Touch a state no more."""
        self._keeper.release(identity)

    def close(self) -> None:
        """Stop; what is being stored or restored is given up."""
        self._closed.set()
        self._keeper.close()
