"""The processors of the backfill benchmark, one of each kind, over replayed flights."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps

LATE_MIN = 15.0


class Flight(ps.Record, frozen=True):
    """A flight, as in the flights example; about 170 bytes as JSON."""

    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    route: str
    scheduled: ps.EventTime
    distance: int
    dep_delay: float | None


class Late(ps.Record, frozen=True):
    """A late departure with its delay in quarters of an hour."""

    route: str
    scheduled: ps.EventTime
    tailnum: str | None
    quarters: int


class Gap(ps.Record, frozen=True):
    """A departure and the milliseconds since the route's previous departure; None for the first."""

    route: str
    scheduled: ps.EventTime
    flight: int
    gap_ms: int | None


class Day(ps.Record, frozen=True):
    """The departures of a route on one day."""

    route: str
    day: ps.EventTime
    departures: int
    mean_delay: float | None
    worst_delay: float | None


flights = ps.Category("replayed", Flight, key="route", event_time="scheduled", buckets=4, retention=None)
late = ps.Category("late", Late, key="route", event_time="scheduled", buckets=4, retention=None)
gaps = ps.Category("gaps", Gap, key="route", event_time="scheduled", buckets=4, retention=None)
days = ps.Category("days", Day, key="route", event_time="day", buckets=4, retention=None)


class Lates(ps.Stateless):
    """Keeps departures with a delay of at least a quarter of an hour: about a fifth."""

    reads, writes = flights, late
    columns = ("route", "scheduled", "tailnum", "dep_delay")

    def process(self, event: Flight) -> Iterable[Late]:
        """Return a late departure."""
        if event.dep_delay is None or event.dep_delay < LATE_MIN:
            return ()
        return (Late(event.route, event.scheduled, event.tailnum, int(event.dep_delay // LATE_MIN)),)

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        """Return the late departures."""
        late = events.filter(pc.greater_equal(events.column("dep_delay"), pa.scalar(LATE_MIN)))
        quarters = pc.floor(pc.divide(late.column("dep_delay"), LATE_MIN))
        return late.drop_columns(["dep_delay"]).append_column("quarters", quarters)


class Gaps(ps.Stateful):
    """Measures the time between departures of a route."""

    reads, writes = flights, gaps
    state = int

    def process(self, event: Flight, state: int | None, context: ps.Context) -> tuple[int, Iterable[Gap]]:
        """Return this departure's time, and the time since the previous departure."""
        gap = None if state is None else event.scheduled - state
        return event.scheduled, (Gap(event.route, event.scheduled, event.flight, gap),)


class Days(ps.Aggregator):
    """Counts each route's departures of a day, with the mean and the worst delay."""

    reads, writes = flights, days
    monoid = ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Mean(), ps.monoids.Max[float]())
    window = ps.windows.Tumbling(timedelta(days=1))
    columns = ("dep_delay",)

    def observe(self, event: Flight) -> tuple[float, float, float] | None:
        """Return the delay for each of the three monoids, or None for a cancelled flight."""
        delay = event.dep_delay
        return None if delay is None else (delay, delay, delay)

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any]:
        """Return the delays, three times each."""
        delays = events.column("dep_delay")
        return pa.StructArray.from_arrays([delays] * 3, ["n", "mean", "worst"], mask=delays.is_null())

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, float | None, float | None]) -> Day:
        """Return the day of a route."""
        return Day(key, window.start, *value)
