"""The records between the four nodes: each node adds fields to a flight, and the last one writes rankings.

flights -> Filterer -> departures -> Joiner -> enriched -> Scorer -> scored -> Ranker -> rankings
"""

from __future__ import annotations

import penstock as ps

BUCKETS = 2


class Flight(ps.Record, frozen=True):
    """A flight that was scheduled to leave New York.

    Args:
        carrier: two-letter code of the airline.
        flight: its number.
        tailnum: the registration of the plane, where it is known.
        origin: code of the airport it leaves.
        dest: code of the airport it flies to.
        route: both, as ``EWR-IAH``.
        scheduled: when it was to depart.
        distance: miles.
        dep_delay: minutes that it departed late, below zero if it departed early; None if it was cancelled.
    """

    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    route: str
    scheduled: ps.EventTime
    distance: int
    dep_delay: float | None


class Departure(ps.Record, frozen=True):
    """A departed flight: the same fields, but the delay is never missing."""

    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    route: str
    scheduled: ps.EventTime
    distance: int
    dep_delay: float


class Enriched(Departure, frozen=True):
    """A departure with its plane and destination from the dimension tables; None for missing rows.

    Args:
        manufacturer: who built the plane.
        seats: how many it has.
        dest_name: the name of the airport it flies to.
    """

    manufacturer: str | None
    seats: int | None
    dest_name: str | None


class Scored(Enriched, frozen=True):
    """A departure and the score of its delay.

    Args:
        score: thousandths of a minute above the running mean of its route; below zero if less late than that.
    """

    score: int


class DestinationScore(ps.Record, frozen=True):
    """One line of a ranking.

    Args:
        dest: code of the destination.
        score: the sum of its positive scores, in thousandths of a minute.
    """

    dest: str
    score: int


class Ranking(ps.Record, frozen=True):
    """The destinations of a carrier with the most unusual delays in one day.

    Args:
        carrier: two-letter code of the airline.
        day: when the day (UTC) began.
        top: at most five, the largest score first.
    """

    carrier: str
    day: ps.EventTime
    top: list[DestinationScore]


# Retention counts from the time of arrival. Without a limit, the results stay available for later visits.
flights = ps.Category("flights", Flight, key="route", event_time="scheduled", buckets=BUCKETS, retention=None)
departures = ps.Category("departures", Departure, key="route", event_time="scheduled", buckets=BUCKETS, retention=None)
enriched = ps.Category("enriched", Enriched, key="route", event_time="scheduled", buckets=BUCKETS, retention=None)
scored = ps.Category("scored", Scored, key="carrier", event_time="scheduled", buckets=BUCKETS, retention=None)
rankings = ps.Category("rankings", Ranking, key="carrier", event_time="day", buckets=BUCKETS, retention=None)
