"""Metrics of a worker."""

from __future__ import annotations

from dataclasses import dataclass

from ...processors.lookups import LookupMetrics
from ..humanize import counted
from .trace_context import SpanMetrics


@dataclass
class Metrics:
    """The metrics of a worker since its start.

    Args:
        events_in: events read.
        events_out: records written.
        late: events that arrived after their shard's watermark.
        dropped: late events that belong to no open window, and were dropped or written to the late output, as the processor declares.
        dead_letters: events that could not be processed.
        checkpoints: checkpoints saved.
        unmatched: events without a row in the lookup, which the processor declares to drop.
        bytes_in: the size of the values read.
        bytes_out: the size of the values written.
        saved_ms: when the last checkpoint was completed (milliseconds since 1970, UTC); None before the first.
        saving_s: how long it took.
        lookups: the metrics of lookups, for a lookup join.
        spans: the spans of the events; None without spans.
    """

    events_in: int = 0
    events_out: int = 0
    late: int = 0
    dropped: int = 0
    dead_letters: int = 0
    checkpoints: int = 0
    unmatched: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    saved_ms: int | None = None
    saving_s: float = 0.0
    lookups: LookupMetrics | None = None
    spans: SpanMetrics | None = None

    def __str__(self) -> str:
        text = (
            f"{counted(self.events_in, 'event')} in, {self.events_out:,} out, {self.late:,} late, {self.dropped:,} too late, "
            f"{counted(self.dead_letters, 'dead letter')}, {counted(self.checkpoints, 'checkpoint')}"
        )
        if self.lookups is not None:
            text += f"; {self.unmatched:,} dropped without a row, {self.lookups}"
        return (
            text
            if self.spans is None
            else f"{text}; {counted(self.spans.ended, 'span')}, {self.spans.lost:,} not exported"
        )
