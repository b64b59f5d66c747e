"""Timers per key, saved with the state.

    set, cancel  ->  the table of the key {tag: time}, and one entry at (time, key, tag)
    time passes  ->  due entries, in order of time, key and tag

Source: Akidau et al., "MillWheel", 2013, section 4.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import NamedTuple

import msgspec

from ..keyed_state import ENTRY_BYTES, STATE_CACHE, Changes, StateReader, decode_pair, encode_pair, key_layout
from .timer_schedule import TimerSchedule
from .watermarks import FOREVER_MS

_ENTRY = b"\x01"
_encode_table = msgspec.msgpack.Encoder().encode
_decode_table = msgspec.msgpack.Decoder(dict[str, int]).decode


class Clock(Enum):
    """The clock of a timer."""

    EVENT = "event time"
    """Event time: the timer fires when the low watermark of the shard reaches its time."""
    WALL = "time of day"
    """Wall-clock time of the worker's machine."""


class Timer(NamedTuple):
    """A due timer.

    Args:
        at: its time (milliseconds since 1970, UTC).
        tag: its tag, unique per key and clock.
        clock: its clock.
    """

    at: int
    tag: str
    clock: Clock


class Due(NamedTuple):
    """A due timer and its key."""

    key: str
    timer: Timer


_SPACES = {
    Clock.EVENT: (key_layout.EVENT_TIMERS, key_layout.EVENT_TIMERS_OF),
    Clock.WALL: (key_layout.WALL_TIMERS, key_layout.WALL_TIMERS_OF),
}


def pending(saved: StateReader, key: str | None, limit: int) -> list[Due]:
    """Return the next saved timers of one key or of all keys: event-time timers first, then wall-clock timers."""
    return [due for clock in Clock for due in islice(_pending(clock, saved, key), limit)]


def _pending(clock: Clock, saved: StateReader, key: str | None) -> Iterator[Due]:
    timers = Timers(clock, saved)
    if key is not None:
        ordered = sorted((at, tag) for tag, at in timers.of(key).items())
        return iter([Due(key, Timer(at, tag, clock)) for at, tag in ordered])
    return timers.due(FOREVER_MS)  # without a drain, the saved timers stay


class Timers:
    """The timers of one shard and one clock.

    Args:
        clock: the clock.
        saved: the saved state of the shard, with all drained changes.
    """

    def __init__(self, clock: Clock, saved: StateReader) -> None:
        entries, self._tables_at = _SPACES[clock]
        self._clock = clock
        self._saved = saved
        self._schedule = TimerSchedule(entries, saved)
        self._tables: dict[str, dict[str, int]] = {}
        self._changed: set[str] = set()

    @property
    def next_ms(self) -> int:
        """A lower bound for the time of the next timer."""
        return self._schedule.next_ms

    def load(self, keys: Iterable[str]) -> None:
        """Load the tables of these keys in one read."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._tables]
        encoded = self._saved.fetch([self._tables_at + key.encode() for key in missing])
        for key, table in zip(missing, encoded, strict=True):
            self._tables[key] = {} if table is None else _decode_table(table)

    def set(self, key: str, tag: str, at: int) -> None:
        """Set the timer of a key and tag. It replaces an existing one."""
        table = self._table(key)
        if table.get(tag) != at:
            self._remove(key, tag, table)
            table[tag] = at
            self._schedule.add(at, encode_pair(key, tag), _ENTRY)
            self._changed.add(key)

    def cancel(self, key: str, tag: str) -> None:
        """Cancel the timer of a key and tag, if there is one."""
        self._remove(key, tag, self._table(key))

    def of(self, key: str) -> dict[str, int]:
        """Return the times of a key's timers, by tag."""
        return dict(self._table(key))

    def due(self, now_ms: int) -> Iterator[Due]:
        """Yield the timers up to a time once each, in order, including timers set meanwhile."""
        while (entry := self._schedule.pop(now_ms)) is not None:
            key, tag = decode_pair(entry.identifier)
            if key not in self._tables:
                self.load([key, *self.upcoming()])
            self._remove(key, tag, self._tables[key])
            yield Due(key, Timer(entry.at, tag, self._clock))

    def upcoming(self) -> list[str]:
        """Return the keys of the next timers, for reading ahead."""
        return [decode_pair(identifier)[0] for identifier in self._schedule.upcoming()]

    def drain(self) -> Changes:
        """Return the changes since the last drain, and trim the caches."""
        changes = self._schedule.drain()
        for key in self._changed:
            table = self._tables[key]
            changes[self._tables_at + key.encode()] = _encode_table(table) if table else None
        self._changed = set()
        if STATE_CACHE.must_forget(self, len(self._tables) * ENTRY_BYTES):
            self._tables.clear()
        return changes

    def _table(self, key: str) -> dict[str, int]:
        if key not in self._tables:
            self.load([key])
        return self._tables[key]

    def _remove(self, key: str, tag: str, table: dict[str, int]) -> None:
        at = table.pop(tag, None)
        if at is not None:
            self._schedule.remove(at, encode_pair(key, tag))
            self._changed.add(key)
