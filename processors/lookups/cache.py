"""Rows that were fetched before: the least recently used go first, and none gets older than is declared."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from ..errors import DeclarationError
from .protocols import InvalidRow


@dataclass(frozen=True)
class Cached:
    """How many rows are remembered, and for how long.

    Args:
        keys: of how many keys.
        fresh: how long a row counts.
        missing: how long it counts that a key has no row, or one that does not fit.

    Raises:
        DeclarationError: one of them is not above zero.
    """

    keys: int = 100_000
    fresh: timedelta = timedelta(minutes=10)
    missing: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        if self.keys < 1 or self.fresh <= timedelta() or self.missing <= timedelta():
            raise DeclarationError(
                f"{self}: a cache that remembers nothing. Each limit must be above zero; to ask for every batch anew, declare `cache = None`."
            )


class _Remembered(NamedTuple):
    row: Any
    until_s: float


class Known(NamedTuple):
    """What is remembered of some keys.

    Args:
        rows: by key; None for a key without one.
        lacking: the keys of which nothing is remembered.
    """

    rows: dict[str, Any]
    lacking: list[str]


class Cache:
    """Remembers rows for one process.

    Args:
        limits: how many, and for how long.
        now_s: seconds, steadily growing.
    """

    def __init__(self, limits: Cached, now_s: Callable[[], float]) -> None:
        self._keys = limits.keys
        self._fresh_s = limits.fresh.total_seconds()
        self._missing_s = limits.missing.total_seconds()
        self._now_s = now_s
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()

    def known(self, keys: Iterable[str]) -> Known:
        """Return what is remembered; what is too old is forgotten."""
        now_s, rows = self._now_s(), dict[str, Any]()
        lacking: list[str] = []
        for key in keys:
            found = self._remembered.get(key)
            if found is not None and now_s < found.until_s:
                self._remembered.move_to_end(key)
                rows[key] = found.row
            else:
                self._remembered.pop(key, None)
                lacking.append(key)
        return Known(rows, lacking)

    def remember(self, asked: Iterable[str], rows: Mapping[str, Any]) -> None:
        """Remember what was found of the keys that were asked for, and what was not."""
        now_s = self._now_s()
        for key in asked:
            row = rows.get(key)
            lasts_s = self._missing_s if row is None or isinstance(row, InvalidRow) else self._fresh_s
            self._remembered[key] = _Remembered(row, now_s + lasts_s)
            self._remembered.move_to_end(key)
        while len(self._remembered) > self._keys:
            self._remembered.popitem(last=False)


class NoCache:
    """Remembers nothing."""

    def known(self, keys: Iterable[str]) -> Known:
        """Return that all is lacking."""
        return Known({}, list(keys))

    def remember(self, asked: Iterable[str], rows: Mapping[str, Any]) -> None:
        """Do nothing."""
