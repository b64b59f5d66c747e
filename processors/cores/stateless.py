"""The step of a stateless processor."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..categories import AnyCategory
from ..changes import StateReader
from ..kinds import Stateless
from .base import Drained, Fed, Rejected, late_among, taken, time_of


class StatelessCore:
    """Maps events to outputs."""

    def __init__(self, processor: Stateless, saved: StateReader) -> None:
        self._process = processor.process
        self.time = time_of(processor, saved)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> Fed:
        """Process the events of one bucket, in order."""
        process = self._process
        outputs: list[Any] = []
        rejected: list[Rejected] = []
        extend = outputs.extend
        for at, event in enumerate(events):
            before = len(outputs)
            try:
                extend(process(event))
            except Exception as error:  # noqa: BLE001 - whatever a user's code raises is the event's fate, not ours
                del outputs[before:]
                rejected.append(Rejected(at, error))
                if stop_at_error:
                    break
        before_ms = self.time.low_ms
        times = category.event_times_of(events[: taken(events, rejected, stop_at_error=stop_at_error)])
        return Fed(outputs, rejected, late_among(times, self.time.observe(category.name, times), before_ms))

    def advance(self, promised: Mapping[str, int], idle: Collection[str]) -> Fed:
        """Take what is known from elsewhere of the inputs."""
        self.time.advance(promised, idle)
        return Fed([], [])

    def tick(self, now_ms: int) -> Fed:  # noqa: ARG002 - the seam
        """Do nothing: it has no timers."""
        return Fed([], [])

    def drain(self) -> Drained:
        """Hand over nothing: there is no state."""
        return Drained([], {})
