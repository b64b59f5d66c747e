"""Sliding windows of one key, whose events come sorted by time: each is complete when the next time comes.

Nothing is late and nothing is saved: all that is held is what happened at the newest time, and what windows need of the times before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ...processors.categories import AnyCategory
from ...processors.cores import Fed
from ...processors.cores.aggregator import Folding, results_of
from ...processors.cores.trailing import Trailing
from ...processors.kinds import Aggregator


class SortedSliding:
    """Writes the windows of one key.

    Args:
        processor: which; its windows slide.
        size_ms: how long they are.
        folding: of this processor, with nothing in it.
    """

    def __init__(self, processor: Aggregator, size_ms: int, folding: Folding) -> None:
        self._processor = processor
        self._folding = folding
        self._trailing = Trailing(processor.monoid, size_ms)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> Fed:
        """Take the next events, and write the windows that end before the last of them."""
        spread = self._processor.window.spread(category.event_times_of(events))
        rejected = self._folding.fold(events, category.keys_of(events), spread, stop_at_error=stop_at_error)
        return Fed(self._written(sorted(self._folding.panes)[:-1]), rejected)

    def advance(self, promised: Mapping[str, int], idle: Collection[str]) -> Fed:  # noqa: ARG002 - the key has no more events
        """Write the last window."""
        return Fed(self._written(list(self._folding.panes)), [])

    def _written(self, starts: Iterable[int]) -> list[Any]:
        outputs: list[Any] = []
        for start in starts:
            window = self._processor.window.window(start)
            [(key, partial)] = self._folding.panes.pop(start).items()
            outputs += results_of(self._processor, key, window, self._trailing.add(window.end - 1, partial))
        return outputs
