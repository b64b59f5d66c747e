"""Durations in words, and messages as text for a screen."""

from __future__ import annotations

import re

_UNITS = (("days", 86_400), ("h", 3_600), ("min", 60))


def human_duration(seconds: float) -> str:
    """Return a duration in words, such as `5 min`."""
    for name, length_s in _UNITS:
        if seconds >= 2 * length_s:
            return f"{seconds // length_s:,.0f} {name}"
    return f"{seconds:.0f} s"


UNKNOWN = "unknown"
"""The text of a figure that cannot be read."""


def human_duration_or_unknown(seconds: float | None) -> str:
    """Return a duration in words, or `unknown`."""
    return UNKNOWN if seconds is None else human_duration(seconds)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return text with control characters escaped, except tabs and line ends: a message could otherwise change the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
