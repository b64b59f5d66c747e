"""Parameters of queries: times, time spans and limits.

at=TIME              the windows that contain a time
from=TIME, to=TIME   the windows that overlap a time span; without `to`, up to now
last=1h              the same for a time span that ends now
none of them         the latest window
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ....processors import PenstockError, did_you_mean
from ....processors.time import MILLISECOND

MAX_LIMIT = 10_000
"""The largest number of results or keys in an answer."""
DEFAULT_LIMIT = 100
MAX_KEYS = 1_000
"""The largest number of keys in one request."""
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(r"(\d{1,9})\s*([smhdw])")
_YEARS_MS = 253_402_300_800_000
"""The end of the year 9999, the last time of ISO 8601."""


class BadQuery(PenstockError):
    """A query is invalid: correct its parameters."""


@dataclass(frozen=True)
class TimeSpan:
    """A time span of event time: `begin_ms` is inside, `end_ms` is not (milliseconds since 1970, UTC)."""

    begin_ms: int
    end_ms: int


@dataclass(frozen=True)
class Parameters:
    """The parameters of a query.

    Args:
        values: the values of each parameter.
    """

    values: Mapping[str, Sequence[str]]

    def expect_only(self, *known: str) -> None:
        """Check that there are no other parameters.

        Raises:
            BadQuery: a parameter is unknown.
        """
        for name in self.values:
            if name not in known:
                raise BadQuery(
                    f"Parameter {name!r} is unknown. The parameters are: {', '.join(known)}.{did_you_mean(name, known)}"
                )

    def all(self, name: str) -> Sequence[str]:
        """Return all values of a parameter."""
        return self.values.get(name, ())

    def one(self, name: str) -> str | None:
        """Return the value of a parameter; None without it.

        Raises:
            BadQuery: it occurs several times.
        """
        found = self.all(name)
        if len(found) > 1:
            raise BadQuery(f"Parameter {name!r} occurs {len(found)} times. Pass it once.")
        return found[0] if found else None

    def limit(self, name: str, default: int = DEFAULT_LIMIT) -> int:
        """Return a number of results.

        Raises:
            BadQuery: it is not a number from 1 to `MAX_LIMIT`.
        """
        text = self.one(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= MAX_LIMIT:
            raise BadQuery(f"{name}={text!r} is invalid. Pass a number from 1 to {MAX_LIMIT:,}.")
        return int(text)

    def when(self, now_ms: int) -> int | TimeSpan | None:
        """Return the time of `at`, or the time span of `from`, `to` and `last`; None without them, for the latest window.

        Raises:
            BadQuery: a value is no time, or the parameters exclude each other.
        """
        at, begin, end, last = (self.one(name) for name in ("at", "from", "to", "last"))
        if (at is not None) + (last is not None) + (begin is not None or end is not None) > 1:
            raise BadQuery("at, last, and from with to exclude each other. Pass one of them.")
        if at is not None:
            return parse_time_ms("at", at, now_ms)
        if last is not None:
            return TimeSpan(now_ms - parse_span_ms(last), now_ms + 1)
        if begin is None and end is None:
            return None
        if begin is None:
            raise BadQuery("to needs from. Pass both, or last=1h.")
        span = TimeSpan(parse_time_ms("from", begin, now_ms), parse_time_ms("to", end or "now", now_ms))
        if span.begin_ms >= span.end_ms:
            raise BadQuery(f"from={begin} is not before to={end or 'now'}. Pass an earlier from.")
        return span


def parse_time_ms(name: str, text: str, now_ms: int) -> int:
    """Parse milliseconds since 1970, an ISO time (UTC without an offset), or "now".

    Raises:
        BadQuery: it is none of them.
    """
    if text == "now":
        return now_ms
    if re.fullmatch(r"-?\d{1,15}", text) and abs(int(text)) < _YEARS_MS:
        return int(text)
    try:
        # In a query string, the + of an offset is a space.
        time = datetime.fromisoformat(text.replace("Z", "+00:00").replace(" ", "+"))
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        return int(time.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadQuery(
            f"{name}={text!r} is no time. Pass milliseconds since 1970, or an ISO time such as 2026-01-31T10:00."
        ) from None


def parse_span_ms(text: str, name: str = "last") -> int:
    """Parse a duration such as 30s, 5m, 2h, 7d, in milliseconds.

    Args:
        text: the duration.
        name: its parameter, for messages.

    Raises:
        BadQuery: it is no duration.
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise BadQuery(f"{name}={text!r} is no duration. Pass 30s, 5m, 2h or 7d.")
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])}) // MILLISECOND
    except OverflowError:
        raise BadQuery(f"{name}={text!r} is too long. Pass a shorter duration, such as 7d.") from None
