"""What was seen of processors in the last hour, in few enough figures to hand them all to a browser."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..monitoring.status import ClusterStatus, ProcessorStatus

KEPT_MS = 3_600_000
"""How much time is kept."""


class Point(NamedTuple):
    """One processor at one moment.

    Args:
        rate_in: events read in a second.
        rate_out: records written in a second.
        behind: events left; None where that cannot be read.
        behind_s: how long the first of them has waited; None likewise.
        watermark_lag_s: how far its event time is behind the time of day; None where it has none, or nobody waits for it.
    """

    rate_in: float
    rate_out: float
    behind: int | None
    behind_s: float | None
    watermark_lag_s: float | None


class Moment(NamedTuple):
    """All processors at one moment.

    Args:
        at_ms: when (milliseconds since 1970, UTC).
        points: by processor.
    """

    at_ms: int
    points: Mapping[str, Point]


def moment_of(picture: ClusterStatus) -> Moment:
    """Return what is kept of a picture."""
    return Moment(picture.at_ms, {it.node.name: _point(it) for it in picture.standings})


def _point(it: ProcessorStatus) -> Point:
    lag_s = it.watermark_lag_s
    return Point(
        round(it.total("rate_in"), 1),
        round(it.total("rate_out"), 1),
        it.behind,
        None if it.behind_s is None else round(it.behind_s, 1),
        None if lag_s is None else round(lag_s, 1),
    )


class History:
    """The last hour. One thread at a time."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque()

    def add(self, moment: Moment) -> None:
        """Keep a moment, and drop those that are too old by then."""
        self._moments.append(moment)
        while self._moments[0].at_ms < moment.at_ms - KEPT_MS:
            self._moments.popleft()

    def columns(self) -> dict[str, Any]:
        """Return it as JSON has it: the times, and by processor a list for each figure, None where it was not there."""
        names = dict.fromkeys(name for moment in self._moments for name in moment.points)
        return {
            "at_ms": [moment.at_ms for moment in self._moments],
            "processors": {name: self._columns_of(name) for name in names},
        }

    def _columns_of(self, name: str) -> dict[str, list[Any]]:
        absent = (None,) * len(Point._fields)
        rows = [moment.points.get(name, absent) for moment in self._moments]
        return {field: list(column) for field, column in zip(Point._fields, zip(*rows, strict=True), strict=True)}
