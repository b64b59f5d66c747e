"""MillWheel's Zeitgeist on the flights that left New York in 2013: it finds hours with unusually many or few departures.

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
    """Counts the departures of each hour. The count is written when the hour is complete; late departures are dropped."""

    reads, writes = departures, counts
    monoid = ps.monoids.Count()
    window = ps.windows.Tumbling(HOUR)
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP
    watermark = ps.watermarks.Confidence(0.99)
    # The detector would count a repeated hour twice.
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def result(self, key: str, window: ps.windows.Window, value: int) -> HourCount:
        """Return the count of an airport and hour."""
        return HourCount(key, window.start, value)


class Airport(ps.Record, frozen=True):
    """The state of an airport.

    Args:
        week: the expected departures, from complete hours.
        waiting: the counts of incomplete hours, by their start (milliseconds since 1970, UTC).
    """

    week: Week = Week()
    waiting: dict[int, int] = msgspec.field(default_factory=dict)


class Detector(ps.Stateful):
    """Compares each hour with the same hour of earlier weeks, once the low watermark has passed its end.

    Each hour has a timer at its end. A count sets the timer of its hour, and each timer sets the next one. An hour without a count had no
    departures.
    """

    reads, writes, state = counts, detections, Airport
    watermark = (
        ps.watermarks.BoundedOutOfOrderness()
    )  # counts arrive in order of hours, so a newer count completes earlier hours
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(
        self, event: HourCount, state: Airport | None, context: ps.Context
    ) -> tuple[Airport, Iterable[Detection]]:
        """Store a count until its hour is complete. The first count of an airport starts its history."""
        before = state or Airport()
        judge_at_end(event.hour, context)
        return Airport(before.week, {**before.waiting, event.hour: event.count}), ()

    def on_timer(self, timer: ps.Timer, state: Airport, context: ps.Context) -> tuple[Airport, Iterable[Detection]]:
        """Compare a complete hour with its expectation, and update the expectation."""
        hour, waiting = timer.at - HOUR_MS, dict(state.waiting)
        count = HourCount(context.key, hour, waiting.pop(hour, 0))
        judge_at_end(timer.at, context)
        return Airport(state.week.learn(hour, count.count), waiting), judged(count, state.week.at(hour))


def judge_at_end(hour_ms: int, context: ps.Context) -> None:
    """Set the timer of the hour with this start."""
    context.timer(hour_ms + HOUR_MS, tag=str(hour_ms))


def judged(found: HourCount, expected: Expected) -> Iterable[Detection]:
    """Return a detection if an hour differs enough from its expectation."""
    score = expected.score(found.count)
    if score is not None and abs(score) >= THRESHOLD:
        kind = "spike" if score > 0 else "dip"
        yield Detection(found.origin, found.hour, kind, found.count, expected.mean, score)
