"""What travels through the pipeline: departures, how many there were in an hour, and the hours that stand out.

departures -> Counter -> counts -> Detector -> detections
"""

from __future__ import annotations

import penstock as ps

# One bucket: hours are then complete one after the other for all airports, and the detector reads them in that order.
BUCKETS = 1


class Departure(ps.Record, frozen=True):
    """A flight left New York.

    Args:
        origin: code of the airport it left.
        departed: when.
        carrier: two-letter code of the airline.
        flight: its number.
        dest: code of the airport it flew to.
    """

    origin: str
    departed: ps.EventTime
    carrier: str
    flight: int
    dest: str


class HourCount(ps.Record, frozen=True):
    """The departures of an airport in a complete hour. Hours without departures have no record.

    Args:
        origin: code of the airport.
        hour: when the hour began.
        count: the number of departures, without late events.
    """

    origin: str
    hour: ps.EventTime
    count: int


class Detection(ps.Record, frozen=True):
    """An hour in which far more or far fewer flights left an airport than usual.

    Args:
        origin: code of the airport.
        hour: when the hour began.
        kind: ``spike`` or ``dip``.
        count: how many departures.
        expected: how many the hours like this one before it made expect.
        score: how many standard deviations the count lies above that; below zero for a dip.
    """

    origin: str
    hour: ps.EventTime
    kind: str
    count: int
    expected: float
    score: float


# 2013 arrives now, and "now" is what retention counts from; kept for ever, the example can be looked at next month.
departures = ps.Category(
    "zeitgeist_departures", Departure, key="origin", event_time="departed", buckets=BUCKETS, retention=None
)
counts = ps.Category("zeitgeist_counts", HourCount, key="origin", event_time="hour", buckets=BUCKETS, retention=None)
detections = ps.Category(
    "zeitgeist_detections", Detection, key="origin", event_time="hour", buckets=BUCKETS, retention=None
)
