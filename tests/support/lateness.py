"""The expected late events, computed from the events in write order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.processors.declare import bucket_of

from .by_event import expect_flow
from .by_time import complete_hours
from .kinds import BEHIND_MS, HOUR_MS, LATENESS_MS, Event
from .subjects import BUCKETS, EXACT, LEAST, MOST, Subject
from .verdicts import expect_complete, expect_each_event

Outputs = Sequence[dict[str, Any]]


def too_late(subject: Subject, events: Sequence[Event], buckets: int = BUCKETS) -> list[Event]:
    """Return the events that arrived after their hour and its allowed lateness."""
    allowed_ms = LATENESS_MS if subject.kind == "differences" else 0
    newest: dict[int, int] = defaultdict(lambda: -(2**62))
    found: list[Event] = []
    for event in events:
        bucket = bucket_of(event.key.encode(), buckets)
        newest[bucket] = max(newest[bucket], event.at)
        if event.at // HOUR_MS * HOUR_MS + HOUR_MS + allowed_ms <= newest[bucket] - BEHIND_MS:
            found.append(event)
    return found


def expect_late(
    subject: Subject,
    events: Sequence[Event],
    late: Sequence[Event],
    outputs: Outputs,
    late_outputs: Outputs,
    low_ms: Mapping[str, int],
) -> None:
    """Compare windows with the events in time, and the late category with the late events."""
    numbers = {event.number for event in late}
    if subject.state is EXACT:
        expect_each_event(subject.output, late_outputs, late)
        complete = complete_hours([event for event in events if event.number not in numbers], low_ms)
        if subject.kind == "late":
            expect_complete(outputs, complete, subject.state, subject.output)
        else:
            expect_flow(subject, outputs, complete)
        return
    # A lost event holds event time back; a repeated event may be late the second time.
    assert {output["number"] for output in late_outputs} <= {event.number for event in events}
    if subject.output is not LEAST:
        expect_each_event(MOST, late_outputs, events)
        assert len(late_outputs) + sum(output["count"] for output in outputs) <= len(events)
    else:
        assert {output["number"] for output in late_outputs} >= numbers
