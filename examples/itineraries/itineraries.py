"""Itineraries of the planes that left New York, from the airlines' reports of departures and arrivals.

Run it with `penstock run examples/itineraries/itineraries.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from heapq import merge
from itertools import chain, groupby
from operator import itemgetter

from itineraries_records import (
    Arrival,
    Departure,
    Itinerary,
    Leg,
    Report,
    arrivals,
    departures,
    itineraries,
    late,
    legs,
    reports,
)

import penstock as ps

HELD_UP = timedelta(hours=1)
"""How far a report may lie behind newer reports of its bucket."""
LONGEST_FLIGHT = timedelta(hours=13)
"""The longest flight from gate to gate. In 2013, a flight from Newark to Honolulu took 12.3 hours."""
TURNAROUND = timedelta(hours=10)
"""The longest time between two departures of one itinerary. Longer times are mostly nights, or flights across the country and back."""


class Splitter(ps.Stateless):
    """Converts reports to departures and arrivals, with the plane as the key."""

    reads, writes = reports, (departures, arrivals)
    watermark = ps.watermarks.BoundedOutOfOrderness(HELD_UP)
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(self, event: Report) -> Iterable[Departure | Arrival]:
        """Return an arrival if the report has a time in the air, otherwise a departure."""
        if event.in_air is None:
            yield Departure(event.tailnum, event.at, event.carrier, event.flight, event.origin, event.dest)
        else:
            yield Arrival(event.tailnum, event.at, event.carrier, event.flight, event.dest, event.in_air)


class Matcher(ps.Join):
    """Joins each departure with its arrival. A departure without an arrival is written when no arrival can match any more."""

    left, right, writes = departures, arrivals, legs
    after = LONGEST_FLIGHT
    join_type = ps.JoinType.LEFT
    watermark = ps.watermarks.UpstreamWatermark()
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def matches(self, left: Departure, right: Arrival) -> bool:
        """Return whether both belong to one flight: within thirteen hours, a plane may return and arrive somewhere else."""
        return (left.carrier, left.flight, left.dest) == (right.carrier, right.flight, right.dest)

    def join(self, left: Departure, right: Arrival | None, context: ps.Context) -> Iterable[Leg]:
        """Return the leg from a departure to its arrival, if there is one."""
        arrived, in_air = (right.arrived, right.in_air) if right else (None, None)
        yield Leg(context.key, left.departed, left.origin, left.dest, arrived, in_air)


Stop = tuple[int, list[str]]
"""The time of a departure, and the airports of the leg: the origin and the destination."""


class Route(ps.monoids.Monoid[list[Stop]]):
    """Stops, in order of time."""

    commutative = True

    def identity(self) -> list[Stop]:
        """Return no stops."""
        return []

    def lift(self, observation: Stop, /) -> list[Stop]:
        """Return a list of one stop."""
        return [observation]

    def combine(self, left: list[Stop], right: list[Stop], /) -> list[Stop]:
        """Return the stops of both in order of time; stops of one time are in order of their airports."""
        return list(merge(left, right))

    def load(self, dumped: list[Stop]) -> list[Stop]:
        """Return the saved stops."""
        return [(departed, airports) for departed, airports in dumped]

    def value(self, partial: list[Stop]) -> list[str]:
        """Return the airports in order, without consecutive duplicates."""
        airports = chain.from_iterable(map(itemgetter(1), partial))
        return [airport for airport, _ in groupby(airports)]


class Tracker(ps.Aggregator):
    """Combines consecutive legs of a plane into an itinerary, written once it is complete."""

    reads, writes = legs, itineraries
    monoid = ps.monoids.TupleOf(ps.monoids.Count(), Route(), ps.monoids.Sum())
    window = ps.windows.Session(TURNAROUND)
    emit = ps.AtWatermark()
    late = late
    watermark = ps.watermarks.UpstreamWatermark()
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def observe(self, event: Leg) -> tuple[Leg, Stop, int]:
        """Return the stops of a leg, and its time in the air."""
        airports = [event.origin] if event.arrived is None else [event.origin, event.dest]
        return event, (event.departed, airports), event.in_air or 0

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, list[str], int]) -> Itinerary:
        """Return the itinerary of a plane."""
        count, airports, minutes = value
        return Itinerary(key, window.start, window.end, count, airports, minutes / 60)
