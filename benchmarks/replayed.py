"""The flights of 2013, each repeated on the following days, in order of departure.

A day of the replay contains its own flights and those of the days before, one day per copy.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from flights_app import Flight

sys.path.append(str(Path(__file__).parents[1] / "examples" / "flights"))

DAY_MS = 86_400_000
DAYS = 365


def replayed(count: int, copies: int) -> Iterator[list[Flight]]:
    """Yield flights by day.

    Args:
        count: the number of flights; at most the flights of a year.
        copies: the number of copies of each flight.
    """
    by_day = _by_day()
    first = min(by_day)
    left = count
    for day in range(first, first + DAYS):
        if left <= 0:
            return
        of_day = [
            flight for copy in range(copies) for flight in _moved(by_day, first + (day - first - copy) % DAYS, day)
        ]
        of_day.sort(key=_leaves)
        yield of_day[:left]
        left -= len(of_day)


def _by_day() -> dict[int, list[Flight]]:
    from source import flights  # noqa: PLC0415 - the flights example, whose folder is on the path now

    days: defaultdict[int, list[Flight]] = defaultdict(list)
    for it in flights():
        flight = Flight(*(getattr(it, name) for name in Flight.__struct_fields__))
        days[flight.scheduled // DAY_MS].append(flight)
    return days


def _moved(by_day: dict[int, list[Flight]], day: int, to: int) -> Iterator[Flight]:
    """Yield the flights of one day, moved to another day."""
    by = (to - day) * DAY_MS
    for flight in by_day.get(day, ()):
        yield Flight(
            flight.carrier,
            flight.flight,
            flight.tailnum,
            flight.origin,
            flight.dest,
            flight.route,
            flight.scheduled + by,
            flight.distance,
            flight.dep_delay,
        )


def _leaves(flight: Flight) -> float:
    return flight.scheduled + (flight.dep_delay or 0) * 60_000
