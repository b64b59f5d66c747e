"""A scheduler that backs up a worker's open shards, in a thread of its own.

Backup errors are logged and retried. They never affect the worker.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from concurrent.futures import Future
from datetime import timedelta

from ...processors import OutageLog, RetrySchedule, counted
from ..errors import FileStoreUnreachable, StateError
from ..files import FileStore
from ..protocols import ShardIdentity
from .backup_age import LATE_INTERVALS, BackupAges
from .errors import BackupCanceled, BackupFenced
from .manifest import BackupId
from .retention import Retention
from .shard_backup import AdoptedShard, OpenState

_LOG = logging.getLogger("penstock.state")
CLOSE_LIMIT_S = 2.0
THE_NEWEST = Retention()
RETRY_PAUSES_S = 1.0, 60.0
REMIND_EVERY_S = 600.0
"""The least time between two warnings about late backups."""


class BackupScheduler:
    """Backs up each adopted shard once in an interval, spread over it. Thread-safe; no call waits for a backup.

    Args:
        store: the backup store.
        interval: how often to back up a shard whose position advances.
        retention: which backups of each shard are kept.
    """

    def __init__(self, store: FileStore, interval: timedelta, retention: Retention = THE_NEWEST) -> None:
        self._store = store
        self._interval_s = interval.total_seconds()
        self._retention = retention
        self._shards: dict[ShardIdentity, AdoptedShard] = {}
        self._changed = threading.Condition()
        self._schedule = RetrySchedule(*(min(pause_s, self._interval_s) for pause_s in RETRY_PAUSES_S))
        self._is_catching_up = False
        self._unanswered_since_s: float | None = None
        self._thread: threading.Thread | None = None
        self._lateness = OutageLog(REMIND_EVERY_S)
        self._closed = False

    def adopt(self, identity: ShardIdentity, state: OpenState) -> None:
        """Back up an open state from now on, first within one interval."""
        self.release(identity)
        due_s = time.monotonic() + random.uniform(0.0, self._interval_s)  # noqa: S311 - spreads work, keeps no secret
        with self._changed:
            self._shards[identity] = AdoptedShard(identity, state, self._store, due_s, self._interval_s)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="penstock-backups", daemon=True)
                self._thread.start()
            self._changed.notify()

    def back_up_now(self) -> None:
        """Begin to back up all adopted shards; return at once. Shards whose state equals their newest backup need none."""
        with self._changed:
            for shard in self._shards.values():
                shard.request()
            self._changed.notify()

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to back some adopted shard up has failed."""
        with self._changed:
            return any(shard.has_failed for shard in self._shards.values())

    def copy(self, identity: ShardIdentity, pin: str) -> Future[BackupId]:
        """Copy an adopted state as it is now, and begin to store the copy as a backup that is kept until it is unpinned.

        Args:
            identity: the shard.
            pin: the name of the snapshot that needs the backup.

        Raises:
            BackupCanceled: the state is not adopted any more.
        """
        with self._changed:
            shard = self._shards.get(identity)
            if shard is None:
                raise BackupCanceled(f"{identity.processor}, bucket {identity.bucket}: the shard is closed.")
            stored = shard.copy(pin)
            shard.due_s = time.monotonic()
            self._changed.notify()
        return stored

    def give_up(self, identity: ShardIdentity, pin: str) -> None:
        """Begin to remove what was copied or stored of an adopted state for a snapshot that has failed; return at once."""
        with self._changed:
            shard = self._shards.get(identity)
            if shard is not None:
                shard.give_up(pin)
                shard.due_s = time.monotonic()
                self._changed.notify()

    def release(self, identity: ShardIdentity) -> None:
        """Stop using a state, if it was adopted. A backup in progress is canceled."""
        with self._changed:
            shard = self._shards.pop(identity, None)
        if shard is not None:
            shard.release()

    def ages(self) -> BackupAges:
        """Return the ages of the newest backups."""
        with self._changed:
            shards, since_s = list(self._shards.values()), self._unanswered_since_s
        outage_s = None if since_s is None else time.monotonic() - since_s
        return BackupAges({shard.identity: shard.age() for shard in shards}, self._interval_s, outage_s)

    def close(self) -> None:
        """Release all shards and stop. A backup in progress is canceled: without its manifest, it does not count."""
        for identity in list(self.ages().by_shard):
            self.release(identity)
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            # A request that hangs is abandoned. When it ends, the thread notices that its work is canceled.
            self._thread.join(CLOSE_LIMIT_S)

    def _work(self) -> None:
        while not self._closed:
            self._report_ages()
            shard = self._wait_for_due()
            if shard is not None:
                self._attempt(shard)

    def _wait_for_due(self) -> AdoptedShard | None:
        """Wait for the next shard to back up. Return None to check again."""
        with self._changed:
            shard = min(self._shards.values(), key=lambda shard: shard.due_s, default=None)
            at_s = time.monotonic() + self._interval_s if shard is None else max(shard.due_s, self._schedule.due_s)
            wait_s = at_s - time.monotonic()
            if wait_s <= 0:
                return shard
            if not self._closed:
                self._changed.wait(min(wait_s, self._interval_s))
            return None

    def _attempt(self, shard: AdoptedShard) -> None:
        began_s = time.monotonic()
        try:
            if shard.back_up(self._retention):
                self._record_answer(shard)
        except BackupCanceled as error:
            _LOG.info("%s", error)
        except BackupFenced as error:
            # Until the shard is released, its age shows that no worker is known to make its backups.
            shard.has_failed = True
            _LOG.warning("%s", error)
        except FileStoreUnreachable as error:
            shard.has_failed = True
            self._record_outage(shard, error, began_s)
            return
        except StateError as error:
            shard.has_failed = True
            _LOG.warning("%s was not backed up: %s The next attempt is in %.0f s.", shard, error, self._interval_s)
        except Exception:  # noqa: BLE001 - no error may end the worker or the backups of other shards
            shard.has_failed = True
            _LOG.exception("%s was not backed up. The next attempt is in %.0f s.", shard, self._interval_s)
        else:
            shard.has_failed = False
            if shard.is_waited_for:  # since this backup began
                return
        self._plan(shard)

    def _plan(self, shard: AdoptedShard) -> None:
        """Keep the shard's place within the interval, so that shards stay spread over it."""
        behind_s = time.monotonic() - shard.due_s
        shard.due_s += self._interval_s * (1 + behind_s // self._interval_s)

    def _record_outage(self, shard: AdoptedShard, error: FileStoreUnreachable, began_s: float) -> None:
        if self._unanswered_since_s is None:
            self._unanswered_since_s = began_s
        # Behind other due shards: maybe only this shard's folder is unreachable.
        shard.due_s = max(shard.due_s, time.monotonic())
        self._schedule.record_failure()
        if not self._is_catching_up:
            self._is_catching_up = True
            self._lateness.begin()
            _LOG.warning(
                "Backups of %s are falling behind; the newest is %.0f s old: %s The worker continues. Backups are retried, "
                "and a message follows when they have caught up.",
                shard,
                shard.age().seconds,
                error,
            )

    def _record_answer(self, done: AdoptedShard) -> None:
        self._schedule.record_success()
        self._unanswered_since_s = None
        now_s = time.monotonic()
        with self._changed:
            behind = any(shard.due_s <= now_s for shard in self._shards.values() if shard is not done)
        if not behind:
            self._is_catching_up = False

    def _report_ages(self) -> None:
        late = self.ages().late
        if late and self._lateness.is_due():
            self._warn_of_late_backups(late)
        if late or self._is_catching_up:
            return
        behind_s = self._lateness.end()
        if behind_s is not None:
            # At the level of the warning that it ends.
            _LOG.warning("Backups at %s have caught up. They were late for %.0f s.", self._store.location, behind_s)

    def _warn_of_late_backups(self, late: dict[ShardIdentity, float]) -> None:
        oldest = max(late, key=lambda shard: late[shard])
        _LOG.warning(
            "%d of %s have had no backup at %s for more than %d intervals. The oldest, %s, bucket %d, would be restored to its "
            "state of %.0f s ago, or rebuilt from Kafka, and would process the later events again. The worker continues. Check the backup "
            "store, or make the interval longer.",
            len(late),
            counted(len(self._shards), "shard"),
            self._store.location,
            LATE_INTERVALS,
            oldest.processor,
            oldest.bucket,
            late[oldest],
        )
