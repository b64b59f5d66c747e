"""A worker returns the memory that it has freed."""

import ctypes

import psutil
import pytest

from penstock.ops.kernel.process.memory import TRIM_INTERVAL_S, FreedMemory

BLOCK_BYTES = 50_000
BLOCKS = 4_000


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the heap of glibc is trimmed, and this is another"
)
def test_freed_memory_between_used_memory_goes_back_to_the_system() -> None:
    """The memory of a finished load is returned, although some of its blocks are still in use."""
    now_s = 0.0
    freed = FreedMemory(clock=lambda: now_s)
    blocks = [bytes(BLOCK_BYTES) for _ in range(BLOCKS)]
    kept = blocks[::100]
    blocks.clear()
    before = _rss()
    freed.return_if_grown()
    assert _rss() > before - BLOCKS * BLOCK_BYTES // 2, "it was trimmed before the interval"

    now_s = TRIM_INTERVAL_S
    freed.return_if_grown()

    assert _rss() < before - BLOCKS * BLOCK_BYTES // 2
    assert len(kept) == BLOCKS // 100


def _rss() -> int:
    rss: int = psutil.Process().memory_info().rss
    return rss
