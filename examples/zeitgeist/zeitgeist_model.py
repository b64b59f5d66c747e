"""How many departures an hour makes expect: a mean and a variance for each hour of the week, in which newer weeks weigh more."""

from __future__ import annotations

from datetime import datetime
from math import sqrt
from zoneinfo import ZoneInfo

import msgspec

import penstock as ps

NEW_YORK = ZoneInfo("America/New_York")
RATE = 0.1
"""How much the newest hour weighs in mean and variance: half of the weight lies in the last seven weeks."""
LEARNING = 4
"""How many hours of its kind must have been before one is judged."""
THRESHOLD = 3.5
"""How many standard deviations from the mean make a spike or a dip."""


class Expected(ps.Record, frozen=True):
    """What is expected of one hour of the week.

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
        """Standard deviation, at least that of events that happen independently: a few equal weeks prove no rule."""
        return sqrt(max(self.variance, self.mean, 1.0))

    def score(self, count: int) -> float | None:
        """Return how many standard deviations a count lies above the mean; None while there is too little to judge by."""
        return None if self.hours < LEARNING else (count - self.mean) / self.deviation

    def learn(self, count: int) -> Expected:
        """Return what is expected after an hour with this count.

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
    """What is expected of an airport.

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
