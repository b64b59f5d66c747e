"""The step of an aggregator over sliding windows: for each time at which something happened to a key, what happened up to then.

    events of a key and time --combined, held in state--> low watermark passes the time
    --> joined with what the key's window still holds of earlier times: written --> kept, until no window reaches back to it

A window is written once, when nothing can come into it any more. A late event is in none, not even in those still to come: each
event is in all windows that reach back to it, or in none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..declare.aggregator import Aggregator
from ..declare.categories import AnyCategory, Category
from ..keyed_state import key_layout
from ..keyed_state.changes import StateReader
from ..time.timer_schedule import ScheduledEntry, TimerSchedule
from ..time.windows import Sliding, Window, WindowAssignment
from .aggregator import PartialFolder, encoded_partial, results_of
from .base import CheckpointResult, StepResult, late_among, processed_count, time_of
from .sliding_history import SlidingHistory

DUE_AT_ONCE = 1_000
"""For how many windows what is kept is read in one go."""
_ENTRY = b"\x01"


class SlidingOperator:
    """Holds what happened at each time, and writes the windows up to there in order of time.

    Args:
        processor: which; its window is a `Sliding`.
        saved: the shard's state.
    """

    def __init__(self, processor: Aggregator, saved: StateReader) -> None:
        self._processor = processor
        self._size_ms = processor.window.size_ms if isinstance(processor.window, Sliding) else 0
        self._folding = PartialFolder(processor)
        self._buffer = TimerSchedule(key_layout.BUFFERED_EVENTS, saved)
        self._histories = SlidingHistory(processor.monoid, self._size_ms, saved)
        self._expiries = TimerSchedule(
            key_layout.EVENT_TIMERS, saved
        )  # one for each key: when to forget something of it
        self.time = time_of(processor, saved)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Hold the events of one bucket, and write the windows that are complete then."""
        keys, times = category.keys_of(events), category.event_times_of(events)
        mark, before_ms = self.time.mark(category.name), self.time.low_ms
        lows = self.time.observe(category.name, times)
        assignment, too_late = self._in_time(times, lows, before_ms)
        rejected = self._folding.fold(events, keys, assignment, stop_at_error=stop_at_error)
        end = processed_count(events, rejected, stop_at_error=stop_at_error)
        if end < len(events):
            self.time.go_back(category.name, mark, times[:end])
            too_late = [row for row in too_late if row < end]
        self._store(self._folding.take())
        outputs = [events[row] for row in too_late] if isinstance(self._processor.late, Category) else []
        outputs += self._complete(self.time.low_ms)
        return StepResult(outputs, rejected, len(too_late), len(too_late))

    def _in_time(self, times: Sequence[int], lows: Sequence[int], before_ms: int) -> tuple[WindowAssignment, list[int]]:
        """Return the windows whose last events these are, and the events that come too late."""
        assignment = self._processor.window.assign(times)
        if not late_among(times, lows, before_ms):
            return assignment, []
        is_late = [time < low for time, low in zip(times, (before_ms, *lows), strict=False)]
        rows = [row for row, late in enumerate(is_late) if not late]
        return WindowAssignment(rows, [assignment.starts[row] for row in rows]), [
            row for row, late in enumerate(is_late) if late
        ]

    def _store(self, partials: Mapping[tuple[str, int], Any]) -> None:
        """Keep what happened to keys at the ends of these windows, with what is held of it."""
        monoid = self._processor.monoid
        places = [(start + self._size_ms, key.encode()) for key, start in partials]
        for place, ((key, start), partial), held in zip(
            places, partials.items(), self._buffer.values(places), strict=True
        ):
            value = partial if held is None else monoid.combine(monoid.decode(held), partial)
            self._buffer.add(*place, encoded_partial(self._processor, key, Window(start, start + self._size_ms), value))

    def _complete(self, low_ms: int) -> list[Any]:
        """Write the windows that a low watermark has passed, in order of time; forget what none reaches back to any more."""
        outputs: list[Any] = []
        while ended := self._due(self._buffer, low_ms):
            for entry in ended:
                outputs += self._written(entry.what.decode(), entry.at, entry.value)
        while turns := self._due(self._expiries, low_ms):
            for entry in turns:
                key = entry.what.decode()
                next_ms = self._histories.forget(key, low_ms - self._size_ms)
                if next_ms is not None:
                    self._look_after(key, next_ms)
        return outputs

    def _due(self, agenda: TimerSchedule, low_ms: int) -> list[ScheduledEntry]:
        """Take the next entries up to a low watermark, with what is kept of their keys at hand."""
        due: list[ScheduledEntry] = []
        while len(due) < DUE_AT_ONCE and (entry := agenda.pop(low_ms)) is not None:
            due.append(entry)
        self._histories.load(entry.what.decode() for entry in due)
        return due

    def _written(self, key: str, end: int, encoded: bytes) -> list[Any]:
        """Write the window of a key that ends with this value."""
        if not self._histories.holds(key):
            self._look_after(key, end - 1)
        value = self._histories.add(key, end - 1, encoded)
        return results_of(self._processor, key, Window(end - self._size_ms, end), value)

    def _look_after(self, key: str, last_ms: int) -> None:
        """See that what is kept of a key up to a time is forgotten when no window reaches back to it."""
        self._expiries.add(last_ms + self._size_ms, key.encode(), _ENTRY)

    def advance(self, upstream: Mapping[str, int], idle: Collection[str]) -> StepResult:
        """Write the windows that what is known from elsewhere of the inputs completes."""
        return StepResult(self._complete(self.time.advance(upstream, idle)), [])

    def tick(self, now_ms: int) -> StepResult:  # noqa: ARG002 - the seam
        """Do nothing: windows end in event time."""
        return StepResult([], [])

    def drain(self) -> CheckpointResult:
        """Hand over what changed since the last drain."""
        agendas = self._buffer.drain() | self._expiries.drain()
        return CheckpointResult([], self._histories.drain() | agendas | self.time.drain())
