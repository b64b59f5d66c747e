"""MillWheel's Zeitgeist on the flights that left New York in 2013: the hours in which far more or fewer left than usual.

Run it with `penstock run examples/zeitgeist/zeitgeist.py`.

Source: Akidau et al., "MillWheel", 2013, section 2 and figure 9; there, search queries in buckets of a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec
from zeitgeist_model import THRESHOLD, Expected, Week
from zeitgeist_records import Detection, HourCount, counts, departures, detections

import penstock as ps

HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000


class Counter(ps.Aggregator):
    """Counts the departures of each hour, once the low watermark says that it is complete; later ones are left out."""

    reads, writes = departures, counts
    monoid = ps.monoids.Count()
    window = ps.windows.Tumbling(HOUR)
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP
    watermark = ps.watermarks.Confidence(0.99)
    # An hour that is told of twice would be judged twice.
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def result(self, key: str, window: ps.windows.Window, value: int) -> HourCount:
        """Return the count of an airport and hour."""
        return HourCount(key, window.start, value)


class Airport(ps.Record, frozen=True):
    """What is known of an airport.

    Args:
        week: what is expected of it, from the hours that are over.
        waiting: the counts of those that are not, by when they began.
    """

    week: Week = Week()
    waiting: dict[int, int] = msgspec.field(default_factory=dict)


class Detector(ps.Stateful):
    """Compares each hour with those like it before, when the low watermark says that its count has come or never will.

    Each hour has a timer, at its end. A count sets that of its hour, and each that fires sets the next: an hour of which nothing was
    told until then had no departures.
    """

    reads, writes, state = counts, detections, Airport
    watermark = (
        ps.watermarks.BoundedOutOfOrderness()
    )  # counts come by hour, so a newer one tells that those before it are over
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(
        self, event: HourCount, state: Airport | None, context: ps.Context
    ) -> tuple[Airport, Iterable[Detection]]:
        """Keep a count until its hour is over; an airport's first one is where its history begins."""
        before = state or Airport()
        judge_at_end(event.hour, context)
        return Airport(before.week, {**before.waiting, event.hour: event.count}), ()

    def on_timer(self, timer: ps.Timer, state: Airport, context: ps.Context) -> tuple[Airport, Iterable[Detection]]:
        """Judge an hour that is over, and learn from it."""
        hour, waiting = timer.at - HOUR_MS, dict(state.waiting)
        count = HourCount(context.key, hour, waiting.pop(hour, 0))
        judge_at_end(timer.at, context)
        return Airport(state.week.learn(hour, count.count), waiting), judged(count, state.week.at(hour))


def judge_at_end(hour_ms: int, context: ps.Context) -> None:
    """Set the timer of the hour that begins then."""
    context.timer(hour_ms + HOUR_MS, tag=str(hour_ms))


def judged(found: HourCount, expected: Expected) -> Iterable[Detection]:
    """Return an hour if it stands out from what was expected of it."""
    score = expected.score(found.count)
    if score is not None and abs(score) >= THRESHOLD:
        kind = "spike" if score > 0 else "dip"
        yield Detection(found.origin, found.hour, kind, found.count, expected.mean, score)
