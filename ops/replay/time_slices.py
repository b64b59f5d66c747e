"""A stream cut into beats, by when its events had arrived: between two of them time passes.

However the past is read, in large batches or small ones, the beats are the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .source_events import SourceEvents

BEAT_MS = 100
"""How long a beat is: as long as a worker waits for events, after which it looks what is due."""
AT_MOST = 10_000
"""How many messages a beat has at most: as many as a worker takes at once."""


class TimeSlice(NamedTuple):
    """What arrived in a tenth of a second, or a part of it.

    Args:
        now_ms: when the first message had arrived (milliseconds since 1970, UTC).
        runs: the messages, in order.
    """

    now_ms: int
    runs: list[SourceEvents]


def time_slices(stream: Iterable[SourceEvents]) -> Iterator[TimeSlice]:
    """Cut a stream into beats."""
    runs: list[SourceEvents] = []
    count = end_ms = 0
    for seen in stream:
        begin, arrived_ms = 0, seen.arrived_ms
        while begin < len(arrived_ms):
            if runs and (arrived_ms[begin] >= end_ms or count == AT_MOST):
                yield TimeSlice(runs[0].arrived_ms[0], runs)
                runs, count = [], 0
            if not runs:
                end_ms = (arrived_ms[begin] // BEAT_MS + 1) * BEAT_MS
            end = min(bisect_left(arrived_ms, end_ms, begin), begin + AT_MOST - count)
            _add(runs, seen.part(begin, end))
            count += end - begin
            begin = end
    if runs:
        yield TimeSlice(runs[0].arrived_ms[0], runs)


def _add(runs: list[SourceEvents], run: SourceEvents) -> None:
    """Add a run, to the one before it where that is of the same input."""
    last = runs[-1] if runs else None
    if last is None or last.category is not run.category or last.refusal or run.refusal:
        runs.append(run)
    else:
        runs[-1] = last.joined(run)
