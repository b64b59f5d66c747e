"""An app that writes rows to the tables of a team."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import penstock as ps


class Visit(ps.Record, frozen=True):
    """An event."""

    user: str
    at: ps.EventTime
    page: str
    number: int


class Newest(ps.Record, frozen=True):
    """The newest visit of a user."""

    user: str
    page: str
    number: int


class Hourly(ps.Record, frozen=True):
    """The visits of a page in an hour."""

    page: str
    hour: ps.EventTime
    visits: int


class Turn(ps.Record, frozen=True):
    """A visit, and the number of the user's visits so far."""

    user: str
    number: int
    turn: int


visits = ps.Category("sinks.visits", Visit, key="user", event_time="at", buckets=3)
by_page = ps.Category("sinks.by_page", Visit, key="page", event_time="at", buckets=2)
long_turns = ps.Category("sinks.turns", Visit, key="user", event_time="at", buckets=1)


class KeepNewest(ps.Stateless):
    """Replaces the row of a user."""

    reads, writes = visits, ps.sinks.PostgresSink("newest", Newest, key="user", at="TEAM_TABLES")

    def process(self, event: Visit) -> Iterable[Newest]:
        """Return the row."""
        return [Newest(event.user, event.page, event.number)]


class CountHourly(ps.Aggregator):
    """Replaces the row of a page and an hour."""

    reads = by_page
    writes = ps.sinks.PostgresSink("hourly", Hourly, key=("page", "hour"), at="TEAM_TABLES")
    monoid, window = ps.monoids.Count(), ps.windows.Tumbling(timedelta(hours=1))

    def result(self, key: str, window: ps.windows.Window, value: int) -> Hourly:
        """Return the row."""
        return Hourly(key, window.start, value)


class CountEnded(CountHourly):
    """Appends a row for each hour, when it has ended."""

    writes = ps.sinks.PostgresSink("ended", Hourly, at="TEAM_TABLES")
    emit, late = ps.AtWatermark(), ps.OnLate.DROP
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(hours=1))


class Number(ps.Stateful):
    """Appends a row for each visit, and writes long turns to a category."""

    reads = visits
    writes = (ps.sinks.PostgresSink("turns", Turn, at="TEAM_TABLES"), long_turns)
    state = int

    def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int, list[Any]]:
        """Count the visit."""
        turn = (state or 0) + 1
        return turn, [Turn(event.user, event.number, turn), *([event] if turn % 10 == 0 else [])]


class RingLater(ps.Stateful):
    """Writes a row without a time when its timer fires."""

    reads, writes = visits, ps.sinks.PostgresSink("newest", Newest, key="user", at="TEAM_TABLES")
    state = int

    def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int, list[Newest]]:
        """Set a timer."""
        context.timer(event.at + 60_000)
        return event.number, []

    def on_timer(self, timer: ps.Timer, state: int | None, context: ps.Context) -> tuple[int | None, list[Newest]]:
        """Write a row."""
        return state, [Newest(context.key, timer.tag, state or 0)]
