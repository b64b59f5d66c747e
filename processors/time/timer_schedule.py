"""A schedule of entries in order of time, in the saved state of a shard. It may exceed memory.

Entries after a horizon are only in the saved state. Entries before the horizon, and undrained entries, are also in a heap. When time
reaches the horizon, the schedule reads the next entries and moves the horizon.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from ..keyed_state import Changes, StateReader, decode_time, encode_time
from .watermarks import FOREVER_MS, NEVER_MS

READ_AHEAD = 1_000
"""The number of entries per read."""


class ScheduledEntry(NamedTuple):
    """A due entry.

    Args:
        at: its time (milliseconds since 1970, UTC).
        identifier: identifies the entry among entries of the same time, and orders them.
        value: its value.
    """

    at: int
    identifier: bytes
    value: bytes


class TimerSchedule:
    """Entries in order of time, over the saved state.

    Args:
        prefix: the prefix of their keys.
        saved: the shard's state, including all drained changes.
    """

    def __init__(self, prefix: bytes, saved: StateReader) -> None:
        self._prefix = prefix
        self._end = prefix + b"\xff" * 9
        self._saved = saved
        self._heap: list[bytes] = []
        self._values: dict[bytes, bytes] = {}  # entries of the heap; a removed entry stays in the heap without a value
        self._changes: Changes = {}
        self._horizon = prefix
        self._horizon_ms = NEVER_MS

    @property
    def next_ms(self) -> int:
        """A lower bound for the time of the next entry."""
        return min(self._at(self._heap[0]), self._horizon_ms) if self._heap else self._horizon_ms

    def add(self, at: int, identifier: bytes, value: bytes) -> None:
        """Add an entry. It replaces an entry with the same time and identifier."""
        key = self._key(at, identifier)
        if key not in self._values:
            heapq.heappush(self._heap, key)
        self._values[key] = self._changes[key] = value

    def remove(self, at: int, identifier: bytes) -> None:
        """Remove an entry, if it exists."""
        key = self._key(at, identifier)
        self._values.pop(key, None)
        self._changes[key] = None

    def values(self, entries: list[tuple[int, bytes]]) -> list[bytes | None]:
        """Return the value of each entry, by time and identifier; None for a missing entry."""
        encoded = [self._key(*entry) for entry in entries]
        saved = iter(self._saved.fetch([key for key in encoded if key not in self._changes]))
        return [self._changes[key] if key in self._changes else next(saved) for key in encoded]

    def pop(self, until_ms: int) -> ScheduledEntry | None:
        """Remove and return the next entry up to a time; None if there is none."""
        while self.next_ms <= until_ms:
            if not self._heap or self._heap[0] >= self._horizon:
                if self._horizon == self._end:
                    return None
                self._read_ahead()
                continue
            key = heapq.heappop(self._heap)
            value = self._values.pop(key, None)
            if value is not None:
                self._changes[key] = None
                return ScheduledEntry(self._at(key), key[len(self._prefix) + 8 :], value)
        return None

    def upcoming(self) -> list[bytes]:
        """Return the identifiers of the next entries, for reading ahead."""
        return [key[len(self._prefix) + 8 :] for key in self._heap[:READ_AHEAD]]

    def drain(self) -> Changes:
        """Return the changes since the last drain, and keep only the next entries in memory."""
        changes, self._changes = self._changes, {}
        self._heap = sorted(key for key in self._values if key < self._horizon)  # a sorted list is a heap
        if len(self._heap) > 2 * READ_AHEAD:
            del self._heap[READ_AHEAD:]
            self._move_horizon(self._heap[-1])
        self._values = {key: self._values[key] for key in self._heap}
        return changes

    def _read_ahead(self) -> None:
        """Read the next saved entries into the heap, and move the horizon after them."""
        found = self._saved.scan(self._horizon, self._end, READ_AHEAD)
        for key, value in found:
            if key not in self._changes:  # otherwise it is in the heap, or removed
                heapq.heappush(self._heap, key)
                self._values[key] = value
        if len(found) < READ_AHEAD:
            self._horizon, self._horizon_ms = self._end, FOREVER_MS
        else:
            self._move_horizon(found[-1][0])

    def _move_horizon(self, last: bytes) -> None:
        """Set the horizon after an entry: the heap contains all earlier entries."""
        self._horizon, self._horizon_ms = last + b"\x00", self._at(last)

    def _key(self, at: int, identifier: bytes) -> bytes:
        return self._prefix + encode_time(at) + identifier

    def _at(self, key: bytes) -> int:
        return decode_time(key[len(self._prefix) :])
