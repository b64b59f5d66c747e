"""The operator of an aggregator over sliding windows: one window ends at each event time of a key.

    events of one key and time --combined, buffered in the state--> low watermark passes the time
    --> combined with the earlier values of the window: written --> kept until no later window includes the time

A window is written once, when it is complete. A late event is in no window at all, not even in later windows: each event is in all
windows that include its time, or in none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..declare import Aggregator, AnyCategory, Category
from ..keyed_state import StateReader, key_layout
from ..time import ScheduledEntry, Sliding, TimerSchedule, Window, WindowAssignment
from .aggregator import PartialFolder, encoded_partial, partial_decoder, results_of
from .base import CheckpointResult, StepResult, late_among, processed_count, time_of
from .sliding_history import SlidingHistory

DUE_AT_ONCE = 1_000
"""The number of due entries whose histories are loaded in one read."""
_ENTRY = b"\x01"


class SlidingOperator:
    """Buffers one partial per key and time, and writes complete windows in order of time.

    Args:
        processor: an aggregator with a `Sliding` window.
        saved: the shard's state.
    """

    def __init__(self, processor: Aggregator, saved: StateReader) -> None:
        self._processor = processor
        self._size_ms = processor.window.size_ms if isinstance(processor.window, Sliding) else 0
        self._folding = PartialFolder(processor)
        self._buffer = TimerSchedule(key_layout.BUFFERED_EVENTS, saved)
        self._decode = partial_decoder(processor)
        self._histories = SlidingHistory(processor.monoid, self._decode, self._size_ms, saved)
        self._expiries = TimerSchedule(
            key_layout.EVENT_TIMERS, saved
        )  # one for each key: when its oldest values expire
        self.time = time_of(processor, saved)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Buffer the events of one bucket, and write the windows that are complete."""
        keys, times = category.keys_of(events), category.event_times_of(events)
        mark, before_ms = self.time.mark(category.name), self.time.low_ms
        lows = self.time.observe(category.name, times).tolist()
        assignment, too_late = self._split_late(times, lows, before_ms)
        rejected = self._folding.fold(events, keys, assignment, stop_at_error=stop_at_error)
        end = processed_count(events, rejected, stop_at_error=stop_at_error)
        if end < len(events):
            self.time.go_back(category.name, mark, times[:end])
            too_late = [row for row in too_late if row < end]
        self._store(self._folding.take())
        outputs = [events[row] for row in too_late] if isinstance(self._processor.late, Category) else []
        outputs += self._complete(self.time.low_ms)
        return StepResult(outputs, rejected, len(too_late), len(too_late))

    def _split_late(
        self, times: Sequence[int], lows: Sequence[int], before_ms: int
    ) -> tuple[WindowAssignment, list[int]]:
        """Return the windows that end with each event, and the indices of late events."""
        assignment = self._processor.window.assign(times)
        if not late_among(times, lows, before_ms):
            return assignment, []
        is_late = [time < low for time, low in zip(times, (before_ms, *lows), strict=False)]
        rows = [row for row, late in enumerate(is_late) if not late]
        return WindowAssignment(rows, [assignment.starts[row] for row in rows]), [
            row for row, late in enumerate(is_late) if late
        ]

    def _store(self, partials: Mapping[tuple[str, int], Any]) -> None:
        """Combine partials with the buffered partials of the same key and time."""
        monoid = self._processor.monoid
        entries = [(start + self._size_ms, key.encode()) for key, start in partials]
        for entry, ((key, start), partial), saved in zip(
            entries, partials.items(), self._buffer.values(entries), strict=True
        ):
            value = partial if saved is None else monoid.combine(self._decode(saved), partial)
            self._buffer.add(*entry, encoded_partial(self._processor, key, Window(start, start + self._size_ms), value))

    def _complete(self, low_ms: int) -> list[Any]:
        """Return the results of the windows up to a low watermark, in order of time; remove expired values."""
        outputs: list[Any] = []
        while ended := self._pop_due(self._buffer, low_ms):
            for entry in ended:
                outputs += self._results(entry.identifier.decode(), entry.at, entry.value)
        while expired := self._pop_due(self._expiries, low_ms):
            for entry in expired:
                key = entry.identifier.decode()
                next_ms = self._histories.expire(key, low_ms - self._size_ms)
                if next_ms is not None:
                    self._schedule_expiry(key, next_ms)
        return outputs

    def _pop_due(self, schedule: TimerSchedule, low_ms: int) -> list[ScheduledEntry]:
        """Pop the next entries up to a low watermark, and load the histories of their keys."""
        due: list[ScheduledEntry] = []
        while len(due) < DUE_AT_ONCE and (entry := schedule.pop(low_ms)) is not None:
            due.append(entry)
        self._histories.load(entry.identifier.decode() for entry in due)
        return due

    def _results(self, key: str, end: int, encoded: bytes) -> list[Any]:
        """Return the result of the window of a key that ends with this value."""
        if not self._histories.has_values(key):
            self._schedule_expiry(key, end - 1)
        value = self._histories.add(key, end - 1, encoded)
        return results_of(self._processor, key, Window(end - self._size_ms, end), value)

    def _schedule_expiry(self, key: str, last_ms: int) -> None:
        """Schedule the expiry of a key's values up to a time: when no later window includes them."""
        self._expiries.add(last_ms + self._size_ms, key.encode(), _ENTRY)

    def advance(self, upstream: Mapping[str, int], idle: Mapping[str, int]) -> StepResult:
        """Write the windows that upstream watermarks and idle inputs complete."""
        return StepResult(self._complete(self.time.advance(upstream, idle)), [])

    def tick(self, now_ms: int) -> StepResult:  # noqa: ARG002 - the protocol
        """Return nothing: windows end in event time."""
        return StepResult([], [])

    def drain(self) -> CheckpointResult:
        """Return the changes since the last drain."""
        schedules = self._buffer.drain() | self._expiries.drain()
        return CheckpointResult([], self._histories.drain() | schedules | self.time.drain())
