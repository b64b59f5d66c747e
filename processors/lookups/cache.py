"""A bounded cache of lookup rows with expiry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from ..errors import DeclarationError
from ..validation import expect_types
from .protocols import InvalidRow


@dataclass(frozen=True)
class Cached:
    """The limits of a lookup cache, one cache per process. The least recently used rows are evicted first.

    Args:
        max_keys: the maximum number of keys in the cache.
        ttl: how long a row stays valid.
        missing_ttl: how long a missing row, or a row of the wrong type, stays cached.

    Raises:
        DeclarationError: a limit is not greater than zero.

    Examples:
        >>> Cached(max_keys=1_000, ttl=timedelta(minutes=5)).missing_ttl
        datetime.timedelta(seconds=60)
    """

    max_keys: int = 100_000
    ttl: timedelta = timedelta(minutes=10)
    missing_ttl: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        expect_types("Cached(…)", self)
        if self.max_keys < 1 or self.ttl <= timedelta() or self.missing_ttl <= timedelta():
            raise DeclarationError(
                f"{self} would cache nothing. Each limit must be greater than zero. To fetch the rows of every batch, declare `cache = None`."
            )


class _Entry(NamedTuple):
    row: Any
    expires_s: float


class CachedRows(NamedTuple):
    """The result of a cache request.

    Args:
        rows: the cached row of each key; None for a key that has no row.
        missing: the keys that are not in the cache.
    """

    rows: dict[str, Any]
    missing: list[str]


class Cache:
    """A least-recently-used cache of rows, for one process and one thread.

    Args:
        limits: the size and the expiry times.
        now_s: a monotonic clock, in seconds.
    """

    def __init__(self, limits: Cached, now_s: Callable[[], float]) -> None:
        self._max_keys = limits.max_keys
        self._ttl_s = limits.ttl.total_seconds()
        self._missing_ttl_s = limits.missing_ttl.total_seconds()
        self._now_s = now_s
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def get(self, keys: Iterable[str]) -> CachedRows:
        """Return the cached rows of `keys`, and evict expired ones."""
        now_s, rows = self._now_s(), dict[str, Any]()
        missing: list[str] = []
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None and now_s < entry.expires_s:
                self._entries.move_to_end(key)
                rows[key] = entry.row
            else:
                self._entries.pop(key, None)
                missing.append(key)
        return CachedRows(rows, missing)

    def put(self, keys: Iterable[str], rows: Mapping[str, Any]) -> None:
        """Cache the fetched row of each key, or that the key has no row."""
        now_s = self._now_s()
        for key in keys:
            row = rows.get(key)
            ttl_s = self._missing_ttl_s if row is None or isinstance(row, InvalidRow) else self._ttl_s
            self._entries[key] = _Entry(row, now_s + ttl_s)
            self._entries.move_to_end(key)
        while len(self._entries) > self._max_keys:
            self._entries.popitem(last=False)


class NoCache:
    """A cache that is always empty."""

    def get(self, keys: Iterable[str]) -> CachedRows:
        """Return every key as missing."""
        return CachedRows({}, list(keys))

    def put(self, keys: Iterable[str], rows: Mapping[str, Any]) -> None:
        """Do nothing."""
