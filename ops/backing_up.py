"""Backups as a worker uses them: a shard is refreshed before it is opened, and backed up while it is open."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from pathlib import Path
from threading import Event

from ..state.backups.errors import BackupAbandoned, PlaceUnreachable
from ..state.backups.keeper import BackupKeeper
from ..state.backups.places import BackupPlace
from ..state.backups.restoring import restore_shard
from ..state.backups.shard import newest_position
from ..state.folder import current, shard_folder
from ..state.rocks import RocksShardState, viewed
from ..state.store import Offsets, ShardIdentity, ShardState
from .resuming import is_behind

_LOG = logging.getLogger("penstock.state")
ASK_AGAIN_S = 2.0
"""How long to wait before a place that did not answer is asked again for a state that is nowhere else."""


class WorkerBackups:
    """Backs up the open shards of a worker, and restores those that it has to open.

    Args:
        place: where backups are kept.
        states: the folder of all states.
        every: how often a shard is backed up whose position goes on.
    """

    def __init__(self, place: BackupPlace, states: Path, every: timedelta) -> None:
        self._place = place
        self._states = states
        self._keeper = BackupKeeper(place, every)
        self._closed = Event()

    def refresh(self, identity: ShardIdentity, committed: Offsets) -> None:
        """Where the local state is missing or behind, put a newer one from a backup in its place, if there is one.

        A place that does not answer is waited for only where there is no local state to go on from.
        """
        local = self._local_position(identity)
        if not is_behind(local or {}, committed):
            return
        while not self._closed.is_set():
            try:
                self._restore_newer(identity, local)
            except PlaceUnreachable as error:
                if local is not None:
                    _LOG.warning("%s The state on this disk is caught up from the bus.", error)
                    return
                _LOG.warning("%s Bucket %d has no state here, so it waits for its backup.", error, identity.bucket)
                self._closed.wait(ASK_AGAIN_S)
            else:
                return

    def _local_position(self, identity: ShardIdentity) -> Offsets | None:
        folder = current(shard_folder(self._states, identity))
        if folder is None:
            return None
        with viewed(folder) as state:
            return state.position()

    def _restore_newer(self, identity: ShardIdentity, local: Offsets | None) -> None:
        newest = newest_position(self._place, identity)
        if newest is None or not is_behind(local or {}, newest):
            return
        began_s, shard = time.monotonic(), shard_folder(self._states, identity)
        manifest = restore_shard(self._place, identity, shard, self._expect_open, self._expect_open)
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

    def _expect_open(self, *_: int) -> None:
        if self._closed.is_set():
            raise BackupAbandoned("The worker was stopped while it restored a state; nothing was changed.")

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
