"""The operator of an aggregator whose windows close.

    low watermark passes the end of a window             -> complete: its results are written
    … and the allowed lateness, unless `late` keeps all  -> closed: its state is removed

Windows complete and close in order of time, between the same two events in every run. The low watermark, which is saved with the state,
determines which windows were already complete.

Source: Akidau et al., "The Dataflow Model", 2015, section 2.3 (complete, early and late results).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from ..declare import Aggregator, AnyCategory, AtCheckpoint, AtWatermark, Category, OnLate, plan_of
from ..keyed_state import StateReader
from ..time import FOREVER_MS, MILLISECOND, WindowAssignment
from .aggregator import PartialFolder, newest_results, results
from .base import CheckpointResult, Rejected, StepResult, late_among, processed_count, time_of
from .early_results import EarlyResults
from .panes import PaneValues


class _Transition(IntEnum):
    """A transition of a window. Transitions at the same time happen in this order."""

    COMPLETE = 0
    CLOSED = 1


class WindowSchedule:
    """The times at which windows become complete and closed.

    Args:
        processor: declares the windows.
    """

    def __init__(self, processor: Aggregator) -> None:
        self._window = processor.window.window
        self._allowed_ms = None if processor.late is OnLate.INTO_WINDOW else processor.allowed_lateness // MILLISECOND
        self._scheduled: set[int] = set()
        self._transitions: list[tuple[int, _Transition, int]] = []

    @property
    def next_ms(self) -> int:
        """The time of the next transition."""
        return self._transitions[0][0] if self._transitions else FOREVER_MS

    def add(self, starts: Iterable[int], low_ms: int) -> None:
        """Schedule the transitions of these windows after a low watermark."""
        for start in set(starts).difference(self._scheduled):
            end = self._window(start).end
            transitions = [(end, _Transition.COMPLETE, start)]
            if self._allowed_ms is not None:
                transitions.append((end + self._allowed_ms, _Transition.CLOSED, start))
            for transition in transitions:
                if transition[0] > low_ms:
                    self._scheduled.add(start)
                    heapq.heappush(self._transitions, transition)

    def due(self, low_ms: int) -> Iterable[tuple[_Transition, int]]:
        """Yield the transitions up to a low watermark and their windows' starts, in order."""
        while self.next_ms <= low_ms:
            _, transition, start = heapq.heappop(self._transitions)
            if transition is _Transition.CLOSED or self._allowed_ms is None:
                self._scheduled.remove(start)
            yield transition, start

    def is_complete(self, start: int, low_ms: int) -> bool:
        """Return whether the low watermark has passed the end of a window."""
        return self._window(start).end <= low_ms

    def is_closed(self, start: int, low_ms: int) -> bool:
        """Return whether a window no longer accepts events."""
        return self._allowed_ms is not None and self._window(start).end + self._allowed_ms <= low_ms


