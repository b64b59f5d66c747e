"""Where each plane went on the days on which it left New York, from what the airlines tell of their flights.

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
"""How much later than newer ones of its bucket a report may come."""
LONGEST_FLIGHT = timedelta(hours=13)
"""From gate to gate; of those of 2013, one from Newark to Honolulu took 12.3 hours."""
TURNAROUND = timedelta(hours=10)
"""From departure to departure; longer ones are nights, mostly, or flights across the country and back."""


class Splitter(ps.Stateless):
    """Makes departures and arrivals of what the airlines tell, by plane."""

    reads, writes = reports, (departures, arrivals)
    watermark = ps.watermarks.BoundedOutOfOrderness(HELD_UP)
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(self, event: Report) -> Iterable[Departure | Arrival]:
        """Return a departure, or an arrival where there is a time in the air."""
        if event.in_air is None:
            yield Departure(event.tailnum, event.at, event.carrier, event.flight, event.origin, event.dest)
        else:
            yield Arrival(event.tailnum, event.at, event.carrier, event.flight, event.dest, event.in_air)


class Matcher(ps.Join):
    """Joins each departure to its arrival; those without one are told of when none can come any more."""

    left, right, writes = departures, arrivals, legs
    after = LONGEST_FLIGHT
    join_type = ps.JoinType.LEFT
    watermark = ps.watermarks.UpstreamWatermark()
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def matches(self, left: Departure, right: Arrival) -> bool:
        """Tell whether both are of one flight: a plane may be back, and arrive somewhere else, in less than thirteen hours."""
        return (left.carrier, left.flight, left.dest) == (right.carrier, right.flight, right.dest)

    def join(self, left: Departure, right: Arrival | None, context: ps.Context) -> Iterable[Leg]:
        """Return the leg from a departure to an arrival, or to nowhere."""
        arrived, in_air = (right.arrived, right.in_air) if right else (None, None)
        yield Leg(context.key, left.departed, left.origin, left.dest, arrived, in_air)


Stop = tuple[int, list[str]]
"""When a plane left an airport, and the airports where it was by that: the one it left, and the one it came to."""


class Route(ps.monoids.Monoid[list[Stop]]):
    """Stops, in order of time."""

    commutative = True

    def identity(self) -> list[Stop]:
        """Return no stops."""
        return []

    def lift(self, observation: Stop, /) -> list[Stop]:
        """Return a stop alone."""
        return [observation]

    def combine(self, left: list[Stop], right: list[Stop], /) -> list[Stop]:
        """Return the stops of both; those of one time in the order of their airports."""
        return list(merge(left, right))

    def load(self, dumped: list[Stop]) -> list[Stop]:
        """Return what was saved."""
        return [(departed, airports) for departed, airports in dumped]

    def value(self, partial: list[Stop]) -> list[str]:
        """Return the airports, each but once in a row."""
        airports = chain.from_iterable(map(itemgetter(1), partial))
        return [airport for airport, _ in groupby(airports)]


class Tracker(ps.Aggregator):
    """Puts the legs of a plane together that follow closely on one another, when no other can follow."""

    reads, writes = legs, itineraries
    monoid = ps.monoids.TupleOf(ps.monoids.Count(), Route(), ps.monoids.Sum())
    window = ps.windows.Session(TURNAROUND)
    emit = ps.AtWatermark()
    late = late
    watermark = ps.watermarks.UpstreamWatermark()
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def observe(self, event: Leg) -> tuple[Leg, Stop, int]:
        """Return the leg, where it was from and where it came to, and how long it was in the air."""
        airports = [event.origin] if event.arrived is None else [event.origin, event.dest]
        return event, (event.departed, airports), event.in_air or 0

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, list[str], int]) -> Itinerary:
        """Return the itinerary of a plane."""
        count, airports, minutes = value
        return Itinerary(key, window.start, window.end, count, airports, minutes / 60)
