"""Event times that cannot be meant: far ahead of the event's arrival, or in another unit than milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from .windows import MILLISECOND

FIRST_EVENTS = 10
"""How many of the first events of a bucket are looked at for their unit."""

_YEAR_1990_MS = 631_152_000_000
_UNITS = (("seconds", 1_000, 1), ("microseconds", 1, 1_000), ("nanoseconds", 1, 1_000_000))


class OtherUnit(NamedTuple):
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


def other_unit(times: Sequence[int], now_ms: int) -> OtherUnit | None:
    """Return the unit in which all of these times lie between 1990 and now, where in milliseconds none of them does."""
    if not times or any(_is_recent(time, now_ms) for time in times):
        return None
    for name, times_by, divided_by in _UNITS:
        if all(_is_recent(time * times_by // divided_by, now_ms) for time in times):
            change = f"multiplied by {times_by:,}" if times_by > 1 else f"divided by {divided_by:,}"
            return OtherUnit(name, change, times[0], times[0] * times_by // divided_by)
    return None


def _is_recent(time_ms: int, now_ms: int) -> bool:
    return _YEAR_1990_MS <= time_ms <= now_ms + timedelta(days=1) // MILLISECOND


def ahead(times: Sequence[int], arrived_ms: Sequence[int], limit: timedelta) -> list[int]:
    """Return the indices of the events whose time lies further ahead of their arrival than the limit."""
    limit_ms = limit // MILLISECOND
    if not times or max(times) <= min(arrived_ms) + limit_ms:
        return []
    return [at for at, (time, arrived) in enumerate(zip(times, arrived_ms, strict=True)) if time > arrived + limit_ms]
