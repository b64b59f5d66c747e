"""The category of the benchmark of Laser."""

from __future__ import annotations

import penstock as ps


class Item(ps.Record, frozen=True):
    """A value of 100 bytes."""

    key: str
    at: ps.EventTime
    value: str


items = ps.Category("items", Item, key="key", event_time="at", buckets=4, retention=None)


class Unused(ps.Stateless):
    """An app has at least one processor."""

    reads = items

    def process(self, event: Item) -> list[ps.Record]:
        """Write nothing."""
        return []
