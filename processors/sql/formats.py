"""The formats of to_char, with PostgreSQL's results in the locale C.

'YYYY-MM-DD HH24:MI' --parsed--> a function       --applied to a time-->   text
'FM999G990D00'       --parsed--> a number format  --applied to a number--> text
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from .values import round_numeric

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LONGEST_NAME = 9
_DIGITS_OF_DOUBLE = 15
_BLANK = "\0"
"""A place that FM leaves out, and a space without FM."""
_LONE_ZERO = "\1"
"""The zero of `0.`, which FM shows if no other digit is left. No comma follows it."""


class UnknownPattern(ValueError):
    """A format contains a pattern that is not supported.

    Args:
        pattern: the pattern.
        place: its index in the format.
    """

    def __init__(self, pattern: str, place: int) -> None:
        super().__init__(pattern)
        self.pattern = pattern
        self.place = place


TimeText = Callable[[datetime], str]

_PATTERNS: dict[str, TimeText] = {
    "YYYY": lambda moment: f"{moment.year:04}",
    "YYY": lambda moment: f"{moment.year % 1000:03}",
    "YY": lambda moment: f"{moment.year % 100:02}",
    "IYYY": lambda moment: f"{moment.isocalendar().year:04}",
    "MM": lambda moment: f"{moment.month:02}",
    "Month": lambda moment: f"{_MONTHS[moment.month - 1]:{_LONGEST_NAME}}",
    "Mon": lambda moment: _MONTHS[moment.month - 1][:3],
    "DDD": lambda moment: f"{moment.timetuple().tm_yday:03}",
    "DD": lambda moment: f"{moment.day:02}",
    "D": lambda moment: str(moment.isoweekday() % 7 + 1),
    "ID": lambda moment: str(moment.isoweekday()),
    "IW": lambda moment: f"{moment.isocalendar().week:02}",
    "WW": lambda moment: f"{(moment.timetuple().tm_yday - 1) // 7 + 1:02}",
    "Q": lambda moment: str((moment.month + 2) // 3),
    "Day": lambda moment: f"{_DAYS[moment.weekday()]:{_LONGEST_NAME}}",
    "Dy": lambda moment: _DAYS[moment.weekday()][:3],
    "HH24": lambda moment: f"{moment.hour:02}",
    "HH12": lambda moment: f"{(moment.hour + 11) % 12 + 1:02}",
    "HH": lambda moment: f"{(moment.hour + 11) % 12 + 1:02}",
    "MI": lambda moment: f"{moment.minute:02}",
    "SS": lambda moment: f"{moment.second:02}",
    "MS": lambda moment: f"{moment.microsecond // 1000:03}",
    "US": lambda moment: f"{moment.microsecond:06}",
    "AM": lambda moment: "PM" if moment.hour >= 12 else "AM",
    "PM": lambda moment: "PM" if moment.hour >= 12 else "AM",
}
_FRACTIONS = ("MS", "US")
"""Digits after a point, which FM does not shorten."""
TIME_PATTERNS = (*_PATTERNS, "FM")
NUMBER_PATTERNS = ("9", "0", ".", ",", "D", "G", "FM")

_SPELLINGS = {change(pattern): (pattern, change) for change in (str.upper, str.lower, str) for pattern in _PATTERNS}
"""Each pattern as it may be written, and the change of case that its text has then."""
# PostgreSQL has SSSS and IDDD, which would be read as two patterns each.
_TIME_PART = re.compile(
    r'"(?P<quoted>[^"\\]*)"|(?P<longer>(FM|fm)?(SSSS|ssss|IDDD|iddd))'
    rf"|(?P<short>FM|fm)?(?P<pattern>{'|'.join(sorted(_SPELLINGS, key=len, reverse=True))})"
    r'|(?P<word>[^\W\d_][A-Za-z0-9]*|["\\])|(?P<other>.)',
    re.DOTALL,
)
_NUMBER_PART = re.compile(r'"[^"\\]*"|FM|fm|[DdGg]|[^\W\d_]+|.', re.DOTALL)
_NUMBER_SYNONYMS = {"D": ".", "d": ".", "G": ",", "g": ",", "fm": "FM"}


def time_text(time_format: str) -> TimeText:
    """Return the function from a time to its text in a format.

    Raises:
        UnknownPattern: a word of the format is no pattern.
    """
    parts = tuple(_time_part(found) for found in _TIME_PART.finditer(time_format))
    return lambda moment: "".join(part(moment) for part in parts)


def _time_part(found: re.Match[str]) -> TimeText:
    if unknown := found["longer"] or found["word"]:
        raise UnknownPattern(unknown, found.start())
    if not found["pattern"]:
        constant = found["quoted"] or found["other"] or ""
        return lambda _: constant
    pattern, change = _SPELLINGS[found["pattern"]]
    text = _PATTERNS[pattern]
    if found["short"] and pattern not in _FRACTIONS:
        return lambda moment: change(text(moment).rstrip().lstrip("0") or "0")
    return lambda moment: change(text(moment))


@dataclass(frozen=True)
class NumberFormat:
    """A format of numbers.

    Args:
        parts: `9`, `0`, `.`, `,` and texts, in order.
        is_short: whether it has FM: no spaces before the number, no zeros at its end.
        whole: the `9` and `0` before the point.
        fraction: the `9` and `0` after the point.
    """

    parts: tuple[str, ...]
    is_short: bool
    whole: str
    fraction: str

    @staticmethod
    def of(number_format: str) -> NumberFormat:
        """Return a parsed format.

        Raises:
            UnknownPattern: a word is no pattern, or a point or comma follows the point.
        """
        parts: list[str] = []
        is_short = False
        for found in _NUMBER_PART.finditer(number_format):
            part = _NUMBER_SYNONYMS.get(found[0], found[0])
            if part == "FM":
                is_short = True
            elif part.isalpha() or part in '"\\#' or (part in ".," and "." in parts):
                raise UnknownPattern(found[0], found.start())
            else:
                parts.append(part)
        whole, _, fraction = "".join(part for part in parts if part in "09.").partition(".")
        return NumberFormat(tuple(parts), is_short, whole, fraction)

    def text(self, value: float | Decimal) -> str:
        """Return the text of a number; `#` for each digit of one that is too large."""
        sign, digits = self._digits(value)
        number = self._aligned(*digits.partition("."))
        start = len(number) - len(number.lstrip(_BLANK))
        text, place = "", 0
        for part in self.parts:
            if part in "09.":
                text += (sign if place == start else "") + number[place : place + 1]
                place += 1
            elif part == ",":
                text += part if number[:place].strip(f"{_BLANK}{_LONE_ZERO}") else _BLANK
            else:
                text += part.strip('"')
        return text.replace(_BLANK, "" if self.is_short else " ").replace(_LONE_ZERO, "0")

    def _digits(self, value: float | Decimal) -> tuple[str, str]:
        """Return the sign of a number and its rounded digits."""
        after = len(self.fraction)
        if isinstance(value, float):
            whole = len(f"{abs(value):.0f}")
            text = f"{value:.{min(after, max(_DIGITS_OF_DOUBLE - whole, 0))}f}"
        else:
            text = f"{round_numeric(Decimal(value), after):f}"
        return ("-", text[1:]) if text.startswith("-") else (_BLANK, text)

    def _aligned(self, whole: str, point: str, fraction: str) -> str:
        """Return the digits of a number, as many before the point as in the format."""
        width, zeros = len(self.whole), len(self.whole.lstrip("9"))
        if len(whole) > width:
            return f"{'#' * width}.{'#' * len(fraction)}"
        if self.is_short:
            fraction = fraction[: max(len(fraction.rstrip("0")), len(self.fraction.rstrip("9")))]
        if whole == "0" and self.fraction and not zeros:
            whole = "" if fraction else _LONE_ZERO
        return f"{whole.rjust(zeros, '0').rjust(width, _BLANK)}{point}{fraction}"
