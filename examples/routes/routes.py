"""Which airports an airline connects with New York: label propagation over the flight routes, in a loop.

routes -> Spread -> networks      the smallest station of each station's network
          Spread -> labels -> Spread    a station tells its neighbours the smallest station that it knows
"""

from __future__ import annotations

from collections.abc import Iterable

import penstock as ps

BUCKETS = 2


class Route(ps.Record, frozen=True):
    """A route, as the station at one of its ends sees it.

    Args:
        station: an airline and an airport, as ``UA EWR``.
        at: when a flight first took the route.
        other: the station at the other end.
    """

    station: str
    at: ps.EventTime
    other: str


class Label(ps.Record, frozen=True):
    """A label on its way to a station.

    Args:
        station: the station.
        at: the time of the route that has caused it.
        label: the smallest station that the sender knows.
    """

    station: str
    at: ps.EventTime
    label: str


class Member(Label, frozen=True):
    """The network of a station, which has the name of its smallest station. The last record of a station is valid."""


class Known(ps.Record, frozen=True):
    """What a station knows.

    Args:
        others: the stations at the other ends of its routes.
        label: the smallest station of its network, as far as it has heard.
    """

    others: frozenset[str]
    label: str


routes = ps.Category("routes", Route, key="station", event_time="at", buckets=BUCKETS, retention=None)
labels = ps.Category("route_labels", Label, key="station", event_time="at", buckets=BUCKETS, retention=None)
networks = ps.Category("route_networks", Member, key="station", event_time="at", buckets=BUCKETS, compacted=True)


class Spread(ps.Stateful):
    """Spreads the smallest label of each network, until no station hears of a smaller one."""

    reads, feedback = (routes, labels), labels
    writes, state = (labels, networks), Known
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(
        self, event: Route | Label, state: Known | None, context: ps.Context
    ) -> tuple[Known, Iterable[Label | Member]]:
        """Add a route, or adopt a smaller label and pass it on."""
        known = state or Known(frozenset(), event.station)
        if isinstance(event, Route):
            after = Known(known.others | {event.other}, known.label)
            new = [] if state else [Member(event.station, event.at, known.label)]
            return after, [Label(event.other, event.at, known.label), *new]
        if event.label >= known.label:
            return known, []
        onward = [Label(other, event.at, event.label) for other in sorted(known.others)]
        return Known(known.others, event.label), [*onward, Member(event.station, event.at, event.label)]
