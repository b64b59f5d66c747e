"""The events of the throughput benchmark, and the processors that count and filter them."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from penstock.processors.apps import sql_app


class Event(ps.Record, frozen=True):
    """A made-up event, about 150 bytes as JSON."""

    event_time: ps.EventTime
    event: str
    dim_id: str
    topic: str
    text: str


class Click(ps.Record, frozen=True):
    """The fields of a click that the filter keeps."""

    event_time: ps.EventTime
    dim_id: str
    topic: str


class Counted(ps.Record, frozen=True):
    """The number of a key's events in a window."""

    key: str
    window: ps.EventTime
    n: int


class CountedFew(Counted, frozen=True):
    """A count of one of 50 keys."""


by_topic = ps.Category("bench_by_topic", Event, key="topic", event_time="event_time", buckets=4, retention=None)
by_dim = ps.Category("bench_by_dim", Event, key="dim_id", event_time="event_time", buckets=4, retention=None)
clicks = ps.Category("bench_clicks", Click, key="dim_id", event_time="event_time", buckets=4, retention=None)
few_counts = ps.Category("bench_few_counts", CountedFew, key="key", event_time="window", buckets=4, retention=None)
many_counts = ps.Category("bench_many_counts", Counted, key="key", event_time="window", buckets=4, retention=None)


class Clicks(ps.Stateless):
    """Keeps clicks, a third of the events, and three of their fields."""

    reads, writes = by_dim, clicks

    def process(self, event: Event) -> tuple[Click, ...]:
        """Return the click, or nothing."""
        if event.event != "click":
            return ()
        return (Click(event.event_time, event.dim_id, event.topic),)


class ClicksInColumns(Clicks):
    """The same in columns."""

    columns = ("event", "event_time", "dim_id", "topic")

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """Return the clicks."""
        found = events.filter(pc.equal(events.column("event"), pa.scalar("click")))
        return found.select(["event_time", "dim_id", "topic"])


class ClicksOnce(Clicks):
    """The same exactly once."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


class ClicksOnceInColumns(ClicksInColumns):
    """The same exactly once in columns."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


class CountFew(ps.Aggregator):
    """Counts events by topic (50 topics) and 5-minute window."""

    reads, writes = by_topic, few_counts
    monoid = ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(minutes=5))

    def result(self, key: str, window: ps.windows.Window, value: int) -> CountedFew:
        """Return the count so far."""
        return CountedFew(key, window.start, value)


class CountMany(ps.Aggregator):
    """Counts events by dimension (100,000 dimensions) and 5-minute window."""

    reads, writes = by_dim, many_counts
    monoid = ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(minutes=5))

    def result(self, key: str, window: ps.windows.Window, value: int) -> Counted:
        """Return the count so far."""
        return Counted(key, window.start, value)


def queries() -> dict[str, type[ps.Processor]]:
    """Return the processors of `queries.sql`, by name."""
    compiled = sql_app(Path(__file__).with_name("queries.sql"), "queries")
    return {processor.name: processor for processor in compiled.processors}


def make(count: int, *, dims: int = 100_000, seed: int = 42) -> Iterator[Event]:
    """Yield events of `dims` dimensions, one per millisecond; a seed determines the events."""
    rng = random.Random(seed)
    texts = ["".join(rng.choices(string.ascii_lowercase + " ", k=60)) for _ in range(997)]
    start = 1_700_000_100_000
    for n in range(count):
        kind = ("view", "click", "share")[rng.randrange(3)]
        yield Event(start + n, kind, str(rng.randrange(dims)), f"t{rng.randrange(50)}", texts[n % 997])
