"""Options and metrics of an archive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..warehouse import DayOf
from .completeness import LatenessAllowance


@dataclass
class ArchiveMetrics:
    """The archiver's counters since its start.

    Args:
        events: archived events.
        files: written files, each rewrite included.
        undecodable: messages without a row, because they cannot be decoded or contain an integer beyond 64 bits.
        expired: offsets that had expired on the bus.
    """

    events: int = 0
    files: int = 0
    undecodable: int = 0
    expired: int = 0


@dataclass(frozen=True)
class ArchiveOptions:
    """Settings of a category's archive.

    Args:
        segment_events: the number of offsets in a segment.
        by: the time that assigns events to days.
        patience: how long a day stays open for late events.
        accept_gaps: continue when the bus has dropped events that were not archived.
        now_ms: the time of day.
        monotonic_s: seconds since a refusal, and for bucket idleness.
    """

    segment_events: int
    by: DayOf
    patience: LatenessAllowance
    accept_gaps: bool
    now_ms: Callable[[], int]
    monotonic_s: Callable[[], float]
