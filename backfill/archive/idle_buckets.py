"""Idle buckets of a category, confirmed by the bus for this archiver.

    every second: request the ends of quiet buckets -> equal to the read offset: still silent; greater: active
    silent for `idle_after` -> idle, until an event arrives or the bus does not answer

A bucket of another archiver counts as read up to that archiver's note. So a dead archiver's view of idleness is never used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from math import inf

from ...processors.time import IdleDetector, IdleTimeout
from ...transport import Bucket, Bus


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
        self._timeout = IdleTimeout(inf if idle_after is None else idle_after.total_seconds())
        self._is_enabled = idle_after is not None
        self._monotonic_s = monotonic_s
        self._asked_s = -inf
        self._detectors: dict[int, IdleDetector] = {}
        self._others: dict[int, int] = {}

    def interrupt(self, numbers: Iterable[int]) -> None:
        """Record that events arrived, or that a bucket was opened again."""
        now_s = self._monotonic_s()
        for number in numbers:
            self._detector(number).interrupt(now_s)

    def follow(self, others: Mapping[int, int]) -> frozenset[int]:
        """Record the offsets of other archivers' buckets, from their notes. Return the buckets that have advanced."""
        advanced = frozenset(number for number, offset in others.items() if self._others.get(number, offset) != offset)
        self.interrupt(advanced)
        self._others = dict(others)
        return advanced

    def refresh_if_due(self, read: Mapping[int, int]) -> bool:
        """Request the ends of quiet buckets from the bus, when due. Return whether it was asked, and has answered.

        Args:
            read: the offsets up to which this archiver has read its buckets.
        """
        now_s = self._monotonic_s()
        if self._is_enabled and now_s - self._asked_s >= self._timeout.ask_every_s:
            offsets = {**self._others, **read}
            quiet = {number: at for number, at in offsets.items() if self._detector(number).is_quiet(now_s)}
            self._request(quiet)
            return bool(quiet)
        return False

    def refresh(self, read: Mapping[int, int]) -> None:
        """Request the ends of all buckets from the bus now.

        Args:
            read: the offsets up to which this archiver has read its buckets.
        """
        if self._is_enabled:
            self._request({**self._others, **read})

    def _request(self, offsets: Mapping[int, int]) -> None:
        self._asked_s = asked_s = self._monotonic_s()
        reached = {Bucket(self._category, number): offset for number, offset in offsets.items()}
        ends = self._bus.catalog.ends_of(reached) if reached else {}
        for bucket, offset in reached.items():
            if ends[bucket] <= offset:
                self._detector(bucket.number).confirm(asked_s)
        self.interrupt(bucket.number for bucket, offset in reached.items() if ends[bucket] > offset)

    def idle(self) -> frozenset[int]:
        """Return the idle buckets."""
        now_s = self._monotonic_s()
        return frozenset(number for number, detector in self._detectors.items() if detector.is_idle(now_s))

    def _detector(self, number: int) -> IdleDetector:
        return self._detectors.setdefault(number, IdleDetector(self._timeout))