class ClosingWindowsOperator:
    """Folds observations into windows that close.

    Args:
        processor: the aggregator.
        saved: the shard's state.
    """

    def __init__(self, processor: Aggregator, saved: StateReader) -> None:
        self._processor = processor
        self._emit = processor.emit
        self._keeps_newest = plan_of(processor).keeps_newest
        self._folding = PartialFolder(processor)
        self._panes = PaneValues(processor, saved)
        self._early = (
            EarlyResults(self._emit.early, saved)
            if isinstance(self._emit, AtWatermark) and self._emit.early is not None
            else None
        )
        self.time = time_of(processor, saved)
        self._schedule = WindowSchedule(processor)
        self._schedule.add(self._panes.starts(), self.time.low_ms)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Fold the events of one bucket, in order. Between them, write complete windows and remove closed ones."""
        keys, times = self._processor.group_keys(category, events), category.event_times_of(events)
        mark, before_ms = self.time.mark(category.name), self.time.low_ms
        lows = [before_ms, *self.time.observe(category.name, times).tolist()]  # before each event, and after the last
        self._schedule.add(self._processor.windows_of(times).starts, before_ms)
        outputs: list[Any] = []
        rejected: list[Rejected] = []
        begin = dropped = 0
        while begin < len(events):
            end = min(bisect_left(lows, self._schedule.next_ms, begin + 1), len(events))
            assignment, too_late = self._split_late(times[begin:end], lows[begin:end])
            outputs += self._late_outputs(events[begin + row] for row in too_late)
            dropped += len(too_late)
            raised = self._folding.fold(events[begin:end], keys[begin:end], assignment, stop_at_error=stop_at_error)
            rejected += [Rejected(begin + row, error) for row, error in raised]
            if raised and stop_at_error:
                self.time.go_back(category.name, mark, times[: rejected[0].at])
                break
            outputs += self._advance_to(lows[end])
            begin = end
        count = processed_count(events, rejected, stop_at_error=stop_at_error)
        return StepResult(outputs, rejected, late_among(times[:count], lows[1 : count + 1], before_ms), dropped)

    def _split_late(self, times: Sequence[int], lows: Sequence[int]) -> tuple[WindowAssignment, list[int]]:
        """Return the open windows of the events, and the indices of events whose windows are all closed."""
        assignment, is_closed = self._processor.windows_of(times), self._schedule.is_closed
        if not assignment.starts or not is_closed(min(assignment.starts), lows[-1]):
            return assignment, []
        pairs = [(row, start) for row, start in zip(*assignment, strict=True) if not is_closed(start, lows[row])]
        rows = {row for row, _ in pairs}
        return WindowAssignment([row for row, _ in pairs], [start for _, start in pairs]), [
            row for row in range(len(times)) if row not in rows
        ]

    def _late_outputs(self, events: Iterable[Any]) -> list[Any]:
        return list(events) if isinstance(self._processor.late, Category) else []

    def _advance_to(self, low_ms: int) -> list[Any]:
        """Complete and close the windows up to a low watermark; return their results."""
        outputs: list[Any] = []
        for transition, start in self._schedule.due(low_ms):
            if transition is _Transition.COMPLETE and isinstance(self._emit, AtWatermark):
                outputs += self._complete(start)
            if transition is _Transition.CLOSED:
                outputs += self._close(start)
        return outputs

    def _complete(self, start: int) -> list[Any]:
        """Return the results of all keys of a window."""
        self._panes.merge(start, self._folding.panes.pop(start, {}))
        if self._early is not None:
            self._early.drop(start)
        return self._written(start, self._panes.of(start))

    def _close(self, start: int) -> list[Any]:
        """Return the pending results of a window, and remove its state."""
        outputs = self._update(start, self._folding.panes.pop(start, {}))
        self._panes.remove_all(start)
        return outputs

    def _update(self, start: int, pane: dict[str, Any]) -> list[Any]:
        """Return the results of the changed keys of a window."""
        if self._emit == AtCheckpoint(differences=True):
            return results(self._processor, {(key, start): partial for key, partial in pane.items()})
        return self._written(start, self._panes.merge(start, pane)) if pane else []

    def _written(self, start: int, values: dict[str, Any]) -> list[Any]:
        if self._emit.differences:
            self._panes.remove(start, values)
        outputs = results(self._processor, {(key, start): value for key, value in values.items()})
        return outputs + self._newest(start, values) if self._keeps_newest else outputs

    def _newest(self, start: int, keys: Iterable[str]) -> list[Any]:
        """Return the results of later windows of these keys that were written before."""
        only_complete = isinstance(self._emit, AtWatermark) and self._early is None
        later = (
            other
            for other in self._panes.starts_after(start)
            if not only_complete or self._schedule.is_complete(other, self.time.low_ms)
        )
        return newest_results(self._processor, keys, later, self._panes.values)

    def advance(self, upstream: Mapping[str, int], idle: Mapping[str, int]) -> StepResult:
        """Complete and close the windows that upstream watermarks and idle inputs allow."""
        return StepResult(self._advance_to(self.time.advance(upstream, idle)), [])

    def tick(self, now_ms: int) -> StepResult:
        """Return the early results, once per interval."""
        if self._early is None or not self._early.is_due(now_ms):
            return StepResult([], [])
        outputs = self._merge_panes()
        for start, keys in self._early.take():
            outputs += self._written(start, self._panes.values(start, keys))
        return StepResult(outputs, [])

    def _merge_panes(self) -> list[Any]:
        """Merge the folded partials into the values of their windows; return the results that are due."""
        panes, self._folding.panes = self._folding.panes, {}
        outputs: list[Any] = []
        for start, pane in sorted(panes.items()):
            if not isinstance(self._emit, AtWatermark) or self._schedule.is_complete(start, self.time.low_ms):
                outputs += self._update(start, pane)
            else:
                self._panes.merge(start, pane)
                if self._early is not None:
                    self._early.add(start, pane)
        return outputs

    def drain(self) -> CheckpointResult:
        """Return the results that are due, and the changes since the last drain."""
        outputs = self._merge_panes()
        early = {} if self._early is None else self._early.drain()
        return CheckpointResult(outputs, self._panes.drain() | early | self.time.drain())
