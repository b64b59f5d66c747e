"""The memory of Python code in Spark's tasks. Spark runs one task for each core, and gives all of them less than half a GiB by default."""

from __future__ import annotations

import ctypes
from functools import cache

import pyarrow as pa

MAPPED_BYTES = 256 * 2**10
"""Larger allocations are pages of their own."""
_M_MMAP_THRESHOLD = -3  # of malloc.h


@cache
def return_freed_memory() -> None:
    """Make this process return large freed allocations to the system at once: columns of batches, and buffers of RocksDB.

    Arrow's own allocator keeps them for later ones, and so does glibc, whose threshold grows with the first large allocation. On systems
    without glibc, only the former is changed.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is not None:
        setting(_M_MMAP_THRESHOLD, MAPPED_BYTES)
