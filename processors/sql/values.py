"""Operations on SQL values that Python's operators do not offer, with PostgreSQL's results.

The compiled code of expressions calls these functions; their arguments are never NULL.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import MAX_EMAX, MIN_EMIN, ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from .errors import SqlDataError
from .letter_case import ignoring_case

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ASCII_SPACE = " \t\n\r\f\v"
_ISO_TIME = re.compile(
    r"\s*([0-9]{4})(-?)([0-9]{2})\2([0-9]{2})"
    r"(?:(?:T|\s+)([0-9]{2})(:?)([0-9]{2})(?:\6([0-9]{2})(?:\.([0-9]*))?)?"
    r"\s*(?:Z|([+-])(0[0-9]|1[0-5])(?::?([0-9]{2})(?::?([0-9]{2}))?)?)?)?\s*",
    re.ASCII | re.IGNORECASE,
)
_UUID = re.compile(r"(\{)?(?:[0-9a-f]{4}-?){7}[0-9a-f]{4}(?(1)\})", re.ASCII | re.IGNORECASE)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_LONGEST_TEXT = 1_000_000
_LARGEST_EXPONENT = 4_000
EXACT = Context(prec=10_000, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Computes without rounding, in more digits than numbers in messages have."""
_PLACES = 18
"""The most digits after the point that records accept."""


def bigint(value: int) -> int:
    """Return the value if it fits into 64 bits."""
    if _LOWEST <= value <= _HIGHEST:
        return value
    raise SqlDataError("bigint out of range")


def attempted(convert: Callable[[Any], Any], value: Any) -> Any:
    """Return a converted value; NULL if it has no value of the other type."""
    try:
        return convert(value)
    except SqlDataError:
        return None


def double(value: float) -> float:
    """Return the value if it is finite."""
    if math.isinf(value):
        raise SqlDataError(_OVERFLOW)
    return value


_OVERFLOW, _UNDERFLOW = "value out of range: overflow", "value out of range: underflow"


def add_double(left: float, right: float) -> float:
    """Return the sum. Infinity plus a number is infinite; a sum of finite numbers is finite or no value."""
    total = left + right
    return total if math.isfinite(total) or math.isinf(left) or math.isinf(right) else double(total)


def subtract_double(left: float, right: float) -> float:
    """Return the difference, as `add_double`."""
    return add_double(left, -right)


def multiply_double(left: float, right: float) -> float:
    """Return the product, as `add_double`. It is zero only if a factor is."""
    product = left * right
    if product == 0 and left != 0 and right != 0:
        raise SqlDataError(_UNDERFLOW)
    return product if math.isfinite(product) or math.isinf(left) or math.isinf(right) else double(product)


def divide_bigint(left: int, right: int) -> int:
    """Return the quotient, truncated toward zero."""
    if right == 0:
        raise SqlDataError("division by zero")
    quotient = abs(left) // abs(right)
    return bigint(quotient if (left < 0) == (right < 0) else -quotient)


