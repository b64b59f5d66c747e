"""What is to be done at times, kept with a shard's state, however much it is.

Entries beyond a horizon lie in the saved state only. Those before it, and those that no checkpoint has taken yet, are in a heap
as well; when time reaches the horizon, the next ones are read.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from ..keyed_state.changes import Changes, StateReader
from ..keyed_state.key_layout import decode_time, encode_time
from .watermarks import FOREVER_MS, NEVER_MS

READ_AHEAD = 1_000
"""How many entries are read at a time."""


class ScheduledEntry(NamedTuple):
    """An entry that is due.

    Args:
        at: its time (milliseconds since 1970, UTC).
        what: what tells entries of one time apart, and orders them.
        value: what was kept with it.
    """

    at: int
    what: bytes
    value: bytes


class TimerSchedule:
    """Entries in order of time, over saved state.

    Args:
        space: where their keys begin.
        saved: the shard's state, with all that was drained so far.
    """

    def __init__(self, space: bytes, saved: StateReader) -> None:
        self._space = space
        self._end = space + b"\xff" * 9
        self._saved = saved
        self._heap: list[bytes] = []
        self._values: dict[bytes, bytes] = {}  # of those in the heap; one that was removed is in the heap only
        self._moved: Changes = {}
        self._horizon = space
        self._horizon_ms = NEVER_MS

    @property
    def next_ms(self) -> int:
        """When it may be worth asking for entries that are due: not after the earliest of them."""
        return min(self._at(self._heap[0]), self._horizon_ms) if self._heap else self._horizon_ms

    def add(self, at: int, what: bytes, value: bytes) -> None:
        """Add an entry, in place of one that is equal."""
        key = self._key(at, what)
        if key not in self._values:
            heapq.heappush(self._heap, key)
        self._values[key] = self._moved[key] = value

    def remove(self, at: int, what: bytes) -> None:
        """Forget an entry; nothing where there is none."""
        key = self._key(at, what)
        self._values.pop(key, None)
        self._moved[key] = None

    def values(self, keys: list[tuple[int, bytes]]) -> list[bytes | None]:
        """Return what is kept with these entries, None where there is none."""
        encoded = [self._key(*key) for key in keys]
        saved = iter(self._saved.fetch([key for key in encoded if key not in self._moved]))
        return [self._moved[key] if key in self._moved else next(saved) for key in encoded]

    def pop(self, until_ms: int) -> ScheduledEntry | None:
        """Take the next entry up to a time; None where none is left."""
        while self.next_ms <= until_ms:
            if not self._heap or self._heap[0] >= self._horizon:
                if self._horizon == self._end:
                    return None
                self._read_ahead()
                continue
            key = heapq.heappop(self._heap)
            value = self._values.pop(key, None)
            if value is not None:
                self._moved[key] = None
                return ScheduledEntry(self._at(key), key[len(self._space) + 8 :], value)
        return None

    def soon(self) -> list[bytes]:
        """Return what the next entries are about, for whoever wants to read ahead for them."""
        return [key[len(self._space) + 8 :] for key in self._heap[:READ_AHEAD]]

    def drain(self) -> Changes:
        """Hand over what changed since the last drain, and remember no more than the next entries."""
        changes, self._moved = self._moved, {}
        self._heap = sorted(key for key in self._values if key < self._horizon)  # a sorted list is a heap
        if len(self._heap) > 2 * READ_AHEAD:
            del self._heap[READ_AHEAD:]
            self._move_horizon(self._heap[-1])
        self._values = {key: self._values[key] for key in self._heap}
        return changes

    def _read_ahead(self) -> None:
        """Bring the next saved entries into the heap, and move the horizon behind them."""
        found = self._saved.scan(self._horizon, self._end, READ_AHEAD)
        for key, value in found:
            if key not in self._moved:  # else it is in the heap already, or removed
                heapq.heappush(self._heap, key)
                self._values[key] = value
        if len(found) < READ_AHEAD:
            self._horizon, self._horizon_ms = self._end, FOREVER_MS
        else:
            self._move_horizon(found[-1][0])

    def _move_horizon(self, last: bytes) -> None:
        """All entries up to one, and those that no drain has taken, are in the heap."""
        self._horizon, self._horizon_ms = last + b"\x00", self._at(last)

    def _key(self, at: int, what: bytes) -> bytes:
        return self._space + encode_time(at) + what

    def _at(self, key: bytes) -> int:
        return decode_time(key[len(self._space) :])
