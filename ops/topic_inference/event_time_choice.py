"""The event time of a topic's messages: which field contains it, and in which unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from .shape import time_in

_UNITS = {"SECONDS": 1_000.0, "MILLISECONDS": 1.0, "MICROSECONDS": 1e-3, "NANOSECONDS": 1e-6}
"""Milliseconds in each unit."""
_YEAR_MS = 366 * 86_400_000
_FARTHEST_MS = 20 * _YEAR_MS
"""Numbers farther from the arrivals than this are no times."""
_NAMES = ("time", "timestamp", "ts", "at", "date", "when", "created", "occurred", "event")
DEPTH = 3


@dataclass(frozen=True)
class TimeCandidate:
    """A place in the messages that may contain the event time.

    Args:
        path: its names, from the outside to the inside.
        unit: the unit of a number; None for a text with date and time.
        distance_ms: the median distance to the arrival of the message, in milliseconds.
        is_named: whether the name suggests a time.
    """

    path: tuple[str, ...]
    unit: str | None
    distance_ms: float
    is_named: bool


def time_candidates(contents: Sequence[Mapping[str, Any]], arrivals_ms: Sequence[int]) -> list[TimeCandidate]:
    """Return the places that contain a time in every message, the most probable first.

    Args:
        contents: the content of each message.
        arrivals_ms: the timestamp of each message (milliseconds since 1970, UTC).
    """
    if not contents:
        return []
    found: list[TimeCandidate] = []
    for path, _ in _scalars(contents[0], ()):
        values = [_value_at(content, path) for content in contents]
        found += _candidates(path, values, arrivals_ms)
    return sorted(found, key=lambda one: (not one.is_named, one.distance_ms, len(one.path)))


def _candidates(path: tuple[str, ...], values: Sequence[Any], arrivals_ms: Sequence[int]) -> Iterator[TimeCandidate]:
    words = path[-1].lower()
    is_named = any(words == name or words.endswith(name) or words.startswith(f"{name}_") for name in _NAMES)
    times = [
        time_in(value) if isinstance(value, str) else value if isinstance(value, datetime) else None for value in values
    ]
    if all(time is not None and time.tzinfo is not None for time in times):
        distances = [
            abs(_ms(time) - arrived) for time, arrived in zip(times, arrivals_ms, strict=True) if time is not None
        ]
        yield TimeCandidate(path, None, median(distances), is_named)
        return
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return
    for unit, scale in _UNITS.items():
        distance_ms = median(abs(value * scale - arrived) for value, arrived in zip(values, arrivals_ms, strict=True))
        if distance_ms < (_FARTHEST_MS if is_named else _YEAR_MS):
            yield TimeCandidate(path, unit, distance_ms, is_named)
            return


def _ms(time: datetime) -> float:
    return time.timestamp() * 1000


def _scalars(content: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            if len(path) < DEPTH - 1:
                yield from _scalars(value, (*path, name))
        elif not isinstance(value, list):
            yield (*path, name), value


def _value_at(content: Any, path: Sequence[str]) -> Any:
    for name in path:
        content = content.get(name) if isinstance(content, Mapping) else None
    return content
