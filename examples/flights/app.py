"""The four nodes of the realtime paper's example, on the flights that left New York in 2013.

Run all of them with `penstock run examples/flights/app.py`, or one with `penstock run examples/flights/app.py:Scorer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pyarrow as pa
from msgspec.structs import asdict
from records import (
    Departure,
    DestinationScore,
    Enriched,
    Flight,
    Ranking,
    Scored,
    departures,
    enriched,
    flights,
    rankings,
    scored,
)
from tables import known, rows

import penstock as ps


class Filterer(ps.Stateless):
    """Drops cancelled flights."""

    reads, writes = flights, departures

    def process(self, event: Flight) -> Iterable[Departure]:
        """Return the flight if it departed."""
        return () if event.dep_delay is None else (Departure(**asdict(event)),)

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """Return the flights that departed, of many at once."""
        return events.filter(events.column("dep_delay").is_valid())


class Joiner(ps.Stateless):
    """Adds the plane's manufacturer and seats, and the destination's name."""

    reads, writes = departures, enriched

    def open(self) -> None:
        """Load both dimension tables."""
        self._planes = {
            tailnum: (known(manufacturer), int(seats) if known(seats) else None)
            for tailnum, manufacturer, seats in rows("planes", ("tailnum", "manufacturer", "seats"))
        }
        self._names = {code: known(name) for code, name in rows("airports", ("faa", "name"))}

    def process(self, event: Departure) -> Iterable[Enriched]:
        """Return the departure with the rows of both tables."""
        manufacturer, seats = self._planes.get(event.tailnum or "", (None, None))
        dest_name = self._names.get(event.dest)
        return (Enriched(**asdict(event), manufacturer=manufacturer, seats=seats, dest_name=dest_name),)


class Scorer(ps.Stateful):
    """Scores each departure against a running mean of its route's delays."""

    reads, writes = enriched, scored
    state = float

    def process(self, event: Enriched, state: float | None, context: ps.Context) -> tuple[float, Iterable[Scored]]:
        """Return the new mean, and the departure with its distance from the old one; a route's first sets the mean."""
        mean = event.dep_delay if state is None else state
        surprise = event.dep_delay - mean
        return mean + surprise / 10, (Scored(**asdict(event), score=int(surprise * 1000)),)


class Ranker(ps.Aggregator):
    """Ranks each carrier's destinations of a day by the sum of their positive scores."""

    reads, writes = scored, rankings
    monoid = ps.monoids.TopKeys[str, int](5)
    window = ps.windows.Tumbling(timedelta(days=1))

    def observe(self, event: Scored) -> dict[str, int] | None:
        """Return the score of the departure by destination, if it is positive."""
        return {event.dest: event.score} if event.score > 0 else None

    def result(self, key: str, window: ps.windows.Window, value: list[tuple[str, int]]) -> Ranking:
        """Return the ranking of a carrier and day."""
        return Ranking(key, window.start, [DestinationScore(*line) for line in value])
