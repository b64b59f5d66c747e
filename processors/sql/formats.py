"""The formats of to_char, with PostgreSQL's results in the locale C.

'YYYY-MM-DD HH24:MI' --parsed--> patterns and texts --applied to a time--> text
'FM999G990D00'       --parsed--> a number format     --applied to a number--> text
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

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


class _TimePattern(NamedTuple):
    """A number in a time.

    Args:
        value: returns the number.
        width: its digits; fewer with FM.
    """

    value: Callable[[datetime], int]
    width: int


_NUMBERS = {
    "YYYY": _TimePattern(lambda moment: moment.year, 4),
    "YYY": _TimePattern(lambda moment: moment.year % 1000, 3),
    "YY": _TimePattern(lambda moment: moment.year % 100, 2),
    "IYYY": _TimePattern(lambda moment: moment.isocalendar().year, 4),
    "MM": _TimePattern(lambda moment: moment.month, 2),
    "DDD": _TimePattern(lambda moment: moment.timetuple().tm_yday, 3),
    "DD": _TimePattern(lambda moment: moment.day, 2),
    "D": _TimePattern(lambda moment: moment.isoweekday() % 7 + 1, 1),
    "ID": _TimePattern(lambda moment: moment.isoweekday(), 1),
    "IW": _TimePattern(lambda moment: moment.isocalendar().week, 2),
    "WW": _TimePattern(lambda moment: (moment.timetuple().tm_yday - 1) // 7 + 1, 2),
    "Q": _TimePattern(lambda moment: (moment.month + 2) // 3, 1),
    "HH24": _TimePattern(lambda moment: moment.hour, 2),
    "HH12": _TimePattern(lambda moment: (moment.hour + 11) % 12 + 1, 2),
    "HH": _TimePattern(lambda moment: (moment.hour + 11) % 12 + 1, 2),
    "MI": _TimePattern(lambda moment: moment.minute, 2),
    "SS": _TimePattern(lambda moment: moment.second, 2),
}
_FRACTIONS = {
    "MS": lambda moment: f"{moment.microsecond // 1000:03}",
    "US": lambda moment: f"{moment.microsecond:06}",
}
"""Digits after a point, which FM does not shorten."""
_NAMES: dict[str, Callable[[datetime], str]] = {
    "Month": lambda moment: _MONTHS[moment.month - 1],
    "Mon": lambda moment: _MONTHS[moment.month - 1][:3],
    "Day": lambda moment: _DAYS[moment.weekday()],
    "Dy": lambda moment: _DAYS[moment.weekday()][:3],
}
_PADDED = ("Month", "Day")
_HALVES = {"AM": str.upper, "PM": str.upper, "am": str.lower, "pm": str.lower}
_OTHER_PATTERNS = ("SSSS", "ssss", "IDDD", "iddd")
"""Patterns of PostgreSQL that would be read as two supported ones."""
TIME_PATTERNS = (*_NUMBERS, *_FRACTIONS, *_NAMES, "AM", "FM")
"""The patterns of times. Those of numbers may be in lower case; the case of names is the case of their texts."""
NUMBER_PATTERNS = ("9", "0", ".", ",", "D", "G", "FM")

TimePart = Callable[[datetime], str]


def time_parts(time_format: str) -> tuple[TimePart, ...]:
    """Return the parts of a format of times; their texts together are the text of a time.

    Raises:
        UnknownPattern: a word of the format is no pattern.
    """
    parts: list[TimePart] = []
    place = 0
    while place < len(time_format):
        length, part = _time_part(time_format, place)
        parts.append(part)
        place += length
    return tuple(parts)


def _time_part(time_format: str, place: int) -> tuple[int, TimePart]:
    """Return the length and the function of the part at a place."""
    quoted = _QUOTED.match(time_format, place)
    if quoted is not None:
        return len(quoted[0]), _constant(quoted[1])
    fills = 0 if time_format[place : place + 2] in ("FM", "fm") else None
    start = place if fills is None else place + 2
    if time_format.startswith(_OTHER_PATTERNS, start):
        raise UnknownPattern(_word_at(time_format, place), place)
    for pattern in _TIME_PATTERNS:
        found = time_format[start : start + len(pattern)]
        part = _of_pattern(pattern, found, is_short=fills is not None)
        if part is not None:
            end = start + len(found)
            # DDTH is an ordinal number in PostgreSQL, also in DDTHH24.
            if time_format[end : end + 2] in ("TH", "th"):
                raise UnknownPattern(_word_at(time_format, place), place)
            return end - place, part
    if time_format[place].isalpha() or time_format[place] in '"\\':
        raise UnknownPattern(_word_at(time_format, place), place)
    return 1, _constant(time_format[place])


def _word_at(time_format: str, place: int) -> str:
    """Return the letters and digits at a place; without one, the character."""
    word = re.compile(r"[A-Za-z0-9]+").match(time_format, place)
    return word[0] if word else time_format[place]


def _of_pattern(pattern: str, found: str, *, is_short: bool) -> TimePart | None:
    """Return the function of a pattern; None if the text found in the format is another one."""
    if pattern in _NUMBERS and found in (pattern, pattern.lower()):
        value, width = _NUMBERS[pattern]
        return lambda moment: f"{value(moment):0{0 if is_short else width}}"
    if pattern in _FRACTIONS and found in (pattern, pattern.lower()):
        return _FRACTIONS[pattern]
    if pattern in _NAMES and found in (pattern, pattern.lower(), pattern.upper()):
        name, convert = _NAMES[pattern], _case_of(found)
        width = _LONGEST_NAME if pattern in _PADDED and not is_short else 0
        return lambda moment: convert(name(moment)).ljust(width)
    if pattern in _HALVES and found == pattern:
        half = _HALVES[pattern]
        return lambda moment: half("PM" if moment.hour >= 12 else "AM")
    return None


def _case_of(found: str) -> Callable[[str], str]:
    if found.isupper():
        return str.upper
    return str.lower if found.islower() else str


def _constant(text: str) -> TimePart:
    return lambda _: text


_QUOTED = re.compile(r'"([^"\\]*)"')
_TIME_PATTERNS = sorted([*_NUMBERS, *_FRACTIONS, *_NAMES, *_HALVES], key=len, reverse=True)


def time_text(parts: Sequence[TimePart], moment: datetime) -> str:
    """Return the text of a time."""
    return "".join(part(moment) for part in parts)


@dataclass(frozen=True)
class NumberFormat:
    """A format of numbers.

    Args:
        parts: `9`, `0`, `.`, `,` and texts, in order.
        is_short: whether it has FM: no spaces before the number, no zeros at its end.
        before: the number of digits before the point.
        after: the number of digits after the point.
        first_zero: the index of the first `0` before the point; None without one.
        last_zero: the number of digits up to the last `0`.
    """

    parts: tuple[str, ...]
    is_short: bool
    before: int
    after: int
    first_zero: int | None
    last_zero: int

    @staticmethod
    def of(number_format: str) -> NumberFormat:
        """Return a parsed format.

        Raises:
            UnknownPattern: a letter is no pattern, or there is a second point.
        """
        parts: list[str] = []
        digits = re.sub("FM|fm", lambda found: "\0" * len(found[0]), number_format)
        for place, character in enumerate(digits):
            part = {"D": ".", "d": ".", "G": ",", "g": ","}.get(character, character)
            if part.isalpha() or part in '"\\#' or (part == "." and "." in parts):
                raise UnknownPattern(number_format[place], place)
            if part != "\0":
                parts.append(part)
        point = parts.index(".") if "." in parts else len(parts)
        of_digits = [part for part in parts if part in "09"]
        before = sum(part in "09" for part in parts[:point])
        zeros = [index for index, part in enumerate(of_digits) if part == "0"]
        first = zeros[0] if zeros and zeros[0] < before else None
        last = zeros[-1] + 1 if zeros else 0
        return NumberFormat(tuple(parts), "\0" in digits, before, len(of_digits) - before, first, last)

    def text(self, value: float | Decimal) -> str:
        """Return the text of a number; `#` for each digit of one that is too large."""
        sign, digits = self._digits(value)
        whole, _, fraction = digits.partition(".")
        if len(whole) > self.before:
            digits = f"{'#' * self.before}.{'#' * len(fraction)}"
        return _Filled(self, sign, digits, max(self.before - len(whole), 0)).text()

    def _digits(self, value: float | Decimal) -> tuple[str, str]:
        """Return the sign of a number and its rounded digits."""
        if isinstance(value, float):
            whole = len(f"{abs(value):.0f}")
            after = 0 if whole >= _DIGITS_OF_DOUBLE else min(self.after, _DIGITS_OF_DOUBLE - whole)
            text = f"{value:.{after}f}"
        else:
            text = f"{round_numeric(Decimal(value), self.after):f}"
        return ("-", text[1:]) if text.startswith("-") else ("+", text)


@dataclass
class _Filled:
    """The text of a number while it is written, from left to right, as PostgreSQL writes it.

    Args:
        format: the format.
        sign: `+` or `-`.
        digits: the digits, perhaps with a point.
        spaces: the digits of the format before the first digit of the number.
    """

    format: NumberFormat
    sign: str
    digits: str
    spaces: int
    _written: list[str] = field(default_factory=list)
    _current: int = 0
    _next: int = 0
    _has_sign: bool = False
    _has_digit: bool = False

    def text(self) -> str:
        """Return the text."""
        self._has_sign = self.sign == "+" and self.format.is_short
        for part in self.format.parts:
            if part in "09.":
                self._write_part(part)
            elif part != ",":
                self._written.append(part)
            elif self._has_digit or not self.format.is_short:
                self._written.append("," if self._has_digit else " ")
        return "".join(self._written)

    def _write_part(self, part: str) -> None:
        zero = self.format.first_zero
        starts = self._current >= self.spaces or (zero is not None and zero == self._current)
        if not self._has_sign and starts and (not self._is_hidden_zero or self._ends_at_point):
            self._written.append("-" if self.sign == "-" else " ")
            self._has_sign = True
        if self._current < self.spaces:
            self._write_before(is_zero=zero is not None and zero <= self._current)
        else:
            self._write_digit(part)
            self._next += 1
        self._current += 1

    def _write_before(self, *, is_zero: bool) -> None:
        if is_zero:
            self._written.append("0")
            self._has_digit = True
        elif not self.format.is_short:
            self._written.append(" ")

    def _write_digit(self, part: str) -> None:
        digit = self.digits[self._next : self._next + 1]
        last = self._last_digit
        if digit == ".":
            self._written.append(".")
        elif last is not None and self._next > last and part != "0":
            return
        elif self._is_hidden_zero:
            if not self.format.is_short:
                self._written.append(" ")
            elif self._ends_at_point:
                self._written.append("0")
        else:
            self._written.append(digit)
            self._has_digit = True

    @property
    def _is_hidden_zero(self) -> bool:
        """Whether the next digit is the zero before a point, which `9.9` does not show."""
        return self.format.first_zero is None and self._next == 0 and self.digits[:1] == "0" and self.format.after != 0

    @property
    def _last_digit(self) -> int | None:
        """The index of the last digit that is shown; None without FM or without a point."""
        point = self.digits.find(".")
        if not self.format.is_short or point < 0 or "." not in self.format.parts:
            return None
        last = len(self.digits.rstrip("0")) - 1
        kept = (
            min(self.format.last_zero - self.spaces, len(self.digits) - 1) if self.format.last_zero > self.spaces else 0
        )
        return max(last, point, kept)

    @property
    def _ends_at_point(self) -> bool:
        last = self._last_digit
        return last is not None and self.digits[last] == "."
