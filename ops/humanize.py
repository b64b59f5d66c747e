"""Durations and counts in words."""

from __future__ import annotations

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


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 bucket`, `2 buckets`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
