"""The results of one processor in memory, by key and by window."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ....processors.time import Window

KEPT_RANKINGS = 256
"""The number of rankings that a table remembers until a result changes."""


class Result(NamedTuple):
    """The current result of a key in a window.

    Args:
        key: the key.
        slot: identifies the window among those of the key: its start, or the event time of a result without a known window.
        window: the window; None for the global window, or if it does not follow from the event time.
        event_time: the event time of the result (milliseconds since 1970, UTC).
        records: the records; several if a later processor makes several of each result.
    """

    key: str
    slot: int
    window: Window | None
    event_time: int
    records: Sequence[Any]

    @property
    def end(self) -> int:
        """The end of its window; without a window, the time after its event time."""
        return self.event_time + 1 if self.window is None else self.window.end


class RankedResults(NamedTuple):
    """A record with its place in a ranking.

    Args:
        result: the result that contains the record.
        record: the record.
    """

    result: Result
    record: Any


class ResultTable:
    """The results of a processor. A later result of a key and slot replaces the earlier one. For one thread at a time."""

    def __init__(self) -> None:
        self._panes: dict[int, dict[str, Result]] = {}
        self._changed_ms: dict[int, int] = {}
        self._slots: list[int] = []
        self._slots_of: dict[str, list[int]] = {}
        self._count = 0
        self._rankings: dict[tuple[str | int, ...], list[RankedResults]] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def key_count(self) -> int:
        """The number of keys."""
        return len(self._slots_of)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The first and the last slot; None without results."""
        return (self._slots[0], self._slots[-1]) if self._slots else None

    def put(self, result: Result, arrived_ms: int) -> None:
        """Store a result; one without records removes the earlier one.

        Args:
            result: the result.
            arrived_ms: when its message arrived (milliseconds since 1970, UTC).
        """
        if not result.records:
            self._remove(result.key, result.slot)
            return
        pane = self._panes.get(result.slot)
        if pane is None:
            pane = self._panes[result.slot] = {}
            insort(self._slots, result.slot)
        if result.key not in pane:
            insort(self._slots_of.setdefault(result.key, []), result.slot)
            self._count += 1
        pane[result.key] = result
        self._rankings.clear()
        self._changed_ms[result.slot] = max(arrived_ms, self._changed_ms.get(result.slot, arrived_ms))

    def drop_key(self, key: str) -> None:
        """Remove all results of a key."""
        for slot in list(self._slots_of.get(key, ())):
            self._remove(key, slot)

    def drop_unchanged(self, since_ms: int) -> None:
        """Remove windows without a change since a time of arrival (milliseconds since 1970, UTC)."""
        for slot in [slot for slot, changed_ms in self._changed_ms.items() if changed_ms < since_ms]:
            for key in list(self._panes[slot]):
                self._remove(key, slot)

    def _remove(self, key: str, slot: int) -> None:
        pane = self._panes.get(slot)
        if pane is None or pane.pop(key, None) is None:
            return
        self._count -= 1
        self._rankings.clear()
        slots = self._slots_of[key]
        del slots[bisect_left(slots, slot)]
        if not slots:
            del self._slots_of[key]
        if not pane:
            del self._panes[slot], self._changed_ms[slot]
            del self._slots[bisect_left(self._slots, slot)]

    def known(self, spellings: Sequence[str]) -> str:
        """Return the first of these keys with a result; the first one if there is none."""
        return next((key for key in spellings if key in self._slots_of), spellings[0])

    def latest(self, key: str) -> Result | None:
        """Return the result of a key in its last window; None without one."""
        slots = self._slots_of.get(key)
        return self._panes[slots[-1]][key] if slots else None

    def in_slots(self, key: str, slots: Iterable[int]) -> list[Result]:
        """Return the results of a key in these slots."""
        found = (self._panes.get(slot, {}).get(key) for slot in slots)
        return [result for result in found if result is not None]

    def overlapping(self, key: str, begin_ms: int, end_ms: int) -> Iterator[Result]:
        """Yield the results of a key whose windows overlap a time span, the last one first."""
        slots = self._slots_of.get(key, [])
        for at in range(bisect_left(slots, end_ms) - 1, -1, -1):
            result = self._panes[slots[at]][key]
            if result.end <= begin_ms:
                return  # windows that begin earlier do not end later
            yield result

    def slots_overlapping(self, begin_ms: int, end_ms: int) -> list[int]:
        """Return the slots whose windows overlap a time span, in order."""
        found = []
        for at in range(bisect_left(self._slots, end_ms) - 1, -1, -1):
            slot = self._slots[at]
            if next(iter(self._panes[slot].values())).end <= begin_ms:
                break
            found.append(slot)
        return found[::-1]

    def last_slots(self, count: int) -> list[int]:
        """Return the last slots, in order."""
        return self._slots[-count:]

    def pane(self, slot: int) -> Iterable[Result]:
        """Return the results of all keys in a slot."""
        return self._panes.get(slot, {}).values()

    def top(self, slots: Iterable[int], by: str, weight: Callable[[Any], float], count: int) -> list[RankedResults]:
        """Return the records with the largest weights in these slots, the largest first; equal ones in order of slot and key.

        A repeated ranking costs nothing until a result changes: many pages ask for the same one.

        Args:
            slots: the slots.
            by: identifies the weight.
            weight: returns the weight of a record.
            count: the largest number of records.
        """
        chosen = tuple(slots)
        asked: tuple[str | int, ...] = (by, count, *chosen)
        if asked not in self._rankings:
            if len(self._rankings) >= KEPT_RANKINGS:
                self._rankings.clear()
            self._rankings[asked] = self._ranked(chosen, weight, count)
        return self._rankings[asked]

    def _ranked(self, slots: Iterable[int], weight: Callable[[Any], float], count: int) -> list[RankedResults]:
        ranked = (
            RankedResults(result, record) for slot in slots for result in self.pane(slot) for record in result.records
        )
        return heapq.nsmallest(count, ranked, lambda each: (-weight(each.record), each.result.slot, each.result.key))

    def keys(self, after: str, prefix: str, limit: int, slots: Sequence[int] | None) -> list[str]:
        """Return keys in order.

        Args:
            after: only keys after this one.
            prefix: only keys that begin with this text.
            limit: the largest number of keys.
            slots: only keys with a result in one of these slots; None for all keys.
        """
        keys: Iterable[str] = (
            self._slots_of if slots is None else {key for slot in slots for key in self._panes.get(slot, ())}
        )
        return heapq.nsmallest(limit, (key for key in keys if key > after and key.startswith(prefix)))
