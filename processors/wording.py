"""Counts and values in words, for messages."""

from __future__ import annotations

import errno
import os
import re
from types import FunctionType, MemberDescriptorType
from typing import get_origin

_NO_ACCESS = "Allow this user to read and write there."
_NO_FOLDER = "A file is where a folder should be: move it away, or choose another path."
_REMEDIES = {
    errno.ENOSPC: "Free space on this disk.",
    errno.EDQUOT: "Free space, or raise this user's quota.",
    errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS,
    errno.EROFS: "Mount its file system for writing.",
    errno.EIO: "The disk or its mount fails: the system's log (`dmesg`) says more.",
    errno.ENOTDIR: _NO_FOLDER,
    errno.EEXIST: _NO_FOLDER,
    errno.EISDIR: "A folder is where a file should be: move it away, or choose another path.",
    errno.ENAMETOOLONG: "Choose a shorter path.",
}
"""What to do about failures of a file system."""


def file_remedy(error: Exception) -> str:
    """Return what to do about a failure of a file system, as a sentence; errors of libraries contain the system's words only."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        text = str(error)
        number = next((number for number in _REMEDIES if os.strerror(number) in text), None)
    return _REMEDIES.get(number or 0, "Check that the path exists, and its disk and mount.")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 bucket`, `2 buckets`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article: `a timedelta`, `an int`."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def with_capital_article(noun: str) -> str:
    """Return the same for the beginning of a sentence.

    Examples:
        >>> with_capital_article("Reading"), with_capital_article("Order")
        ('A Reading', 'An Order')
    """
    return f"A{with_article(noun)[1:]}"


def as_code(value: object) -> str:
    """Return a value as a declaration contains it: a class, a function or a field by its name, without its module or address.

    Examples:
        >>> as_code(FunctionType), as_code(as_code), as_code("json")
        ('function', 'as_code', "'json'")
    """
    if isinstance(value, MemberDescriptorType):
        return f"{value.__objclass__.__name__}.{value.__name__}"
    if isinstance(value, FunctionType):
        return "lambda …" if value.__name__ == "<lambda>" else value.__name__
    if isinstance(value, type) and get_origin(value) is None:
        return value.__name__
    return f"{type(value).__name__}(…)" if type(value).__repr__ is object.__repr__ else repr(value)


def is_encodable(text: str) -> bool:
    """Return whether UTF-8 can represent a text: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_UNITS = (("days", 86_400), ("h", 3_600), ("min", 60))


def human_duration(seconds: float) -> str:
    """Return a duration in words, such as `5 min`."""
    for name, length_s in _UNITS:
        if seconds >= 2 * length_s:
            return f"{seconds // length_s:,.0f} {name}"
    return f"{seconds:.0f} s"


def human_size(size_bytes: float) -> str:
    """Return a size in words, such as `5.0 MB`."""
    for name, unit in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.{int(size_bytes < 100 * unit)}f} {name}"
    return f"{size_bytes:.0f} B"


UNKNOWN = "unknown"
"""The text of a figure that cannot be read."""


def human_duration_or_unknown(seconds: float | None) -> str:
    """Return a duration in words, or `unknown`."""
    return UNKNOWN if seconds is None else human_duration(seconds)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return text with control characters escaped, except tabs and line ends: a message could otherwise change the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
