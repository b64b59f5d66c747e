"""Sliding windows of one key, whose events come sorted by time: each is complete when the next time comes.

Nothing is late and nothing is saved: all that is held is what happened at the newest time, and what windows need of the times before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.categories import AnyCategory
from ...processors.operators import StepResult
from ...processors.operators.aggregator import PartialFolder, results_of
from ...processors.operators.sliding_aggregate import SlidingAggregate


class SortedSliding:
    """Writes the windows of one key.

    Args:
        processor: which; its windows slide.
        size_ms: how long they are.
        folding: of this processor, with nothing in it.
    """

    def __init__(self, processor: Aggregator, size_ms: int, folding: PartialFolder) -> None:
        self._processor = processor
        self._folding = folding
        self._trailing = SlidingAggregate(processor.monoid, size_ms)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Take the next events, and write the windows that end before the last of them."""
        spread = self._processor.window.spread(category.event_times_of(events))
        rejected = self._folding.fold(events, category.keys_of(events), spread, stop_at_error=stop_at_error)
        return StepResult(self._written(sorted(self._folding.panes)[:-1]), rejected)

    def advance(self, promised: Mapping[str, int], idle: Collection[str]) -> StepResult:  # noqa: ARG002 - the key has no more events
        """Write the last window."""
        return StepResult(self._written(list(self._folding.panes)), [])

    def _written(self, starts: Iterable[int]) -> list[Any]:
        outputs: list[Any] = []
        for start in starts:
            window = self._processor.window.window(start)
            [(key, partial)] = self._folding.panes.pop(start).items()
            outputs += results_of(self._processor, key, window, self._trailing.add(window.end - 1, partial))
        return outputs
