"""Pending early results: the keys of incomplete windows that changed since their last result. Part of the saved state.

    a key of an incomplete window changes --> pending; saved with the next checkpoint
    the interval ends                     --> written; no longer pending
    the window is complete                --> the whole window is written; no longer pending

Each pending key is saved with the due time of its result, so that the next owner of the shard keeps the interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from ..keyed_state import (
    EARLY_RESULTS,
    Changes,
    StateReader,
    decode_time,
    decode_window_key,
    encode_time,
    encode_window_key,
)
from ..time import MILLISECOND

READ_AT_ONCE = 10_000
"""The number of saved entries per read."""
_END = EARLY_RESULTS + b"\xff" * 9
_NOT_BEGUN = b""


class EarlyResults:
    """The pending early results of one shard.

    Args:
        every: the interval, in wall-clock time.
        saved: the shard's state, including all drained changes.
    """

    def __init__(self, every: timedelta, saved: StateReader) -> None:
        self._every_ms = every // MILLISECOND
        self._due_ms: int | None = None
        self._pending: dict[int, set[str]] = {}
        self._changes: Changes = {}
        self._load(saved)

    def _load(self, saved: StateReader) -> None:
        begin = EARLY_RESULTS
        while entries := saved.scan(begin, _END, READ_AT_ONCE):
            for entry, due in entries:
                key, start = decode_window_key(entry[len(EARLY_RESULTS) :])
                self._pending.setdefault(start, set()).add(key)
                if due != _NOT_BEGUN:
                    due_ms = decode_time(due)
                    self._due_ms = due_ms if self._due_ms is None else min(due_ms, self._due_ms)
            begin = entries[-1][0] + b"\x00"

    def add(self, start: int, keys: Iterable[str]) -> None:
        """Mark these keys of a window as changed."""
        pending = self._pending.setdefault(start, set())
        due = _NOT_BEGUN if self._due_ms is None else encode_time(self._due_ms)
        for key in keys:
            if key not in pending:
                pending.add(key)
                self._changes[_entry(key, start)] = due

    def drop(self, start: int) -> None:
        """Remove the pending results of a window."""
        self._changes.update((_entry(key, start), None) for key in self._pending.pop(start, ()))

    def is_due(self, now_ms: int) -> bool:
        """Return whether the interval is over. If so, the next one begins.

        A due time after the next interval comes from a clock that was ahead: the results are due now, not when the time reaches it.
        """
        if self._due_ms is not None and now_ms < self._due_ms <= now_ms + self._every_ms:
            return False
        is_first, self._due_ms = self._due_ms is None, now_ms + self._every_ms
        return not is_first

    def take(self) -> list[tuple[int, list[str]]]:
        """Return the pending keys by start of window, in order, and remove them."""
        pending = [(start, sorted(keys)) for start, keys in sorted(self._pending.items())]
        for start, _ in pending:
            self.drop(start)
        return pending

    def drain(self) -> Changes:
        """Return the changes since the last drain."""
        changes, self._changes = self._changes, {}
        return changes


def _entry(key: str, start: int) -> bytes:
    return EARLY_RESULTS + encode_window_key(key, start)
