"""The step of an aggregator whose windows end: written when they are complete, and removed when they are done.

    low watermark passes the end of a window                            -> it is complete: written
    … and the lateness that is allowed, where later events are left out -> it is done: removed

Both happen between two events, always the same two, and in order of time. Which windows were complete before follows from the
low watermark alone, which is saved with the state.

Source: for complete, early and late results, Akidau et al., "The Dataflow Model", 2015, section 2.3.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from ..declare.aggregator import Aggregator
from ..declare.categories import AnyCategory, Category
from ..declare.emission import AtCheckpoint, AtWatermark, OnLate
from ..keyed_state.changes import StateReader
from ..time.watermarks import FOREVER_MS
from ..time.windows import MILLISECOND, WindowAssignment
from .aggregator import PartialFolder, results
from .base import CheckpointResult, Rejected, StepResult, late_among, time_of
from .early_results import EarlyResults
from .panes import WindowValues


class _Turn(IntEnum):
    """What becomes of a window; where both are due at once, in this order."""

    COMPLETE = 0
    DONE = 1


class WindowSchedule:
    """When which windows are complete, and done.

    Args:
        processor: whose windows.
    """

    def __init__(self, processor: Aggregator) -> None:
        self._window = processor.window.window
        self._allowed_ms = None if processor.late is OnLate.INTO_WINDOW else processor.allowed_lateness // MILLISECOND
        self._followed: set[int] = set()
        self._turns: list[tuple[int, _Turn, int]] = []

    @property
    def next_ms(self) -> int:
        """When the next window is complete or done."""
        return self._turns[0][0] if self._turns else FOREVER_MS

    def add(self, starts: Iterable[int], low_ms: int) -> None:
        """Follow these windows from a low watermark on."""
        for start in set(starts).difference(self._followed):
            end = self._window(start).end
            turns = [(end, _Turn.COMPLETE, start)]
            if self._allowed_ms is not None:
                turns.append((end + self._allowed_ms, _Turn.DONE, start))
            left = [turn for turn in turns if turn[0] > low_ms]
            if left:
                self._followed.add(start)
            for turn in left:
                heapq.heappush(self._turns, turn)

    def due(self, low_ms: int) -> Iterable[tuple[_Turn, int]]:
        """Give what is due at a low watermark, in order."""
        while self.next_ms <= low_ms:
            _, turn, start = heapq.heappop(self._turns)
            if turn is _Turn.DONE or self._allowed_ms is None:
                self._followed.remove(start)
            yield turn, start

    def is_complete(self, start: int, low_ms: int) -> bool:
        """Tell whether the low watermark has passed the end of a window."""
        return self._window(start).end <= low_ms

    def is_done(self, start: int, low_ms: int) -> bool:
        """Tell whether a window takes no events any more."""
        return self._allowed_ms is not None and self._window(start).end + self._allowed_ms <= low_ms


class ClosingWindowsOperator:
    """Folds observations into windows that end."""

    def __init__(self, processor: Aggregator, saved: StateReader) -> None:
        self._processor = processor
        self._emit = processor.emit
        self._folding = PartialFolder(processor)
        self._panes = WindowValues(processor, saved)
        self._early = (
            EarlyResults(self._emit.early, saved)
            if isinstance(self._emit, AtWatermark) and self._emit.early is not None
            else None
        )
        self.time = time_of(processor, saved)
        self._schedule = WindowSchedule(processor)
        self._schedule.add(self._panes.starts(), self.time.low_ms)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Fold the events of one bucket, in order; between them, write and remove windows."""
        keys, times = category.keys_of(events), category.event_times_of(events)
        mark, before_ms = self.time.mark(category.name), self.time.low_ms
        lows = [before_ms, *self.time.observe(category.name, times)]  # before each event, and after the last
        self._schedule.add(self._processor.window.assign(times).starts, before_ms)
        outputs: list[Any] = []
        rejected: list[Rejected] = []
        begin = dropped = 0
        while begin < len(events):
            end = min(bisect_left(lows, self._schedule.next_ms, begin + 1), len(events))
            assignment, too_late = self._in_time(times[begin:end], lows[begin:end])
            outputs += self._late_outputs(events[begin + row] for row in too_late)
            dropped += len(too_late)
            raised = self._folding.fold(events[begin:end], keys[begin:end], assignment, stop_at_error=stop_at_error)
            rejected += [Rejected(begin + row, error) for row, error in raised]
            if raised and stop_at_error:
                self.time.go_back(category.name, mark, times[: rejected[0].at])
                break
            outputs += self._pass(lows[end])
            begin = end
        taken = rejected[0].at if rejected and stop_at_error else len(events)
        return StepResult(outputs, rejected, late_among(times[:taken], lows[1 : taken + 1], before_ms), dropped)

    def _in_time(self, times: Sequence[int], lows: Sequence[int]) -> tuple[WindowAssignment, list[int]]:
        """Return the windows that these events lie in and that still take them, and the events for which there is none."""
        assignment, is_done = self._processor.window.assign(times), self._schedule.is_done
        if not assignment.starts or not is_done(min(assignment.starts), lows[-1]):
            return assignment, []
        taken = [(row, start) for row, start in zip(*assignment, strict=True) if not is_done(start, lows[row])]
        rows = {row for row, _ in taken}
        return WindowAssignment([row for row, _ in taken], [start for _, start in taken]), [
            row for row in range(len(times)) if row not in rows
        ]

    def _late_outputs(self, events: Iterable[Any]) -> list[Any]:
        return list(events) if isinstance(self._processor.late, Category) else []

    def _pass(self, low_ms: int) -> list[Any]:
        """Write and remove what a low watermark has passed."""
        outputs: list[Any] = []
        for turn, start in self._schedule.due(low_ms):
            if turn is _Turn.COMPLETE and isinstance(self._emit, AtWatermark):
                outputs += self._complete(start)
            if turn is _Turn.DONE:
                outputs += self._finish(start)
        return outputs

    def _complete(self, start: int) -> list[Any]:
        """Write all of a window."""
        self._panes.merge(start, self._folding.panes.pop(start, {}))
        if self._early is not None:
            self._early.drop(start)
        return self._written(start, self._panes.of(start))

    def _finish(self, start: int) -> list[Any]:
        """Write what is not written of a window, and remove it."""
        outputs = self._update(start, self._folding.panes.pop(start, {}))
        self._panes.remove_all(start)
        return outputs

    def _update(self, start: int, pane: dict[str, Any]) -> list[Any]:
        """Write the keys of a window that changed."""
        if self._emit == AtCheckpoint(differences=True):
            return results(self._processor, {(key, start): partial for key, partial in pane.items()})
        return self._written(start, self._panes.merge(start, pane)) if pane else []

    def _written(self, start: int, values: dict[str, Any]) -> list[Any]:
        if self._emit.differences:
            self._panes.remove(start, values)
        return results(self._processor, {(key, start): value for key, value in values.items()})

    def advance(self, upstream: Mapping[str, int], idle: Collection[str]) -> StepResult:
        """Write and remove the windows that what is known from elsewhere completes."""
        return StepResult(self._pass(self.time.advance(upstream, idle)), [])

    def tick(self, now_ms: int) -> StepResult:
        """Write windows that changed and are not complete, where the interval is over."""
        if self._early is None or not self._early.is_due(now_ms):
            return StepResult([], [])
        outputs = self._merge_panes()
        for start, keys in self._early.take():
            outputs += self._written(start, self._panes.values(start, keys))
        return StepResult(outputs, [])

    def _merge_panes(self) -> list[Any]:
        """Merge all that was folded; return what is to be written of it now."""
        panes, self._folding.panes = self._folding.panes, {}
        outputs: list[Any] = []
        for start, pane in panes.items():
            if not isinstance(self._emit, AtWatermark) or self._schedule.is_complete(start, self.time.low_ms):
                outputs += self._update(start, pane)
            else:
                self._panes.merge(start, pane)
                if self._early is not None:
                    self._early.add(start, pane)
        return outputs

    def drain(self) -> CheckpointResult:
        """Hand over what is to be written now, and what changed since the last drain."""
        outputs = self._merge_panes()
        early = {} if self._early is None else self._early.drain()
        return CheckpointResult(outputs, self._panes.drain() | early | self.time.drain())
