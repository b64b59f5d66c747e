"""Replacements for the places where the library uses the machine's time, randomness or threads itself.

Most of the library gets its clock and its threads as arguments. The modules below do not, so their names are replaced
while a simulation runs. The simulation knows no other internals of the library.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from support import kinds

from penstock.backfill.archive import archiver, bucket_opener, segments
from penstock.backfill.warehouse import archive_settings
from penstock.ops.maintenance import reset
from penstock.ops.snapshots import cloning, restoring, taking
from penstock.ops.worker import (
    backups,
    batch_processor,
    changelog_replay,
    input_merger,
    shard_loader,
    watermark_publisher,
)
from penstock.processors import background, retry
from penstock.processors.keyed_state import window_values
from penstock.processors.keyed_state.state_cache import StateCache
from penstock.processors.operators import (
    early_results,
    ordered_delivery,
    panes,
    sessions,
    sliding,
    sliding_history,
    stateful,
)
from penstock.processors.shard import checkpoints, key_check
from penstock.processors.time import timer_schedule, timers
from penstock.transport import category_rows
from penstock.transport import changelog as log_category
from penstock.transport.tables import maintenance_protocol

from . import backing_up, snapshotting
from . import cloning as simulated_cloning
from . import restoring as simulated_restoring
from .archiving import SequentialExecutor
from .disks import SimulatedState
from .scheduler import Scheduler, wait_for_all

DELETIONS = timedelta(seconds=30)
"""How long a changelog retains deletions in a run, which is shorter than a month."""


SMALL: tuple[tuple[Any, str, int], ...] = (
    (timer_schedule, "READ_AHEAD", 3),
    (ordered_delivery, "DELIVERY_BATCH", 2),
    (sliding, "DUE_AT_ONCE", 2),
    (sliding_history, "CHUNK_VALUES", 3),
    (early_results, "READ_AT_ONCE", 2),
    (panes, "READ_AT_ONCE", 2),
    (input_merger, "MIN_RUN", 2),
    (input_merger, "MAX_QUEUED", 8),
    (key_check, "KNOWN_KEYS", 3),
    (batch_processor, "LEAST_COLUMNS", 2),
)
"""Smaller limits of the library's caches and batches, since a run has too few events to reach the usual limits."""


CACHE_BYTES = 2_000
"""The memory for decoded states in a run: some states of all shards together."""


class SimulatedEvent:
    """A `threading.Event`; waiting for it lets other tasks run."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def set(self) -> None:
        """Set the event."""
        self._is_set = True

    def is_set(self) -> bool:
        """Tell whether the event is set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the event or a timeout."""
        return self._is_set or self._scheduler.wait(self.is_set, timeout)


class SimulatedThread:
    """A `threading.Thread` of the current process."""

    def __init__(self, scheduler: Scheduler, call: Callable[[], None], name: str) -> None:
        self._scheduler = scheduler
        self._call = call
        self._name = name
        self._is_alive = False

    @staticmethod
    def of(scheduler: Scheduler) -> Callable[..., SimulatedThread]:
        """Return a constructor of threads."""
        return lambda *, target, name, daemon: SimulatedThread(scheduler, target, name)

    def start(self) -> None:
        """Start the thread."""
        self._is_alive = True
        self._scheduler.spawn(self._scheduler.current.process, self._name, self._work)

    def is_alive(self) -> bool:
        """Tell whether the thread has started and not ended."""
        return self._is_alive

    def join(self, timeout: float | None) -> None:
        """Wait for the end of the thread, up to a timeout."""
        self._scheduler.wait(lambda: not self._is_alive, timeout)

    def _work(self) -> None:
        self._call()
        self._is_alive = False


def _retry(scheduler: Scheduler) -> Callable[..., retry.Retry]:
    def simulated_retry(*args: Any, **kwargs: Any) -> retry.Retry:
        simulated: dict[str, Any] = {"clock": lambda: scheduler.now_ms / 1000, "pause": scheduler.sleep}
        return retry.Retry(*args, **{**kwargs, **simulated})

    return simulated_retry


def _time_of(scheduler: Scheduler) -> SimpleNamespace:
    return SimpleNamespace(
        monotonic=lambda: scheduler.now_ms / 1000,
        time_ns=lambda: int(scheduler.now_ms * 1_000_000),
        sleep=scheduler.sleep,
    )


@contextmanager
def patched_library(scheduler: Scheduler, seed: int) -> Iterator[None]:
    """Run the library on a scheduler's time and a seed's random numbers, in a block."""
    rng = random.Random(seed)
    replaced: list[tuple[Any, str, Any]] = [
        (shard_loader, "Event", lambda: SimulatedEvent(scheduler)),
        (watermark_publisher, "wait", wait_for_all),
        (background, "Event", lambda: SimulatedEvent(scheduler)),
        (background, "Thread", SimulatedThread.of(scheduler)),
        (backups, "Event", lambda: SimulatedEvent(scheduler)),
        (backups, "time", SimpleNamespace(monotonic=lambda: scheduler.now_ms / 1000)),
        (category_rows, "time", SimpleNamespace(monotonic=lambda: scheduler.now_ms / 1000)),
        (backups, "InterruptibleFileStore", lambda backups, _: backups),
        (backups, "shard_folder", backing_up.shard_of),
        (backups, "current", backing_up.database_of),
        (backups, "opened_read_only", backing_up.opened_read_only),
        (backups, "newest_position", backing_up.newest_position),
        (backups, "restore_shard", backing_up.restore),
        (backups, "backed_up_buckets", backing_up.backed_up_buckets),
        (backups, "StandbyCopies", backing_up.SimulatedCopies),
        (backups, "BackupScheduler", backing_up.SimulatedBackupScheduler),
        (backups, "RocksShardState", SimulatedState),
        (cloning, "install_clone", simulated_cloning.install_clone),
        (cloning, "expect_states", simulated_cloning.expect_stored),
        (restoring, "expect_states", simulated_cloning.expect_stored),
        (reset, "install_backup", simulated_restoring.install_backup),
        (reset, "store_backup", simulated_cloning.store_backup),
        (reset, "rewrite_changelog", simulated_cloning.rewrite_changelog),
        (restoring, "store_backup", simulated_cloning.store_backup),
        (restoring, "rewrite_changelog", simulated_cloning.rewrite_changelog),
        (maintenance_protocol, "time", _time_of(scheduler)),
        (bucket_opener, "ThreadPoolExecutor", SequentialExecutor),
        (segments, "ThreadPoolExecutor", SequentialExecutor),
        (archive_settings, "ThreadPoolExecutor", SequentialExecutor),
        (archiver, "Retry", _retry(scheduler)),
        (taking, "time", _time_of(scheduler)),
        (taking, "new_id", lambda: f"20261124T{int(scheduler.now_ms / 1000) % 10**6:06}-{rng.getrandbits(16):04x}"),
        (taking, "RETRY_FOR_S", snapshotting.RETRY_FOR_S),
        (retry, "random", rng),
        (kinds, "random", rng),
        (log_category, "DELETIONS", DELETIONS),
        (changelog_replay, "DELETIONS", DELETIONS),
        (checkpoints, "secrets", SimpleNamespace(randbits=rng.getrandbits)),
    ]
    cache = StateCache(CACHE_BYTES)
    replaced += [
        (module, "STATE_CACHE", cache) for module in (timers, stateful, sessions, sliding_history, window_values)
    ]
    with ExitStack() as stack:
        for module, name, replacement in (*replaced, *SMALL):
            stack.enter_context(patch.object(module, name, replacement))
        yield
