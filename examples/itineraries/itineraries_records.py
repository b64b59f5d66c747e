"""The records of the pipeline: airlines' reports become departures and arrivals, then legs, then itineraries.

reports -> Splitter -> departures, arrivals -> Matcher -> legs -> Tracker -> itineraries, late
"""

from __future__ import annotations

import penstock as ps

BUCKETS = 2


class Report(ps.Record, frozen=True):
    """An airline's report of a departure, or of an arrival at the scheduled destination.

    Args:
        carrier: two-letter code of the airline.
        flight: its number.
        tailnum: the registration of the plane.
        origin: code of the airport it leaves.
        dest: code of the scheduled destination.
        at: when it left, or arrived.
        in_air: minutes in the air, of one that arrived; None of one that left.
    """

    carrier: str
    flight: int
    tailnum: str
    origin: str
    dest: str
    at: ps.EventTime
    in_air: int | None = None


class Departure(ps.Record, frozen=True):
    """A plane left New York.

    Args:
        tailnum: the registration of the plane.
        departed: when.
        carrier: two-letter code of the airline.
        flight: its number.
        origin: code of the airport it left.
        dest: code of the scheduled destination.
    """

    tailnum: str
    departed: ps.EventTime
    carrier: str
    flight: int
    origin: str
    dest: str


class Arrival(ps.Record, frozen=True):
    """A plane arrived at the scheduled destination.

    Args:
        tailnum: the registration of the plane.
        arrived: when.
        carrier: two-letter code of the airline.
        flight: its number.
        dest: code of the airport it is at.
        in_air: minutes in the air.
    """

    tailnum: str
    arrived: ps.EventTime
    carrier: str
    flight: int
    dest: str
    in_air: int


class Leg(ps.Record, frozen=True):
    """A flight from its departure to its arrival; the last two fields are None if it was diverted or returned.

    Args:
        tailnum: the registration of the plane.
        departed: when it left.
        origin: code of the airport it left.
        dest: code of the airport it was to fly to.
        arrived: when it arrived there (milliseconds since 1970, UTC).
        in_air: minutes in the air.
    """

    tailnum: str
    departed: ps.EventTime
    origin: str
    dest: str
    arrived: int | None
    in_air: int | None


class Itinerary(ps.Record, frozen=True):
    """The airports of a plane until ten hours pass without a departure from New York.

    Args:
        tailnum: the registration of the plane.
        begun: its first departure (milliseconds since 1970, UTC).
        over: ten hours after its last one.
        legs: how many departures.
        airports: codes of where it was, in order, as far as that is known: of its flights back to New York nothing is.
        hours: in the air, on the flights that arrived where they were to.
    """

    tailnum: str
    begun: int
    over: ps.EventTime
    legs: int
    airports: list[str]
    hours: float


# Retention counts from the time of arrival. Without a limit, the results stay available for later visits.
reports = ps.Category("itineraries_reports", Report, key="carrier", event_time="at", buckets=BUCKETS, retention=None)
departures = ps.Category(
    "itineraries_departures", Departure, key="tailnum", event_time="departed", buckets=BUCKETS, retention=None
)
arrivals = ps.Category(
    "itineraries_arrivals", Arrival, key="tailnum", event_time="arrived", buckets=BUCKETS, retention=None
)
legs = ps.Category("itineraries_legs", Leg, key="tailnum", event_time="departed", buckets=BUCKETS, retention=None)
itineraries = ps.Category("itineraries", Itinerary, key="tailnum", event_time="over", buckets=BUCKETS, retention=None)
late = ps.Category("itineraries_late", Leg, key="tailnum", event_time="departed", buckets=BUCKETS, retention=None)
