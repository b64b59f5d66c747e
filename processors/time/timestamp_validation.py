"""Validation of event times: range, distance from arrival, and unit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .watermarks import Times
from .windows import MILLISECOND

YEAR_1_MS = -62_135_596_800_000
"""The first valid event time: the start of the year 1."""
YEAR_9999_END_MS = 253_402_300_799_999
"""The last valid event time: the end of the year 9999."""
MAX_UNCHECKED_MS = 2**62
"""The largest event time without `max_future`, and its negative the smallest: windows and watermarks around it need 64 bits."""

FIRST_EVENTS = 10
"""The number of first events of a bucket whose unit is checked."""

YEAR_1990_MS = 631_152_000_000
"""The time from which a number of milliseconds certainly is a date, and not another unit."""
_YEAR_MS = 365 * 86_400_000
_FIFTY_YEARS_MS = 50 * _YEAR_MS
_UNITS = (("seconds", 1_000, 1), ("microseconds", 1, 1_000), ("nanoseconds", 1, 1_000_000))


class WrongTimeUnit(NamedTuple):
    """The probable unit of event times that are not in milliseconds.

    Args:
        name: the probable unit.
        change: the conversion to milliseconds, such as "multiplied by 1,000".
        sample: the first event time.
        sample_ms: the first event time in milliseconds, after the conversion.
    """

    name: str
    change: str
    sample: int
    sample_ms: int

    def __str__(self) -> str:
        return (
            f"the first event times, such as {self.sample}, look like {self.name}, not milliseconds: {self.change}, that is "
            f"{datetime.fromtimestamp(self.sample_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
        )


def detect_wrong_unit(times: Sequence[int], now_ms: int) -> WrongTimeUnit | None:
    """Return the unit in which all times lie between 1990 and now; None if a time does in milliseconds, or no unit fits."""
    if not times or any(_is_recent(time, now_ms) for time in times):
        return None
    for name, times_by, divided_by in _UNITS:
        if all(_is_recent(time * times_by // divided_by, now_ms) for time in times):
            change = f"multiplied by {times_by:,}" if times_by > 1 else f"divided by {divided_by:,}"
            return WrongTimeUnit(name, change, times[0], times[0] * times_by // divided_by)
    return None


def wrong_unit_beside(time_ms: int, event_time_ms: int) -> str | None:
    """Return the unit in which a time lies between 1990 and 50 years after an event; None if it does in milliseconds, or no unit fits.

    Args:
        time_ms: the time that user code gave for milliseconds since 1970.
        event_time_ms: the time of the event; without a date after 1990, nothing is known.
    """
    if YEAR_1990_MS <= time_ms <= YEAR_9999_END_MS or not YEAR_1990_MS <= event_time_ms <= YEAR_9999_END_MS:
        return None
    last_ms = event_time_ms + _FIFTY_YEARS_MS
    found = (name for name, times_by, by in _UNITS if YEAR_1990_MS <= time_ms * times_by // by <= last_ms)
    return next(found, None)


def is_duration_beside(time_ms: int, event_time_ms: int) -> bool:
    """Return whether a time in milliseconds is in 1970 although its event is later than 1990."""
    return 0 < time_ms < _YEAR_MS and YEAR_1990_MS <= event_time_ms <= YEAR_9999_END_MS


def _is_recent(time_ms: int, now_ms: int) -> bool:
    return YEAR_1990_MS <= time_ms <= now_ms + timedelta(days=1) // MILLISECOND


def likely_cause(time_ms: int, arrived_ms: int) -> str:
    """Return why an event time is probably far from its arrival, as a clause that follows a semicolon."""
    unit = detect_wrong_unit([time_ms], arrived_ms)
    if unit is not None:
        return f"it looks like {unit.name}, not milliseconds ({unit.change}: {format_time(unit.sample_ms)} UTC)"
    return "probably the field has another unit than milliseconds since 1970, or the producer's clock is wrong"


def implausible(times: Times, arrived_ms: Times, limit: timedelta | None) -> npt.NDArray[np.int64]:
    """Return the indices of the implausible event times, in order: of those outside the valid range or too far after their arrival.

    An event without a recorded arrival, `UNKNOWN_ARRIVAL_MS`, is not too far after it.

    Args:
        times: the event times (milliseconds since 1970, UTC); Python's integers (`object`) if some have more than 64 bits.
        arrived_ms: when each event arrived (milliseconds since 1970, UTC).
        limit: the processor's `max_future`; None permits every arrival, and extends the range from the years 1 to 9999 to 62 bits.
    """
    if _are_plausible(times, arrived_ms, limit):
        return np.empty(0, np.int64)
    first_ms, last_ms = _valid_range(limit)
    found = (times < first_ms) | (times > last_ms)
    if limit is not None:
        found |= (times - arrived_ms > limit // MILLISECOND) & (arrived_ms != UNKNOWN_ARRIVAL_MS)
    return np.flatnonzero(found)


def _are_plausible(times: Times, arrived_ms: Times, limit: timedelta | None) -> bool:
    """Return whether all times certainly are plausible, which the extremes of nearly every batch show."""
    if not len(times):
        return True
    first_ms, last_ms = _valid_range(limit)
    newest = times.max()
    if times.min() < first_ms or newest > last_ms:
        return False
    return limit is None or (
        (earliest := arrived_ms.min()) != UNKNOWN_ARRIVAL_MS and newest <= earliest + limit // MILLISECOND
    )


def _valid_range(limit: timedelta | None) -> tuple[int, int]:
    return (-MAX_UNCHECKED_MS, MAX_UNCHECKED_MS) if limit is None else (YEAR_1_MS, YEAR_9999_END_MS)


def why_implausible(time_ms: int, arrived_ms: int, limit: timedelta | None) -> str:
    """Return the reason why a time is among the `implausible` ones, as a clause about the event."""
    if limit is None:
        return f"its event time, {time_ms}, exceeds 62 bits, so no window or watermark around it could be saved"
    cause = likely_cause(time_ms, arrived_ms)
    if not YEAR_1_MS <= time_ms <= YEAR_9999_END_MS:
        return f"its event time, {time_ms}, in milliseconds since 1970, is outside the years 1 to 9999; {cause}"
    return (
        f"its event time, {time_ms} ({format_time(time_ms)} UTC), is {format_duration(time_ms - arrived_ms)} ahead of its arrival, more than "
        f"{limit} (`max_future`); {cause}"
    )


def format_time(time_ms: int) -> str:
    """Return a time as a date in UTC; outside the years 1 to 9999, as the number of milliseconds."""
    if YEAR_1_MS <= time_ms <= YEAR_9999_END_MS:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    return f"{time_ms:,} ms"


def nearest_datetime(time_ms: int) -> datetime:
    """Return a time as a datetime in UTC, limited to the years 1 to 9999."""
    return datetime.fromtimestamp(min(max(time_ms, YEAR_1_MS), YEAR_9999_END_MS) / 1000, UTC)


def format_duration(span_ms: int) -> str:
    """Return a duration in days, hours, minutes and seconds; if it is too long for a timedelta, in milliseconds."""
    days = abs(span_ms) // 86_400_000
    return str(timedelta(milliseconds=span_ms)) if days <= timedelta.max.days - 1 else f"{span_ms:,} ms"


UNKNOWN_ARRIVAL_MS = -1
"""The arrival time of a message without a recorded arrival."""
