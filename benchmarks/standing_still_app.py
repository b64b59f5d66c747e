"""The app of the benchmark of pauses, which copies this file, adds lines to it, and deploys the copy."""

from __future__ import annotations

from datetime import timedelta

import penstock as ps

INPUT_BUCKETS = 4
OUTPUT_BUCKETS = 4


class Ping(ps.Record, frozen=True):
    """An event of a key."""

    key: str
    at: ps.EventTime


class Pong(ps.Record, frozen=True):
    """The number of the events of a key."""

    key: str
    at: ps.EventTime
    count: int


pings = ps.Category("pings", Ping, key="key", event_time="at", buckets=INPUT_BUCKETS)
pongs = ps.Category("pongs", Pong, key="key", event_time="at", buckets=OUTPUT_BUCKETS)


class Count(ps.Stateful):
    """Counts the events of each key."""

    name = "count"
    reads, writes, state = pings, pongs, int
    output_semantics = ps.Semantics.EXACTLY_ONCE
    checkpoint = ps.CheckpointInterval(time=timedelta(milliseconds=200))

    def process(self, event: Ping, state: int | None, context: ps.Context) -> tuple[int, list[Pong]]:
        """Count an event."""
        count = (state or 0) + 1
        return count, [Pong(event.key, event.at, count)]
