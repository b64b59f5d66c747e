"""The few places where the library reaches for the machine's own time, chance or threads: here it is given the simulation's.

Most of the library is told the time and given its threads by whoever makes it. These modules help themselves, so their names are replaced
while a simulation runs. All that the simulation knows of their insides is in this list.
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
from penstock.ops.worker import (
    backups,
    changelog_replay,
    input_merger,
    shard_loader,
    transaction_sweeper,
    watermark_publisher,
)
from penstock.processors import retry
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
from penstock.transport import changelog as log_category

from . import backing_up as ours
from .archiving import OneByOne
from .disks import SimulatedState
from .scheduler import Scheduler, settled

DELETIONS = timedelta(seconds=30)
"""For how long a changelog says that a key was deleted: a run lasts no month."""


SMALL: tuple[tuple[Any, str, int], ...] = (
    (timer_schedule, "READ_AHEAD", 3),
    (timers, "CACHED_KEYS", 2),
    (stateful, "CACHED_KEYS", 2),
    (sessions, "CACHED_KEYS", 2),
    (ordered_delivery, "DELIVERY_BATCH", 2),
    (sliding, "DUE_AT_ONCE", 2),
    (sliding_history, "CHUNK_VALUES", 3),
    (sliding_history, "CACHED_VALUES", 12),
    (early_results, "READ_AT_ONCE", 2),
    (panes, "READ_AT_ONCE", 2),
    (input_merger, "MIN_RUN", 2),
    (input_merger, "MAX_QUEUED", 8),
    (key_check, "KNOWN_KEYS", 3),
)
"""How much the library holds, reads or gives on at once: a run has too few events to reach what is usual."""


class SimulatedEvent:
    """A `threading.Event` for which one waits by giving the baton away."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def set(self) -> None:
        """Set it."""
        self._is_set = True

    def is_set(self) -> bool:
        """Tell whether it is set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for a time."""
        return self._is_set or self._scheduler.wait(self.is_set, timeout)


class SimulatedThread:
    """A `threading.Thread` of the process that makes it."""

    def __init__(self, scheduler: Scheduler, call: Callable[[], None], name: str) -> None:
        self._scheduler = scheduler
        self._call = call
        self._name = name

    @staticmethod
    def of(scheduler: Scheduler) -> Callable[..., SimulatedThread]:
        """Return what makes threads."""
        return lambda *, target, name, daemon: SimulatedThread(scheduler, target, name)

    def start(self) -> None:
        """Begin."""
        self._scheduler.spawn(self._scheduler.current.process, self._name, self._call)


def _retry(scheduler: Scheduler) -> Callable[..., retry.Retry]:
    def simulated_retry(*args: Any, **kwargs: Any) -> retry.Retry:
        ours: dict[str, Any] = {"clock": lambda: scheduler.now_ms / 1000, "pause": scheduler.sleep}
        return retry.Retry(*args, **{**kwargs, **ours})

    return simulated_retry


@contextmanager
def steered(scheduler: Scheduler, seed: int) -> Iterator[None]:
    """Let all of the library go by a scheduler's time, and by chance that comes of a seed."""
    lots = random.Random(seed)
    replaced: list[tuple[Any, str, Any]] = [
        (shard_loader, "Event", lambda: SimulatedEvent(scheduler)),
        (watermark_publisher, "wait", settled),
        (transaction_sweeper, "Event", lambda: SimulatedEvent(scheduler)),
        (transaction_sweeper, "Thread", SimulatedThread.of(scheduler)),
        (backups, "Event", lambda: SimulatedEvent(scheduler)),
        (backups, "time", SimpleNamespace(monotonic=lambda: scheduler.now_ms / 1000)),
        (backups, "InterruptibleFileStore", lambda backups, _: backups),
        (backups, "shard_folder", ours.shard_of),
        (backups, "current", ours.database_of),
        (backups, "opened_read_only", ours.seen),
        (backups, "newest_position", ours.newest_position),
        (backups, "restore_shard", ours.restore),
        (backups, "BackupScheduler", ours.Keeper),
        (backups, "RocksShardState", SimulatedState),
        (bucket_opener, "ThreadPoolExecutor", OneByOne),
        (segments, "ThreadPoolExecutor", OneByOne),
        (archive_settings, "ThreadPoolExecutor", OneByOne),
        (archiver, "Retry", _retry(scheduler)),
        (retry, "random", lots),
        (kinds, "random", lots),
        (log_category, "DELETIONS", DELETIONS),
        (changelog_replay, "DELETIONS", DELETIONS),
        (checkpoints, "secrets", SimpleNamespace(randbits=lots.getrandbits)),
    ]
    with ExitStack() as stack:
        for module, name, replacement in (*replaced, *SMALL):
            stack.enter_context(patch.object(module, name, replacement))
        yield
