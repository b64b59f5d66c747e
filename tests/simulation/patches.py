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

from penstock.backfill.archive import archiver, bucket_opener, completeness, segments
from penstock.backfill.warehouse import archive_settings
from penstock.ops.change.clones import cloning
from penstock.ops.change.maintenance import reset
from penstock.ops.change.snapshots import restoring, taking
from penstock.ops.kernel.checkpoint import output_pace
from penstock.ops.kernel.event_time import watermark_publisher
from penstock.ops.kernel.loop import batch_intake, input_merger
from penstock.ops.kernel.shards import backups, changelog_replay, shard_loader
from penstock.processors import background, retry
from penstock.processors.declare import join_buffers
from penstock.processors.keyed_state import StateCache, window_values
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
from penstock.processors.time import timer_schedule, timers, watermarks
from penstock.state.backups import fetching, shard_backup, standby, writer
from penstock.state.backups import scheduler as backup_scheduler
from penstock.state.local import folder, rocksdb
from penstock.transport import category_rows
from penstock.transport import changelog as log_category
from penstock.transport.tables import maintenance_protocol

from . import backing_up, snapshotting
from . import cloning as simulated_cloning
from . import restoring as simulated_restoring
from .archiving import SequentialExecutor
from .disks import SimulatedState
from .rocks import options_without_threads
from .scheduler import Scheduler, SimulatedLock, wait_for_all

DELETIONS = timedelta(seconds=30)
"""How long a changelog retains deletions in a run, which is shorter than a month."""


SMALL: tuple[tuple[Any, str, int], ...] = (
    (timer_schedule, "READ_AHEAD", 3),
    (ordered_delivery, "DELIVERY_BATCH", 2),
    (sliding, "DUE_AT_ONCE", 2),
    (sliding_history, "CHUNK_VALUES", 3),
    (join_buffers, "CHUNK_EVENTS", 2),
    (early_results, "READ_AT_ONCE", 2),
    (panes, "READ_AT_ONCE", 2),
    (input_merger, "MIN_RUN", 2),
    (input_merger, "MAX_QUEUED", 8),
    (key_check, "KNOWN_KEYS", 3),
    (batch_intake, "LEAST_COLUMNS", 2),
    (output_pace, "MOST_PORTION", 64),
    (output_pace, "LEAST_PORTION", 4),
    (watermarks, "UPDATE_INTERVAL", 8),
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


def _retry(scheduler: Scheduler) -> Callable[..., retry.CallRetry]:
    def simulated_retry(*args: Any, **kwargs: Any) -> retry.CallRetry:
        simulated: dict[str, Any] = {"clock": lambda: scheduler.now_ms / 1000, "pause": scheduler.sleep}
        return retry.CallRetry(*args, **{**kwargs, **simulated})

    return simulated_retry


def _time_of(scheduler: Scheduler) -> SimpleNamespace:
    return SimpleNamespace(
        monotonic=lambda: scheduler.now_ms / 1000,
        time=lambda: scheduler.now_ms / 1000,
        time_ns=lambda: int(scheduler.now_ms * 1_000_000),
        sleep=scheduler.sleep,
    )


_SIMULATED_BACKUPS: list[tuple[Any, str, Any]] = [
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
]


def _around_real_backups(scheduler: Scheduler, rng: random.Random) -> list[tuple[Any, str, Any]]:
    """Return the time, the threads and the random numbers of the library's backups."""
    threads = SimpleNamespace(
        Thread=SimulatedThread.of(scheduler),
        Lock=lambda: SimulatedLock(scheduler),
        Condition=lambda: SimulatedLock(scheduler),
    )
    modules = (backup_scheduler, shard_backup, writer)
    checked_bytes = rng.choice((0, writer.CHECKED_BYTES))
    fetch_file = fetching._fetch_file

    def fetch_file_at_a_point(*args: Any) -> None:
        scheduler.point("restore file")
        fetch_file(*args)

    return [
        *((module, "threading", threads) for module in modules),
        *((module, "time", _time_of(scheduler)) for module in (*modules, folder, standby)),
        (backup_scheduler, "random", rng),
        (fetching, "ThreadPoolExecutor", SequentialExecutor),
        (fetching, "_fetch_file", fetch_file_at_a_point),
        (rocksdb, "_options", options_without_threads),
        (writer, "CHECKED_BYTES", checked_bytes),
    ]


@contextmanager
def patched_library(scheduler: Scheduler, seed: int, *, rocks: bool) -> Iterator[None]:
    """Run the library on a scheduler's time and a seed's random numbers, in a block; with simulated states, unless they are in RocksDB."""
    rng = random.Random(seed)
    replaced: list[tuple[Any, str, Any]] = [
        (shard_loader, "Event", lambda: SimulatedEvent(scheduler)),
        (watermark_publisher, "wait", wait_for_all),
        (background, "Event", lambda: SimulatedEvent(scheduler)),
        (background, "Thread", SimulatedThread.of(scheduler)),
        (backups, "Event", lambda: SimulatedEvent(scheduler)),
        (backups, "time", SimpleNamespace(monotonic=lambda: scheduler.now_ms / 1000)),
        (category_rows, "time", SimpleNamespace(monotonic=lambda: scheduler.now_ms / 1000)),
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
        (completeness, "ThreadPoolExecutor", SequentialExecutor),
        (segments, "ThreadPoolExecutor", SequentialExecutor),
        (archive_settings, "ThreadPoolExecutor", SequentialExecutor),
        (archiver, "CallRetry", _retry(scheduler)),
        (taking, "time", _time_of(scheduler)),
        (taking, "new_id", lambda: f"20261124T{int(scheduler.now_ms / 1000) % 10**6:06}-{rng.getrandbits(16):04x}"),
        (taking, "RETRY_FOR_S", snapshotting.RETRY_FOR_S),
        (retry, "random", rng),
        (kinds, "random", rng),
        (log_category, "DELETIONS", DELETIONS),
        (changelog_replay, "DELETIONS", DELETIONS),
        (checkpoints, "secrets", SimpleNamespace(randbits=rng.getrandbits)),
    ]
    replaced += _around_real_backups(scheduler, rng) if rocks else _SIMULATED_BACKUPS
    cache = StateCache(CACHE_BYTES)
    replaced += [
        (module, "STATE_CACHE", cache) for module in (timers, stateful, sessions, sliding_history, window_values)
    ]
    with ExitStack() as stack:
        for module, name, replacement in (*replaced, *SMALL):
            stack.enter_context(patch.object(module, name, replacement))
        yield
