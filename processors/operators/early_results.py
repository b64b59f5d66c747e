"""Early results that are pending: which keys of open windows changed since they were last written. Part of the saved state.

    a key of an open window changed --> pending, and saved with the next checkpoint
    the interval is over            --> written, and pending no longer
    its window is complete          --> written as a whole, and pending no longer

Each pending key is saved with the time at which its result is due, so that a worker that takes over keeps to the interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from ..keyed_state.changes import Changes, StateReader
from ..keyed_state.key_layout import EARLY_RESULTS, decode_time, decode_window_key, encode_time, encode_window_key
from ..time.windows import MILLISECOND

READ_AT_ONCE = 10_000
"""How many saved entries are read at a time."""
_END = EARLY_RESULTS + b"\xff" * 9
_NOT_BEGUN = b""


class EarlyResults:
    """The pending early results of one shard.

    Args:
        every: the interval (time of day).
        saved: the shard's state, with all that was drained so far.
    """

    def __init__(self, every: timedelta, saved: StateReader) -> None:
        self._every_ms = every // MILLISECOND
        self._due_ms: int | None = None
        self._pending: dict[int, set[str]] = {}
        self._moved: Changes = {}
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
        """Note that these keys of a window changed."""
        pending = self._pending.setdefault(start, set())
        due = _NOT_BEGUN if self._due_ms is None else encode_time(self._due_ms)
        for key in keys:
            if key not in pending:
                pending.add(key)
                self._moved[_entry(key, start)] = due

    def drop(self, start: int) -> None:
        """Forget a window: it is written as a whole."""
        self._moved.update((_entry(key, start), None) for key in self._pending.pop(start, ()))

    def is_due(self, now_ms: int) -> bool:
        """Tell whether the interval is over at a time of day, and begin the next one if so."""
        if self._due_ms is not None and now_ms < self._due_ms:
            return False
        is_first, self._due_ms = self._due_ms is None, now_ms + self._every_ms
        return not is_first

    def take(self) -> list[tuple[int, list[str]]]:
        """Return the pending keys by start of window, in order; none is pending then."""
        taken = [(start, sorted(keys)) for start, keys in sorted(self._pending.items())]
        for start, _ in taken:
            self.drop(start)
        return taken

    def drain(self) -> Changes:
        """Hand over what changed since the last drain."""
        changes, self._moved = self._moved, {}
        return changes


def _entry(key: str, start: int) -> bytes:
    return EARLY_RESULTS + encode_window_key(key, start)
