"""Cron expressions: five fields that select minutes of a zone's clock.

"30 6 * * mon-fri" --Cron.parse--> sets of minutes, hours, days, months, weekdays --next_after--> the next selected minute
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from ..wording import counted

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_SEARCHED = timedelta(days=366 * 9)
"""How far a next time is searched. The 29th of February may be missing for eight years."""


class _Field(NamedTuple):
    """A field of an expression: its name, its limits, and names for its values, from the lowest."""

    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    _Field("day of the week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)


@dataclass(frozen=True)
class CronTimes:
    """The minutes that an expression selects.

    Args:
        minutes: 0 to 59.
        hours: 0 to 23.
        days: of the month; None for all.
        months: 1 to 12.
        weekdays: 0 (Sunday) to 6; None for all. If days are also given, one of both suffices, as for `cron`.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None

    @classmethod
    def parse(cls, expression: str) -> CronTimes:
        """Return the minutes that an expression selects.

        Raises:
            ValueError: it is no cron expression.
        """
        texts = expression.split()
        if len(texts) != len(_FIELDS):
            raise ValueError(
                f"it has {counted(len(texts), 'field')} instead of 5: minute, hour, day of the month, month, day of the week"
            )
        minutes, hours, days, months, weekdays = (
            _values(text.lower(), field) for text, field in zip(texts, _FIELDS, strict=True)
        )
        return cls(
            minutes,
            hours,
            None if texts[2].startswith("*") and len(days) == 31 else days,
            months,
            None if texts[4].startswith("*") and len(weekdays) >= 7 else frozenset(day % 7 for day in weekdays),
        )

    def next_after(self, after: datetime, zone: tzinfo) -> datetime | None:
        """Return the next minute after a time at which the zone's clock shows a selected minute; None if there is none for years.

        A minute that the clock skips is not selected. A minute that it shows twice is selected twice.
        """
        at = after.astimezone(UTC).replace(second=0, microsecond=0) + _MINUTE
        end = at + _SEARCHED
        while at < end:
            local = at.astimezone(zone)
            if not self._selects_day(local):
                at = _next_midnight(local, at)
            elif local.hour not in self.hours:
                at += _HOUR - local.minute * _MINUTE
            elif local.minute not in self.minutes:
                at += _MINUTE
            else:
                return at
        return None

    def _selects_day(self, local: datetime) -> bool:
        if local.month not in self.months:
            return False
        in_month = self.days is None or local.day in self.days
        in_week = self.weekdays is None or local.isoweekday() % 7 in self.weekdays
        return in_month or in_week if self.days is not None and self.weekdays is not None else in_month and in_week


def _next_midnight(local: datetime, at: datetime) -> datetime:
    """Return the first minute of the next day in a zone, as UTC. It is later than `at`, also where clocks change at midnight."""
    tomorrow = (local.replace(tzinfo=None) + timedelta(days=1)).replace(hour=0, minute=0, tzinfo=local.tzinfo)
    return max(tomorrow.astimezone(UTC), at + _MINUTE)


def _values(text: str, field: _Field) -> frozenset[int]:
    return frozenset(value for part in text.split(",") for value in _range(part, field))


def _range(part: str, field: _Field) -> range:
    values, has_step, step = part.partition("/")
    first, has_last, last = values.partition("-")
    low = field.lowest if values == "*" else _value(first, field)
    high = _value(last, field) if has_last else field.highest if values == "*" or has_step else low
    if high < low or (has_step and not (step.isdecimal() and int(step))):
        raise ValueError(f"{part!r} is no {field.name}: {_allowed(field)}")
    return range(low, high + 1, int(step) if has_step else 1)


def _value(text: str, field: _Field) -> int:
    value = field.names.index(text) + field.lowest if text in field.names else int(text) if text.isdecimal() else -1
    if not field.lowest <= value <= field.highest:
        raise ValueError(f"{text!r} is no {field.name}: {_allowed(field)}")
    return value


def _allowed(field: _Field) -> str:
    names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
    return f"write {field.lowest} to {field.highest}{names}; a list `1,2`, a range `1-5`, or a step `*/5`"
