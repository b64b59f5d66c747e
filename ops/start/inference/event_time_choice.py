"""The event time of a topic's messages: which field contains it, and in which unit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

from .shape import time_in

_UNITS = {"SECONDS": 1_000.0, "MILLISECONDS": 1.0, "MICROSECONDS": 1e-3, "NANOSECONDS": 1e-6}
"""Milliseconds in each unit."""
_YEAR_MS = 366 * 86_400_000
_FARTHEST_MS = 20 * _YEAR_MS
"""Numbers farther from the arrivals than this are no times."""
_NAMES = ("time", "timestamp", "ts", "at", "date", "when", "created", "updated", "occurred", "event", "epoch")
_UNIT_IN_NAME = re.compile(r"_?(ms|us|ns|millis|micros|nanos|seconds|utc)$")
_NUMBER = re.compile(r"\d{9,20}(\.\d+)?")
_SHARE = 0.9
"""The share of the messages that have a time in the place of the event time."""
DEPTH = 5


@dataclass(frozen=True)
class TimeCandidate:
    """A place in the messages that may contain the event time.

    Args:
        path: its names, from the outside to the inside.
        unit: the unit of a number; None for a text with date and time.
        distance_ms: the median distance to the arrival of the message, in milliseconds.
        is_named: whether the name suggests a time.
        count: the number of messages that have a time there.
        is_text: whether it is a text that is converted: a number, or a date and a time without an offset.
    """

    path: tuple[str, ...]
    unit: str | None
    distance_ms: float
    is_named: bool
    count: int
    is_text: bool = False


def time_candidates(contents: Sequence[Mapping[str, Any]], arrivals_ms: Sequence[int]) -> list[TimeCandidate]:
    """Return the places that contain a time in almost every message, the most probable first.

    Args:
        contents: the content of each message.
        arrivals_ms: the timestamp of each message (milliseconds since 1970, UTC).
    """
    if not contents:
        return []
    found: list[TimeCandidate] = []
    for path in dict.fromkeys(path for content in contents for path in _scalars(content, ())):
        values = [_value_at(content, path) for content in contents]
        pairs = [(value, arrived) for value, arrived in zip(values, arrivals_ms, strict=True) if value is not None]
        if len(pairs) >= _SHARE * len(contents):
            found += _candidates(path, *zip(*pairs, strict=True))
    found = [one for one in found if not one.is_text or one.count == len(contents)]  # a conversion needs a text
    return sorted(found, key=lambda one: (not one.is_named, one.is_text, one.distance_ms, len(one.path)))


def _candidates(path: tuple[str, ...], values: Sequence[Any], arrivals_ms: Sequence[int]) -> Iterator[TimeCandidate]:
    """Yield the time that the values of a place are, if they are one."""
    words = _UNIT_IN_NAME.sub("", path[-1].lower())
    is_named = any(words == name or words.endswith(name) or words.startswith(f"{name}_") for name in _NAMES)
    times = [
        time_in(value) if isinstance(value, str) else value if isinstance(value, datetime) else None for value in values
    ]
    known = [time for time in times if time is not None]
    if len(known) == len(values):
        has_offsets = all(time.tzinfo is not None for time in known)
        distances = [abs(_ms(time) - arrived) for time, arrived in zip(known, arrivals_ms, strict=True)]
        if has_offsets or all(
            isinstance(value, str) and time.tzinfo is None for value, time in zip(values, known, strict=True)
        ):
            yield TimeCandidate(path, None, median(distances), is_named, len(values), is_text=not has_offsets)
        return
    is_text = is_named and all(isinstance(value, str) for value in values)
    numbers: list[Any] = [_number(value) if is_text else value for value in values]
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in numbers):
        return
    for unit, scale in _UNITS.items():
        distance_ms = median(abs(value * scale - arrived) for value, arrived in zip(numbers, arrivals_ms, strict=True))
        if distance_ms < (_FARTHEST_MS if is_named else _YEAR_MS):
            yield TimeCandidate(path, unit, distance_ms, is_named, len(values), is_text)
            return


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _ms(time: datetime) -> float:
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000


def _scalars(content: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            if len(path) < DEPTH - 1:
                yield from _scalars(value, (*path, name))
        elif not isinstance(value, list):
            yield (*path, name)


def _value_at(content: Any, path: Sequence[str]) -> Any:
    for name in path:
        content = content.get(name) if isinstance(content, Mapping) else None
    return content
