"""How long something is, as people say it."""

from __future__ import annotations

_UNITS = (("days", 86_400), ("h", 3_600), ("min", 60))


def human_duration(seconds: float) -> str:
    """Return a span of time as people say it."""
    for name, length_s in _UNITS:
        if seconds >= 2 * length_s:
            return f"{seconds // length_s:,.0f} {name}"
    return f"{seconds:.0f} s"


UNKNOWN = "unknown"
"""What stands in the place of a figure that cannot be read now."""


def human_duration_or_unknown(seconds: float | None) -> str:
    """Return a span of time, or that it is not known."""
    return UNKNOWN if seconds is None else human_duration(seconds)
