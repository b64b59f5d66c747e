"""What the Zeitgeist example must answer, worked out from the same CSV files in another way.

Polars counts whole columns, an airport at a time; means and variances are taken over all weeks so far, with a weight for each, and
not from those of the week before. Nothing here is shared with the example or with Penstock, so that they cannot be wrong together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import sqrt
from operator import mul

import polars as pl

from .tables import departed_ms, table, time_ms

MINUTE, HOUR = 60_000, 3_600_000
RATE, LEARNING, THRESHOLD = 0.1, 4, 3.5
ZONE = "America/New_York"
NEVER = -(2**63)


@dataclass(frozen=True, order=True)
class Hour:
    """An hour of an airport with enough history to be judged.

    Args:
        origin: code of the airport.
        start: when it began (milliseconds since 1970, UTC).
        count: departures that were told of in time.
        expected: the mean of those before.
        deviation: their standard deviation.
    """

    origin: str
    start: int
    count: int
    expected: float
    deviation: float

    @property
    def score(self) -> float:
        """How many standard deviations it lies above the mean."""
        return (self.count - self.expected) / self.deviation

    @property
    def could_dip(self) -> bool:
        """Whether it would be a dip without any departure: at night it would not."""
        return self.expected >= THRESHOLD * self.deviation


@dataclass(frozen=True)
class Answer:
    """Everything that the example should have found, and what else is known of the hours.

    Args:
        dropped: departures that were told of too late.
        counts: how many were not, by airport and hour, where there were any and the hour is complete.
        hours: the hours that were judged.
    """

    dropped: int
    counts: dict[tuple[str, int], int]
    hours: list[Hour]

    @property
    def detections(self) -> list[Hour]:
        """The spikes and dips, by airport and hour."""
        # One lies on the threshold itself, and how a sum is rounded must not decide.
        return sorted(hour for hour in self.hours if abs(hour.score) >= THRESHOLD - 1e-9)


def answer() -> Answer:
    """Work it out; takes a few seconds."""
    reported = _reported()
    lows = _watermarks(reported["departed"].to_list())
    told = reported.with_columns(pl.Series("low_before", [NEVER, *lows[:-1]]))
    in_time = told.filter(pl.col("hour") + HOUR > pl.col("low_before"))
    counts = in_time.filter(pl.col("hour") + HOUR <= lows[-1]).group_by("origin", "hour").len("count")
    return Answer(
        dropped=reported.height - in_time.height,
        counts={(origin, hour): count for origin, hour, count in counts.iter_rows()},
        hours=[hour for same in _by_hour_of_the_week(counts) for hour in _judged(same)],
    )


def bad_weather() -> set[tuple[str, int]]:
    """Return the airports and hours with wind from 25 mph, a sight below 2 miles, or rain or snow from 0.1 inches.

    One entry (1,048 mph) is not wind.
    """
    windy = pl.col("wind_speed").is_between(25, 100)
    bad = table("weather").filter(windy | (pl.col("visib") < 2) | (pl.col("precip") >= 0.1))
    return set(bad.select("origin", time_ms(pl.col("time_hour"))).iter_rows())


def _reported() -> pl.DataFrame:
    """Return the airport, time and hour of all departures, in the order of their reports: after the time in the air."""
    flying = pl.col("air_time").fill_null(0).cast(pl.Int64) * MINUTE
    departures = table("flights").filter(pl.col("dep_time").is_not_null()).with_columns(departed_ms().alias("departed"))
    return departures.sort(pl.col("departed") + flying, maintain_order=True).select(
        "origin", "departed", (pl.col("departed") // HOUR * HOUR).alias("hour")
    )


def _watermarks(departed: list[int]) -> list[int]:
    """Return the watermark after each departure: 99 of 100 have lain no further behind the newest one than it does.

    How far that is, is found anew when 8 have come, 16, 32, … 256, and from there on 256 more; of n, a share of 32/n is added. Once 131,072 are remembered, half of those
    of each lateness are forgotten.
    """
    newest = list(accumulate(departed, max))
    seen: Counter[int] = Counter()
    bounds: list[int] = []
    bound = -NEVER
    for end in (8, 16, 32, 64, 128, *range(256, len(departed) + 1, 256)):
        stretch = slice(len(bounds), end)
        seen.update(_rounded(now - then) for now, then in zip(newest[stretch], departed[stretch], strict=True))
        if seen.total() >= 131_072:
            seen = Counter({lateness: times // 2 for lateness, times in seen.items()})
        bounds += [bound] * (end - len(bounds) - 1)
        exceeded = _greatest_but_a_hundredth(seen)
        before, bound = bound, exceeded + exceeded * 32 // seen.total()
        bounds.append(min(before, bound))
    bounds += [bound] * (len(departed) - len(bounds))
    return list(accumulate((now - behind for now, behind in zip(newest, bounds, strict=True)), max))


def _rounded(lateness: int) -> int:
    """Return the greatest lateness that has the same first seven binary digits."""
    rest = max(lateness.bit_length() - 7, 0)
    return lateness | ((1 << rest) - 1)


def _greatest_but_a_hundredth(seen: Counter[int]) -> int:
    """Return the lateness that one in a hundred may exceed."""
    may_exceed = int((1 - 0.99) * (seen.total() + 1))
    greatest_first = sorted(seen, reverse=True)
    exceeding = accumulate(seen[lateness] for lateness in greatest_first)
    return next(late for late, times in zip(greatest_first, exceeding, strict=True) if times > may_exceed)


def _by_hour_of_the_week(counts: pl.DataFrame) -> list[list[tuple[str, int, int]]]:
    """Return each airport, hour and count, also of hours without departures, grouped by airport and local hour of the week."""
    last = counts["hour"].max()  # that an hour is over is seen from a later one, so it is not judged
    since_first = pl.int_range(pl.col("hour").min(), pl.lit(last), HOUR)
    whole = (
        counts.group_by("origin")
        .agg(since_first.alias("hour"))
        .explode("hour")
        .join(counts, on=["origin", "hour"], how="left")
        .with_columns(pl.col("count").fill_null(0))
    )
    local = pl.from_epoch("hour", "ms").dt.replace_time_zone("UTC").dt.convert_time_zone(ZONE)
    grouped = whole.sort("hour").group_by("origin", local.dt.weekday().alias("day"), local.dt.hour().alias("of_day"))
    return [list(group.select("origin", "hour", "count").iter_rows()) for _, group in grouped]


def _judged(hours: list[tuple[str, int, int]]) -> Iterator[Hour]:
    """Judge the same hour of the week, week after week."""
    learned: list[float] = []
    for origin, start, count in hours:
        weights = _weights(len(learned))
        expected = sum(map(mul, weights, learned))
        variance = sum(weight * (before - expected) ** 2 for weight, before in zip(weights, learned, strict=True))
        deviation = sqrt(max(variance, expected, 1))
        if len(learned) < LEARNING:
            learned.append(count)
        else:
            yield Hour(origin, start, count, expected, deviation)
            learned.append(sorted((expected - THRESHOLD * deviation, count, expected + THRESHOLD * deviation))[1])


def _weights(hours: int) -> list[float]:
    """Return what each of so many hours weighs: the first ten the same, each later one a tenth of all up to it."""
    if hours <= 10:
        return [1 / hours for _ in range(hours)]
    return [RATE * (1 - RATE) ** (hours - 1 - max(hour, 9)) for hour in range(hours)]
