"""Idle buckets of a category, as the bus has confirmed to this archiver.

    every second: get the ends of quiet buckets -> equal to the read offset: still silent; greater: active
    silent for `idle_after` -> idle, until an event arrives or the bus does not answer

A bucket of another archiver counts as read up to that archiver's note. So a dead archiver's view of idleness is never used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from math import inf

from ...processors.time.idleness import IdleDetector, IdleTimeout
from ...transport.bus import Bus
from ...transport.messages import Bucket


class IdleBuckets:
    """Tracks the silence of a category's buckets.

    Args:
        bus: the bus.
        category: its name.
        idle_after: how long an idle bucket has been silent; None if buckets never become idle.
        monotonic_s: seconds that include the machine's sleep.
    """

    def __init__(self, bus: Bus, category: str, idle_after: timedelta | None, monotonic_s: Callable[[], float]) -> None:
        self._bus = bus
        self._category = category
        self._patience = IdleTimeout(inf if idle_after is None else idle_after.total_seconds())
        self._is_asked_for = idle_after is not None
        self._monotonic_s = monotonic_s
        self._asked_s = -inf
        self._silences: dict[int, IdleDetector] = {}
        self._noted: dict[int, int] = {}

    def interrupt(self, numbers: Iterable[int]) -> None:
        """Record that events arrived, or that a bucket was opened again."""
        now_s = self._monotonic_s()
        for number in numbers:
            self._of(number).interrupt(now_s)

    def follow(self, noted: Mapping[int, int]) -> frozenset[int]:
        """Record the progress of other archivers' buckets, from their notes. Return the buckets that have advanced."""
        moved = frozenset(number for number, offset in noted.items() if self._noted.get(number, offset) != offset)
        self.interrupt(moved)
        self._noted = dict(noted)
        return moved

    def ask(self, read: Mapping[int, int], *, at_once: bool = False) -> None:
        """Get the ends of quiet buckets from the bus, when due.

        Args:
            read: the offsets up to which this archiver has read its buckets.
            at_once: ignore the interval and ask for all buckets.
        """
        asked_s = self._monotonic_s()
        if not self._is_asked_for or (not at_once and asked_s - self._asked_s < self._patience.ask_every_s):
            return
        self._asked_s = asked_s
        reached = {
            Bucket(self._category, number): offset
            for number, offset in {**self._noted, **read}.items()
            if at_once or self._of(number).is_quiet(asked_s)
        }
        ends = self._bus.catalog.ends_of(reached) if reached else {}
        for bucket, offset in reached.items():
            if ends[bucket] <= offset:
                self._of(bucket.number).confirm(asked_s)
        self.interrupt(bucket.number for bucket, offset in reached.items() if ends[bucket] > offset)

    def idle(self) -> frozenset[int]:
        """Return the buckets that are not waited for."""
        now_s = self._monotonic_s()
        return frozenset(number for number, silence in self._silences.items() if silence.is_idle(now_s))

    def _of(self, number: int) -> IdleDetector:
        return self._silences.setdefault(number, IdleDetector(self._patience))
