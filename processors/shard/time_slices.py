"""Time slices of a recorded stream, by the arrival of its events. They do not depend on how the stream is read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .source_events import SourceEvents

SLICE_MS = 100
"""The length of a slice: as long as a worker waits for events before it checks what is due."""
AT_MOST = 10_000
"""The largest number of messages in a slice: as many as a worker takes at once."""


class TimeSlice(NamedTuple):
    """The messages of a tenth of a second, or of a part of it.

    Args:
        now_ms: when the first message had arrived (milliseconds since 1970, UTC).
        runs: the messages, in order.
    """

    now_ms: int
    runs: list[SourceEvents]


def time_slices(stream: Iterable[SourceEvents]) -> Iterator[TimeSlice]:
    """Cut a stream into slices."""
    runs: list[SourceEvents] = []
    count = end_ms = 0
    for events in stream:
        begin, arrived_ms = 0, events.arrived_ms
        while begin < len(arrived_ms):
            if runs and (arrived_ms[begin] >= end_ms or count == AT_MOST):
                yield TimeSlice(runs[0].arrived_ms[0], runs)
                runs, count = [], 0
            if not runs:
                end_ms = (arrived_ms[begin] // SLICE_MS + 1) * SLICE_MS
            end = min(bisect_left(arrived_ms, end_ms, begin), begin + AT_MOST - count)
            _add(runs, events.part(begin, end))
            count += end - begin
            begin = end
    if runs:
        yield TimeSlice(runs[0].arrived_ms[0], runs)


def _add(runs: list[SourceEvents], run: SourceEvents) -> None:
    """Append a run; join it with the last run if both have the same input."""
    last = runs[-1] if runs else None
    if last is None or last.category is not run.category or last.rejection or run.rejection:
        runs.append(run)
    else:
        runs[-1] = last.joined(run)
