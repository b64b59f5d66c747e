"""The memory of a worker: how much it may use for states, how it is allocated, and the return of what it has freed."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from pathlib import Path

import psutil

SHARE = 32
"""The default is this fraction of the memory: several workers of an app may share a machine."""
LEAST_BYTES = 32 * 2**20
MOST_BYTES = 256 * 2**20
TRIM_INTERVAL_S = 10.0
TRIM_GROWTH_BYTES = 64 * 2**20
"""Less growth since the last trim is not worth the walk over the heap."""
YOUNG_OBJECTS = 200_000
HEAPS = 2
"""glibc gives each thread a heap of its own, up to eight for each core, and memory that another thread frees stays in it."""
_M_ARENA_MAX = -8  # of malloc.h
_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def default_memory_bytes(limits: tuple[Path, ...] = _CONTAINER_LIMITS) -> int:
    """Return the default memory for decoded states, which is also that for RocksDB, in bytes.

    Args:
        limits: files with the memory limit of the container, of which any may be missing or contain no number.
    """
    total = min([psutil.virtual_memory().total, *filter(None, map(_limit_of, limits))])
    return max(LEAST_BYTES, min(MOST_BYTES, total // SHARE))


def tune_memory() -> None:
    """Make the cyclic garbage collector run rarely, and the threads share heaps, in a process that only runs a worker or an archiver.

    The collector inspects a batch's tens of thousands of objects repeatedly, although all of them are still needed. That took a sixth of the
    time of a counting worker. Reference cycles are still collected, later. Shared heaps take 25 to 40 MiB less.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 50, 100)
    limit = getattr(ctypes.CDLL(None), "mallopt", None)
    if limit is not None:
        limit(_M_ARENA_MAX, HEAPS)


class FreedMemory:
    """Returns freed memory to the system when this process has grown.

    RocksDB, Python and the Kafka client free memory in another order than they allocate it. The heap of glibc then keeps pages that contain
    nothing, until it is trimmed: of a worker that had built 2,000,000 states in 64 shards, it kept 500 of 860 MiB.
    On systems without glibc, nothing is done.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._process = psutil.Process()
        self._clock = clock
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._least_bytes = self._process.memory_info().rss
        self._due_s = clock() + TRIM_INTERVAL_S

    def return_if_grown(self) -> None:
        """Trim the heap, at most every 10 s, and only after the process has grown by 64 MiB."""
        now_s = self._clock()
        if now_s < self._due_s or self._trim is None:
            return
        self._due_s = now_s + TRIM_INTERVAL_S
        if self._process.memory_info().rss > self._least_bytes + TRIM_GROWTH_BYTES:
            self._trim(0)
            self._least_bytes = self._process.memory_info().rss


def _limit_of(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
