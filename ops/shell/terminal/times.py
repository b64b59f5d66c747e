"""Parsing and formatting of offsets, times, durations, days and windows."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

import typer

from ....processors.time import GLOBAL_WINDOW_START_MS, Window, timestamp_validation

NOW = "now"
"""The value of --to for the current end of the categories, instead of a last day."""
LONGEST_SPAN = timedelta(days=36_500)
"""The longest duration. All times since then can be represented."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(
    r"(\d+)\s*([smhdw])((?<=s)ec(ond)?s?|(?<=m)in(ute)?s?|(?<=h)ours?|(?<=d)ays?|(?<=w)eeks?)?", re.IGNORECASE
)


def parse_span(text: str) -> timedelta:
    """Parse a duration such as 30s, 5m, 2h, 7d, or `5 minutes`."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration. Write 30s, 5m, 2h or 7d.")
    number, unit = int(match[1]), timedelta(**{_UNITS[match[2].lower()]: 1})
    if number > LONGEST_SPAN / unit:
        raise typer.BadParameter(f"{text!r} is longer than {LONGEST_SPAN.days}d, the longest duration.")
    return number * unit


def parse_start(text: str, now: datetime) -> int | datetime:
    """Parse an offset, "5m ago", or an ISO time (UTC without a time zone)."""
    if text.isdecimal():
        return int(text)
    if text.endswith("ago"):
        return now - parse_span(text.removesuffix("ago"))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f'{text!r} is neither an offset (1200; 0 is the beginning), nor a time (2013-01-31T10:00), nor a duration ("5m ago").'
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def parse_time_ms(text: str) -> int:
    """Parse an ISO time (UTC without a time zone), as milliseconds since 1970."""
    time = parse_start(text, datetime.now(UTC))
    return time if isinstance(time, int) else int(time.timestamp() * 1000)


def format_time(time_ms: int | None) -> str:
    """Format milliseconds since 1970 as a time in UTC; "no event time" without one."""
    return "no event time" if time_ms is None else timestamp_validation.format_time(time_ms)


def format_window(window: Window | None) -> str:
    """Format the start and end of a window; empty without one."""
    if window is None:
        return ""
    return (
        "ever"
        if window.start == GLOBAL_WINDOW_START_MS
        else f"{format_time(window.start)} to {format_time(window.end)}"
    )


def parse_day(text: str) -> date:
    """Parse a day such as 2013-01-31."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a day. Write it as 2013-01-31.") from None


def parse_days(first: str | None, last: str | None, day: str | None, today: date | None = None) -> tuple[date, date]:
    """Return the first and last day of --from and --to, or of --day.

    Args:
        first: the value of --from.
        last: the value of --to.
        day: the value of --day; "yesterday" is the previous UTC day.
        today: the current UTC day; None for the clock.
    """
    if day is not None and first is None and last is None:
        chosen = parse_day(day) if day != "yesterday" else (today or datetime.now(UTC).date()) - timedelta(days=1)
        return chosen, chosen
    if first is None or last is None or day is not None:
        raise typer.BadParameter("Name the days: --from DAY --to DAY, or --day DAY (such as 2013-01-31, or yesterday).")
    return parse_day(first), parse_day(last)