def remainder_bigint(left: int, right: int) -> int:
    """Return the remainder, with the sign of the dividend."""
    if right == 0:
        raise SqlDataError("division by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def divide_double(left: float, right: float) -> float:
    """Return the quotient."""
    if math.isnan(left):
        return left
    if right == 0:
        raise SqlDataError("division by zero")
    quotient = left / right
    if quotient == 0 and left != 0 and not math.isinf(right):
        raise SqlDataError(_UNDERFLOW)
    return quotient if math.isinf(left) else double(quotient)


def add_numeric(left: Decimal, right: Decimal) -> Decimal:
    """Return the exact sum."""
    return EXACT.add(left, right)


def subtract_numeric(left: Decimal, right: Decimal) -> Decimal:
    """Return the exact difference."""
    return EXACT.subtract(left, right)


def multiply_numeric(left: Decimal, right: Decimal) -> Decimal:
    """Return the exact product, without a negative zero."""
    return EXACT.plus(EXACT.multiply(left, right))


def negate_numeric(value: Decimal) -> Decimal:
    """Return the negative number, without a negative zero."""
    return EXACT.minus(value)


def divide_numeric(left: Decimal, right: Decimal) -> Decimal:
    """Return the quotient, with at most 18 digits after the point."""
    if right == 0:
        raise SqlDataError("division by zero")
    return limited_numeric(_DIVIDING.divide(left, right))


_DIVIDING = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Divides in more digits than records accept."""


def limited_numeric(value: Decimal) -> Decimal:
    """Return a quotient in the digits after the point that records accept."""
    return value if int(value.as_tuple().exponent) >= -_PLACES else round_numeric(value, _PLACES)


def remainder_numeric(left: Decimal, right: Decimal) -> Decimal:
    """Return the remainder, with the sign of the dividend."""
    if right == 0:
        raise SqlDataError("division by zero")
    return EXACT.remainder(left, right)


def power(base: float, exponent: float) -> float:
    """Return the power of doubles."""
    if base == 0 and exponent < 0:
        raise SqlDataError("zero raised to a negative power is undefined")
    if base < 0 and math.isfinite(exponent) and exponent % 1:
        raise SqlDataError("a negative number raised to a non-integer power yields a complex result")
    try:
        result = math.pow(base, exponent)
    except OverflowError:
        raise SqlDataError(_OVERFLOW) from None
    if math.isinf(base) or math.isinf(exponent):
        return result
    if result == 0 and base != 0:
        raise SqlDataError(_UNDERFLOW)
    return double(result)


def square_root(value: float) -> float:
    """Return the square root."""
    if value < 0:
        raise SqlDataError("cannot take square root of a negative number")
    return math.sqrt(value)


def logarithm(value: float) -> float:
    """Return the natural logarithm."""
    if value <= 0:
        raise SqlDataError("cannot take logarithm of zero or of a negative number")
    return math.log(value)


def logarithm_10(value: float) -> float:
    """Return the logarithm to base ten."""
    if value <= 0:
        raise SqlDataError("cannot take logarithm of zero or of a negative number")
    return math.log10(value)


def exponential(value: float) -> float:
    """Return e raised to the value."""
    try:
        result = math.exp(value)
    except OverflowError:
        raise SqlDataError(_OVERFLOW) from None
    if result == 0 and not math.isinf(value):
        raise SqlDataError(_UNDERFLOW)
    return result


def round_double(value: float) -> float:
    """Return the nearest integer as a double; halves go to the even one. Infinities and NaN stay."""
    return float(round(value)) if math.isfinite(value) else value


def floor_double(value: float) -> float:
    """Return the integer below as a double, as `round_double`."""
    return float(math.floor(value)) if math.isfinite(value) else value


def ceil_double(value: float) -> float:
    """Return the integer above as a double, as `round_double`."""
    return float(math.ceil(value)) if math.isfinite(value) else value


def round_numeric(value: Decimal, digits: int = 0) -> Decimal:
    """Return the value with a number of digits after the point; halves go away from zero."""
    return _quantized(value, digits, ROUND_HALF_UP)


def truncate_double(value: float) -> float:
    """Return the integer part as a double, as `round_double`."""
    return float(math.trunc(value)) if math.isfinite(value) else value


def truncate_numeric(value: Decimal, digits: int) -> Decimal:
    """Return the value without further digits after the point."""
    return _quantized(value, digits, ROUND_DOWN)


def _quantized(value: Decimal, digits: int, rounding: str) -> Decimal:
    if abs(digits) > _LARGEST_EXPONENT:
        raise SqlDataError(f"{digits} digits after the point are out of range")
    return EXACT.plus(value.quantize(Decimal(1).scaleb(-digits), rounding, EXACT))  # without a negative zero


def double_to_bigint(value: float) -> int:
    """Return the nearest integer; halves go to the even one."""
    if math.isnan(value) or math.isinf(value):
        raise SqlDataError("bigint out of range")
    return bigint(round(value))


def numeric_to_bigint(value: Decimal) -> int:
    """Return the nearest integer; halves go away from zero."""
    return bigint(int(value.to_integral_value(ROUND_HALF_UP)))


def text_to_bigint(value: str) -> int:
    """Return the integer that a text denotes."""
    if re.fullmatch(r"\s*[+-]?[0-9]+\s*", value, re.ASCII):
        return bigint(int(value))
    raise SqlDataError(f"invalid input syntax for type bigint: {value!r}")


def text_to_double(value: str) -> float:
    """Return the double that a text denotes."""
    try:
        number = float(_number(value))
    except ValueError:
        raise SqlDataError(f"invalid input syntax for type double precision: {value!r}") from None
    if (math.isinf(number) and "inf" not in value.lower()) or is_underflow(value, number):
        raise SqlDataError(f"{value.strip()!r} is out of range for type double precision")
    return number


def is_underflow(text: str, number: float) -> bool:
    """Return whether a double is zero although the text that it was made of denotes another number."""
    return number == 0 and re.search("[1-9]", re.split("[eE]", text)[0]) is not None


def numeric_to_double(value: Decimal) -> float:
    """Return the nearest double."""
    number = float(value)
    if math.isinf(number) or (number == 0 and value != 0):
        raise SqlDataError(f"{str(value)!r} is out of range for type double precision")
    return number


def text_to_numeric(value: str) -> Decimal:
    """Return the number that a text denotes, exactly. It is finite, as in records."""
    try:
        number = Decimal(_number(value))
    except (InvalidOperation, ValueError):
        raise SqlDataError(f"invalid input syntax for type numeric: {value!r}") from None
    if not number.is_finite() or abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise SqlDataError(f"numeric out of range: {value!r}")
    return number


def _number(text: str) -> str:
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text.strip()


def double_to_numeric(value: float) -> Decimal:
    """Return a double with its 15 decimal digits that are certain, as PostgreSQL: 0.1 + 0.2 is 0.3."""
    return text_to_numeric(f"{value:.15g}")


def text_to_boolean(value: str) -> bool:
    """Return the boolean that a text denotes: a unique prefix of true, false, yes, no; on, off, 1 or 0."""
    text = value.strip(ASCII_SPACE).lower()
    if text and ("true".startswith(text) or "yes".startswith(text) or text in ("on", "1")):
        return True
    if text and ("false".startswith(text) or "no".startswith(text) or text in ("of", "off", "0")):
        return False
    raise SqlDataError(f"invalid input syntax for type boolean: {value!r}")


def boolean_to_text(value: bool) -> str:
    """Return true or false."""
    return "true" if value else "false"


def boolean_to_letter(value: bool) -> str:
    """Return t or f, as PostgreSQL shows a boolean alone."""
    return "t" if value else "f"


def text_to_timestamp(value: str) -> datetime:
    """Return the time that a text in ISO-8601 denotes; without an offset, in UTC."""
    local, to_utc = _local_time(value, "timestamp with time zone")
    try:
        return local + to_utc
    except OverflowError:
        raise SqlDataError(f"timestamp out of range: {value!r}") from None


def text_to_date(value: str) -> date:
    """Return the date that a text in ISO-8601 denotes."""
    return _local_time(value, "date")[0].date()


def _local_time(text: str, kind: str) -> tuple[datetime, timedelta]:
    """Return the time of a text without its offset, and what to add to it: the offset, and a microsecond where its seventh digit rounds up.

    Raises:
        SqlDataError: it denotes none. `datetime.fromisoformat` accepts other texts than PostgreSQL, and other ones in each version of Python.
    """
    match = _ISO_TIME.fullmatch(text)
    if match is None:
        raise SqlDataError(f"invalid input syntax for type {kind}: {text!r}")
    year, _, month, day, hour, _, minute, second, fraction, sign, *offset = match.groups("")
    zone = timedelta(**dict(zip(("hours", "minutes", "seconds"), (int(part or 0) for part in offset), strict=True)))
    try:
        local = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int(fraction[:6].ljust(6, "0")),
            UTC,
        )
        return local, timedelta(microseconds=fraction[6:7] >= "5") + (zone if sign == "-" else -zone)
    except ValueError:
        raise SqlDataError(f"{kind} out of range: {text!r}") from None


def text_to_uuid(value: str) -> UUID:
    """Return the UUID that a text denotes."""
    if _UUID.fullmatch(value):
        return UUID(value)
    raise SqlDataError(f"invalid input syntax for type uuid: {value!r}")


def double_to_text(value: float) -> str:
    """Return the shortest text that denotes the double."""
    if math.isfinite(value):
        if value == int(value) and abs(value) < 1e15:
            return f"{value:.0f}"
        # Python begins with an exponent at 1e16, and PostgreSQL at 1e15.
        return f"{Decimal(repr(value)).normalize():e}" if 1e15 <= abs(value) < 1e16 else repr(value)
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def numeric_to_text(value: Decimal) -> str:
    """Return all digits of a number."""
    return f"{value:f}"


def shortest_numeric(value: Decimal) -> Decimal:
    """Return a number without zeros at the end of its fraction: equal numbers then have equal digits."""
    if not value:
        return Decimal(0)
    text = numeric_to_text(value)
    return Decimal(text.rstrip("0").rstrip(".")) if "." in text else value


def timestamp_to_text(value: datetime) -> str:
    """Return a time as `2013-01-31 10:00:00+00`."""
    return f"{local_to_text(value.astimezone(UTC))}+00"


def date_to_timestamp(value: date) -> datetime:
    """Return midnight of a date in UTC."""
    return datetime.combine(value, time(), UTC)


def milliseconds_to_timestamp(value: float) -> datetime:
    """Return the time of milliseconds since 1970."""
    return seconds_to_timestamp(value / 1000)


def seconds_to_timestamp(value: float) -> datetime:
    """Return the time of seconds since 1970."""
    try:
        return EPOCH + timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise SqlDataError(f"timestamp out of range: {value!r}") from None


def add_days(day: date, days: int) -> date:
    """Return a later date."""
    try:
        return day + timedelta(days=days)
    except OverflowError:
        raise SqlDataError("date out of range") from None


def add_interval(moment: datetime, interval: timedelta) -> datetime:
    """Return a later time."""
    try:
        return moment + interval
    except OverflowError:
        raise SqlDataError("timestamp out of range") from None


def add_intervals(first: timedelta, second: timedelta) -> timedelta:
    """Return the sum of two intervals."""
    try:
        return first + second
    except OverflowError:
        raise SqlDataError("interval out of range") from None


def multiply_interval(length: timedelta, factor: float | Decimal) -> timedelta:
    """Return an interval that is longer by a factor, in whole microseconds."""
    try:
        return length * float(factor)
    except (OverflowError, ValueError):  # a ValueError for NaN
        raise SqlDataError("interval out of range") from None


def divide_interval(length: timedelta, divisor: float | Decimal) -> timedelta:
    """Return a part of an interval, in whole microseconds."""
    try:
        return length / float(divisor)
    except ZeroDivisionError:
        raise SqlDataError("division by zero") from None
    except (OverflowError, ValueError):
        raise SqlDataError("interval out of range") from None


def local_time(moment: datetime, zone: tzinfo) -> datetime:
    """Return the local time of a moment, as if it was in UTC."""
    try:
        return moment.astimezone(zone).replace(tzinfo=UTC)
    except OverflowError:
        raise SqlDataError("timestamp out of range") from None


def moment_of_local(local: datetime, zone: tzinfo) -> datetime:
    """Return the moment of a local time. Of the two moments when clocks go back, it is the later; a time that clocks skip is after the gap."""
    first, second = (local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    return add_interval(local, -min(first, second))


def local_to_text(local: datetime) -> str:
    """Return a local time as `2013-01-31 10:00:00`, with the digits of a fraction up to the last one that is not zero."""
    whole, point, fraction = local.replace(tzinfo=None).isoformat(" ").partition(".")
    return f"{whole}{point}{fraction.rstrip('0')}"


def truncate_local(unit: str, moment: datetime, zone: tzinfo) -> datetime:
    """Return the start of the unit in the local time of a zone. Of the two hours when clocks go back, each has its own start."""
    local = local_time(moment, zone)
    start = truncate_time(unit, local)
    return add_interval(moment, start - local) if unit in _WITHIN_HOURS else moment_of_local(start, zone)


_WITHIN_HOURS = frozenset({"second", "minute", "hour"})


def bin_time(length: timedelta, moment: datetime, origin: datetime) -> datetime:
    """Return the start of the interval that contains a time; one of the intervals starts at the origin."""
    return add_interval(origin, (moment - origin) // length * length)


def truncate_time(unit: str, moment: datetime) -> datetime:
    """Return the start of the unit in UTC that contains the time."""
    return _TRUNCATIONS[unit](moment)


def seconds_of(length: timedelta) -> float:
    """Return the length of an interval."""
    return length / timedelta(seconds=1)


def time_part(part: str, moment: datetime) -> float:
    """Return a part of a time in UTC, as `extract` does."""
    return float(_PARTS[part](moment))


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


_TRUNCATIONS: dict[str, Callable[[datetime], datetime]] = {
    "second": lambda moment: moment.replace(microsecond=0),
    "minute": lambda moment: moment.replace(second=0, microsecond=0),
    "hour": lambda moment: moment.replace(minute=0, second=0, microsecond=0),
    "day": _midnight,
    "week": lambda moment: _midnight(moment) - timedelta(days=moment.weekday()),
    "month": lambda moment: _midnight(moment).replace(day=1),
    "quarter": lambda moment: _midnight(moment).replace(month=moment.month - (moment.month - 1) % 3, day=1),
    "year": lambda moment: _midnight(moment).replace(month=1, day=1),
}
_PARTS: dict[str, Callable[[datetime], float]] = {
    "epoch": lambda moment: (moment - EPOCH) / timedelta(seconds=1),
    "second": lambda moment: moment.second + moment.microsecond / 1e6,
    "minute": lambda moment: moment.minute,
    "hour": lambda moment: moment.hour,
    "day": lambda moment: moment.day,
    "dow": lambda moment: moment.isoweekday() % 7,
    "isodow": lambda moment: moment.isoweekday(),
    "doy": lambda moment: moment.timetuple().tm_yday,
    "week": lambda moment: moment.isocalendar().week,
    "month": lambda moment: moment.month,
    "quarter": lambda moment: (moment.month + 2) // 3,
    "year": lambda moment: moment.year,
}
TRUNCATIONS, PARTS = tuple(_TRUNCATIONS), tuple(_PARTS)
"""The units of date_trunc and the parts of extract."""


def substring(text: str, start: int, length: int | None = None) -> str:
    """Return characters from a position counted from one."""
    if length is None:
        return text[max(start - 1, 0) :]
    if length < 0:
        raise SqlDataError("negative substring length not allowed")
    return text[max(start - 1, 0) : max(start - 1 + length, 0)]


def left(text: str, length: int) -> str:
    """Return the first characters; with a negative length, all but the last ones."""
    return text[:length]


def right(text: str, length: int) -> str:
    """Return the last characters; with a negative length, all but the first ones."""
    return text[-length:] if length else ""


def upper(text: str) -> str:
    """Return a text in upper case, letter by letter: a letter whose upper case is several letters stays."""
    return text.upper() if text.isascii() else "".join(up if len(up := each.upper()) == 1 else each for each in text)


def lower(text: str) -> str:
    """Return a text in lower case, letter by letter."""
    return text.lower() if text.isascii() else "".join(each.lower()[0] for each in text)


def initcap(text: str) -> str:
    """Return a text with the first letter of each word in upper case, and the others in lower case."""
    return re.sub(r"[^\W_]+", lambda word: upper(word[0][:1]) + lower(word[0][1:]), text)


def replace(text: str, old: str, new: str) -> str:
    """Return a text with all occurrences of another text replaced; an empty text has none."""
    return text.replace(old, new) if old else text


def repeat(text: str, times: int) -> str:
    """Return a text several times; at most a million characters."""
    if len(text) * times > _LONGEST_TEXT:
        raise SqlDataError("requested length too large")
    return text * times


def code_point(text: str) -> int:
    """Return the number of the first character; 0 of an empty text."""
    return ord(text[0]) if text else 0


def translate(text: str, old: str, new: str) -> str:
    """Return a text with single characters replaced by the ones at the same places, or removed."""
    table = {ord(character): new[place : place + 1] for place, character in reversed(list(enumerate(old)))}
    return text.translate(table)


def md5(text: str) -> str:
    """Return the MD5 hash in hexadecimal digits."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def split_part(text: str, delimiter: str, index: int) -> str:
    """Return one part of a split text, counted from one, or from the end with a negative index."""
    if index == 0:
        raise SqlDataError("field position must not be zero")
    parts = text.split(delimiter) if delimiter else [text]
    position = index - 1 if index > 0 else len(parts) + index
    return parts[position] if 0 <= position < len(parts) else ""


def pad(text: str, length: int, fill: str, *, is_left: bool) -> str:
    """Return a text of exactly this length."""
    missing = max(length, 0) - len(text)
    if missing <= 0 or not fill:
        return text[: max(length, 0)]
    filler = (fill * (missing // len(fill) + 1))[:missing]
    return filler + text if is_left else text + filler


@lru_cache(maxsize=1024)
def _like_pattern(pattern: str, escape: str, *, ignore_case: bool) -> tuple[re.Pattern[str], bool]:
    """Return a pattern of LIKE as a regular expression, and whether an escape character without a successor was cut off its end.

    With `ignore_case`, it is for texts in lower case: letter by letter as in PostgreSQL, where Python's IGNORECASE equates further letters.
    """
    cased = lower if ignore_case else str
    parts, characters, is_cut = [], iter(pattern), False
    for character in characters:
        if escape and character == escape:
            following = next(characters, None)
            is_cut = following is None
            parts.append(re.escape(cased(following or "")))
        else:
            parts.append({"%": ".*", "_": "."}.get(character, re.escape(cased(character))))
    return re.compile("".join(parts), re.DOTALL), is_cut


def _is_like(text: str, pattern: str, escape: str, *, ignore_case: bool) -> bool:
    compiled, is_cut = _like_pattern(pattern, escape, ignore_case=ignore_case)
    text = lower(text) if ignore_case else text
    if not is_cut:
        return compiled.fullmatch(text) is not None
    # As in PostgreSQL, the pattern is invalid only for a text in which a character meets its end.
    if any(compiled.fullmatch(text, 0, end) for end in range(len(text))):
        raise SqlDataError("LIKE pattern must not end with escape character")
    return False


def like(text: str, pattern: str, escape: str = "\\") -> bool:
    """Return whether a text matches a pattern of LIKE."""
    return _is_like(text, pattern, escape, ignore_case=False)


def ilike(text: str, pattern: str, escape: str = "\\") -> bool:
    """Return whether a text matches a pattern of ILIKE."""
    return _is_like(text, pattern, escape, ignore_case=True)


@lru_cache(maxsize=1024)
def _pattern(pattern: str, flags: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
        return re.compile(ignoring_case(pattern)) if "i" in flags else compiled
    except re.error as error:
        raise SqlDataError(f"invalid regular expression: {error}") from None


def matches(text: str, pattern: str, flags: str = "") -> bool:
    """Return whether a regular expression matches somewhere in a text."""
    return _pattern(pattern, flags).search(text) is not None


def regexp_replace(text: str, pattern: str, replacement: str, flags: str = "") -> str:
    r"""Return a text with the first match replaced, or all with the flag g; `\1` and `\&` stand for groups and the match."""
    if not set(flags) <= set("gi"):
        raise SqlDataError(f"invalid regular expression option: {flags!r}. The options are g and i")
    compiled = _pattern(pattern, flags)

    def group(match: re.Match[str], number: int) -> str:
        return (match[number] or "") if number <= compiled.groups else ""

    def expanded(match: re.Match[str]) -> str:
        return re.sub(
            r"\\([1-9&\\])",
            lambda escape: (
                "\\" if escape[1] == "\\" else match[0] if escape[1] == "&" else group(match, int(escape[1]))
            ),
            replacement,
        )

    return compiled.sub(expanded, text, count=0 if "g" in flags else 1)


def regexp_substring(text: str, pattern: str) -> str | None:
    """Return the first match, whatever groups the pattern has; NULL without a match."""
    match = _pattern(pattern, "").search(text)
    return match and match[0]


def json_field(value: Any, path: tuple[str | int, ...]) -> Any:
    """Return the part of a JSON value at a path; NULL if there is none."""
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
    return value


def json_part(value: Any, path: tuple[str, ...]) -> Any:
    """Return the part of a JSON value at a path, in which a number names an element of an array; NULL if there is none."""
    for step in path:
        is_index = isinstance(value, list) and re.fullmatch(r"-?[0-9]+", step)
        value = json_field(value, (int(step) if is_index else step,))
    return value


def text_to_json(value: str) -> Any:
    """Return the JSON value that a text denotes; NULL for JSON's null."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        raise SqlDataError(f"invalid input syntax for type json: {value!r}") from None


def json_type(value: Any) -> str:
    """Return the type of a JSON value."""
    return {bool: "boolean", str: "string", list: "array", dict: "object"}.get(type(value), "number")


def json_length(value: Any) -> int:
    """Return the number of elements of a JSON array."""
    if isinstance(value, list):
        return len(value)
    raise SqlDataError(f"cannot get array length of a JSON {json_type(value)}")


def json_number(value: Any) -> Decimal:
    """Return a JSON number, with the digits of its shortest text."""
    if json_type(value) == "number":
        return Decimal(repr(value))
    raise SqlDataError(f"cannot cast jsonb {json_type(value)} to a number")


def json_boolean(value: Any) -> bool:
    """Return a JSON boolean."""
    if isinstance(value, bool):
        return value
    raise SqlDataError(f"cannot cast jsonb {json_type(value)} to type boolean")


def bounded_numeric(value: Decimal, scale: int, limit: Decimal) -> Decimal:
    """Return a number with a fixed number of digits after the point, if it is below a limit."""
    rounded = round_numeric(value, scale)
    if abs(rounded) >= limit:
        raise SqlDataError("numeric field overflow")
    return rounded


def json_text(value: Any) -> str:
    """Return a JSON value as text; strings without quotes."""
    return value if isinstance(value, str) else json_document(value)


def json_document(value: Any) -> str:
    """Return a JSON value as text; strings with quotes."""
    return msgspec.json.encode(value).decode()


def epoch_ms(moment: datetime) -> int:
    """Return the milliseconds since 1970."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def cube_root(value: float) -> float:
    """Return the cube root. The root of a cube is whole: 4 for 64."""
    size = abs(value)
    if size == 0 or not math.isfinite(size):
        return value
    root = size ** (1 / 3)  # `math.cbrt` of 27 is more than 3 with some C libraries
    return math.copysign(root - (root - size / (root * root)) / 3, value)  # a step of Newton's method


def greatest(candidates: tuple[Any, ...]) -> Any:
    """Return the greatest value that is not NULL."""
    return max((value for value in candidates if value is not None), default=None)


def least(candidates: tuple[Any, ...]) -> Any:
    """Return the least value that is not NULL."""
    return min((value for value in candidates if value is not None), default=None)


def join_texts(separator: str, texts: tuple[str | None, ...]) -> str:
    """Return the texts that are not NULL, with a separator between them."""
    return separator.join(text for text in texts if text is not None)


def epoch_us(moment: datetime) -> int:
    """Return the microseconds since 1970."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def timestamp_of_us(microseconds: int) -> datetime:
    """Return the time of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=microseconds)


def timestamp_of_ms(milliseconds: int) -> datetime:
    """Return the time of milliseconds since 1970."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def date_of_ordinal(ordinal: int) -> date:
    """Return the date of a number of days since 0001-01-01, which is day 1."""
    return date.fromordinal(ordinal)


def rows_text(texts: Sequence[str]) -> str:
    """Return the JSON of an array of the rows with these texts."""
    return f"[{','.join(texts)}]"


def ranked_text(pairs: Sequence[tuple[str, Any]]) -> str:
    """Return ranked items with their sums as the JSON of rows: the values of the item, then the sum."""
    return json_text([[*msgspec.json.decode(item), weight] for item, weight in pairs])


def ranked_rows(text: str | None) -> Sequence[Any]:
    """Return the rows of `ranked_text`."""
    rows: Sequence[Any] = () if text is None else msgspec.json.decode(text)
    return rows
