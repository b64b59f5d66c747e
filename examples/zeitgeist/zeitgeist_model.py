"""A model of expected departures: an exponentially weighted mean and variance for each hour of the week."""

from __future__ import annotations

from datetime import datetime
from math import sqrt
from zoneinfo import ZoneInfo

import msgspec

import penstock as ps

NEW_YORK = ZoneInfo("America/New_York")
RATE = 0.1
"""The weight of the newest hour in mean and variance: the last seven weeks have half of the total weight."""
LEARNING = 4
"""The number of earlier observations of an hour of the week before it is compared."""
THRESHOLD = 3.5
"""The number of standard deviations from the mean that make a spike or a dip."""


class Expected(ps.Record, frozen=True):
    """The expectation for one hour of the week.

    Args:
        mean: departures in it.
        variance: of the departures in it.
        hours: how many were learned from.
    """

    mean: float = 0.0
    variance: float = 0.0
    hours: int = 0

    @property
    def deviation(self) -> float:
        """The standard deviation, at least the Poisson deviation, because a few equal weeks are no evidence of a small variance."""
        return sqrt(max(self.variance, self.mean, 1.0))

    def score(self, count: int) -> float | None:
        """Return the number of standard deviations between a count and the mean; None with too few observations."""
        return None if self.hours < LEARNING else (count - self.mean) / self.deviation

    def learn(self, count: int) -> Expected:
        """Return the expectation after an hour with this count.

        Of a spike or dip, only as much is learned as would not have been one: a blizzard does not make the normal hour a week
        later a spike, and a new timetable is still learned in a few weeks.

        Source: for mean and variance in one step, Finch, "Incremental calculation of weighted mean and variance", 2009,
        section 9.
        """
        distance = count - self.mean
        if self.hours >= LEARNING:
            farthest = THRESHOLD * self.deviation
            distance = min(max(distance, -farthest), farthest)
        weight = max(RATE, 1 / (self.hours + 1))  # the first ten weigh the same
        return Expected(
            self.mean + weight * distance,
            (1 - weight) * (self.variance + weight * distance**2),
            self.hours + 1,
        )


class Week(ps.Record, frozen=True):
    """The expectations for an airport.

    Args:
        hours: by hour of the week in New York, where timetables are made; those never seen are missing.
    """

    hours: dict[int, Expected] = msgspec.field(default_factory=dict)

    def at(self, hour_ms: int) -> Expected:
        """Return what is expected of the hour that begins then (milliseconds since 1970, UTC)."""
        return self.hours.get(hour_of_week(hour_ms), Expected())

    def learn(self, hour_ms: int, count: int) -> Week:
        """Return what is expected after that hour had this count."""
        return Week({**self.hours, hour_of_week(hour_ms): self.at(hour_ms).learn(count)})


def hour_of_week(time_ms: int) -> int:
    """Return the hour in New York, counted from the beginning of Monday."""
    local = datetime.fromtimestamp(time_ms / 1000, NEW_YORK)
    return local.weekday() * 24 + local.hour
