"""The values of a shard's windows: recent ones in memory, all of them in the saved state."""

from __future__ import annotations

from collections.abc import Sequence

from .changes import Changes, StateReader
from .key_layout import ENGINE_PREFIX
from .state_cache import STATE_CACHE

CACHE_BYTES = 16 * 2**20
"""The memory for the values of one shard, in bytes; less if the shards of the process exceed their budget together."""

_ENTRY_BYTES = 200
"""The approximate memory of an entry besides its key and value."""
_START_BYTES = 8


class WindowValues:
    """Reads encoded values by window key. Values that a checkpoint has changed recently are read from memory.

    Most new keys are in new windows. As long as all values of a window are in memory, a key without a value there has none, and the
    saved state is not searched. Values are forgotten by generation, so that a read costs no bookkeeping.

    Args:
        saved: the shard's saved state, which contains each added value from then on.
        limit_bytes: the memory for values.
    """

    def __init__(self, saved: StateReader, limit_bytes: int = CACHE_BYTES) -> None:
        self._saved = saved
        self._limit_bytes = limit_bytes
        self._recent: dict[bytes, bytes] = {}
        self._older: dict[bytes, bytes] = {}
        self._recent_bytes = 0
        self._older_bytes = 0
        self._complete_from: bytes | None = None
        """All values of the windows with these starts, and later ones, are in memory; None if unknown."""

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key; None without one."""
        recent, older = self._recent, self._older
        found: list[bytes | None] = [recent.get(key) or older.get(key) for key in keys]
        missing = [key for key, value in zip(keys, found, strict=True) if value is None]
        if self._complete_from is None and missing:
            self._find_new_windows(max(missing)[:_START_BYTES])
        border = self._complete_from or ENGINE_PREFIX
        searched = [key for key in missing if key < border]
        if not searched:
            return found
        saved = dict(zip(searched, self._saved.fetch(searched), strict=True))
        return [saved.get(key) if value is None else value for key, value in zip(keys, found, strict=True)]

    def _find_new_windows(self, start: bytes) -> None:
        """If there is no saved window from this start on, all of their values will be in memory."""
        if not self._saved.scan(start, ENGINE_PREFIX, 1):
            self._complete_from = start

    def add(self, changes: Changes) -> None:
        """Remember changed values."""
        for key, value in changes.items():
            if value is not None:
                self._recent[key] = value
                self._recent_bytes += len(key) + len(value) + _ENTRY_BYTES
        is_over_budget = STATE_CACHE.must_forget(self, self._recent_bytes + self._older_bytes)
        if is_over_budget or self._recent_bytes > self._limit_bytes // 2:
            self._forget_older()

    def _forget_older(self) -> None:
        forgotten, self._older, self._recent = self._older, self._recent, {}
        self._older_bytes, self._recent_bytes = self._recent_bytes, 0
        newest = max((key for key in forgotten if key not in self._older), default=None)
        if newest is not None and self._complete_from is not None and newest >= self._complete_from:
            self._complete_from = _following(newest[:_START_BYTES])


def _following(start: bytes) -> bytes:
    return (int.from_bytes(start, "big") + 1).to_bytes(_START_BYTES, "big")
