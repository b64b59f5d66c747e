"""Validation of event times: range, distance from arrival, and unit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from .windows import MILLISECOND

YEAR_1_MS = -62_135_596_800_000
"""The first event time that is taken: where the year 1 begins."""
YEAR_9999_END_MS = 253_402_300_799_999
"""The last one: where the year 9999 ends."""
MAX_UNCHECKED_MS = 2**62
"""How far from 1970 event times may lie whose unit a processor does not want doubted: windows and watermarks around them have 64 bits."""

FIRST_EVENTS = 10
"""How many of the first events of a bucket are looked at for their unit."""

_YEAR_1990_MS = 631_152_000_000
_UNITS = (("seconds", 1_000, 1), ("microseconds", 1, 1_000), ("nanoseconds", 1, 1_000_000))


class WrongTimeUnit(NamedTuple):
    """What event times look like that are not in milliseconds.

    Args:
        name: the unit they seem to be in.
        change: what makes milliseconds of them, such as "multiplied by 1,000".
        sample: the first of them.
        meant_ms: what it would be in milliseconds.
    """

    name: str
    change: str
    sample: int
    meant_ms: int

    def __str__(self) -> str:
        return (
            f"the first event times, such as {self.sample}, look like {self.name}, not milliseconds: {self.change}, that is "
            f"{datetime.fromtimestamp(self.meant_ms / 1000, timezone.utc):%Y-%m-%d %H:%M} UTC"
        )


def detect_wrong_unit(times: Sequence[int], now_ms: int) -> WrongTimeUnit | None:
    """Return the unit in which all of these times lie between 1990 and now, where in milliseconds none of them does."""
    if not times or any(_is_recent(time, now_ms) for time in times):
        return None
    for name, times_by, divided_by in _UNITS:
        if all(_is_recent(time * times_by // divided_by, now_ms) for time in times):
            change = f"multiplied by {times_by:,}" if times_by > 1 else f"divided by {divided_by:,}"
            return WrongTimeUnit(name, change, times[0], times[0] * times_by // divided_by)
    return None


def _is_recent(time_ms: int, now_ms: int) -> bool:
    return _YEAR_1990_MS <= time_ms <= now_ms + timedelta(days=1) // MILLISECOND


def out_of_range(times: Sequence[int], limit: timedelta | None) -> list[int]:
    """Return the indices of the events whose time no event can have.

    Args:
        times: the event times.
        limit: how far they may lie ahead of their arrival; None where they are not to be doubted.
    """
    first_ms, last_ms = (-MAX_UNCHECKED_MS, MAX_UNCHECKED_MS) if limit is None else (YEAR_1_MS, YEAR_9999_END_MS)
    if not times or (min(times) >= first_ms and max(times) <= last_ms):
        return []
    return [at for at, time in enumerate(times) if not first_ms <= time <= last_ms]


def too_far_ahead(times: Sequence[int], arrived_ms: Sequence[int], limit: timedelta) -> list[int]:
    """Return the indices of the events whose time lies further ahead of their arrival than the limit."""
    limit_ms = limit // MILLISECOND
    if not times or max(times) <= min(arrived_ms) + limit_ms:
        return []
    return [at for at, (time, arrived) in enumerate(zip(times, arrived_ms, strict=True)) if time > arrived + limit_ms]


def format_time(time_ms: int) -> str:
    """Return a time as people read it; of one that no calendar has, the number."""
    if YEAR_1_MS <= time_ms <= YEAR_9999_END_MS:
        return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"
    return f"{time_ms:,} ms"


def nearest_datetime(time_ms: int) -> datetime:
    """Return a time as a datetime; of one that no calendar has, the first or the last that it has."""
    return datetime.fromtimestamp(min(max(time_ms, YEAR_1_MS), YEAR_9999_END_MS) / 1000, timezone.utc)


def format_duration(span_ms: int) -> str:
    """Return how long a span is; of one that is longer than any calendar, the number."""
    days = abs(span_ms) // 86_400_000
    return str(timedelta(milliseconds=span_ms)) if days <= timedelta.max.days - 1 else f"{span_ms:,} ms"


UNKNOWN_ARRIVAL_MS = -1
"""In place of a time of arrival that nobody has noted."""
