"""The processors of the memory benchmark: a stateful one and an aggregator."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import penstock as ps


class Tick(ps.Record, frozen=True):
    """A small event."""

    key: str
    at: ps.EventTime
    n: int


class Running(ps.Record, frozen=True):
    """The running sum at the first and each thousandth event of a key."""

    key: str
    at: ps.EventTime
    total: int


class Hour(ps.Record, frozen=True):
    """A key's sum of an hour."""

    key: str
    hour: ps.EventTime
    total: float


ticks = ps.Category("ticks", Tick, key="key", event_time="at", buckets=4, retention=None)
runnings = ps.Category("runnings", Running, key="key", event_time="at", buckets=4, retention=None)
hours = ps.Category("hours", Hour, key="key", event_time="hour", buckets=4, retention=None)


class Totals(ps.Stateful):
    """Keeps each key's count and sum."""

    reads, writes = ticks, runnings
    state = tuple[int, int]

    def process(
        self, event: Tick, state: tuple[int, int] | None, context: ps.Context
    ) -> tuple[tuple[int, int], Iterable[Running]]:
        """Return the new state, and the sum for each thousandth event."""
        count, total = state or (0, 0)
        outputs = () if count % 1000 else (Running(event.key, event.at, total + event.n),)
        return (count + 1, total + event.n), outputs


class Hours(ps.Aggregator):
    """Sums each key by the hour."""

    reads, writes = ticks, hours
    monoid = ps.monoids.Sum()
    window = ps.windows.Tumbling(timedelta(hours=1))

    def observe(self, event: Tick) -> int:
        """Return the observation."""
        return event.n

    def result(self, key: str, window: ps.windows.Window, value: float) -> Hour:
        """Return the hour."""
        return Hour(key, window.start, value)
