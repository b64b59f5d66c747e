"""What becomes of what a replay gives: it goes where it was asked for, is counted, and is kept where it is to be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...processors.declare.processor import Processor
from .counts import ReplayCounts
from .input_summary import InputSummary
from .outputs import Output, OutputRecord, Outputs, told
from .shard_replay import ReplayedBatch

Give = Callable[[Output], None]


class OutputCollector:
    """Takes what shards give.

    Args:
        processor: whose outputs.
        key: only what comes of this key's events; None for all.
        gives: what takes each output of the span.
        keeps: whether they are kept, to be compared.
    """

    def __init__(self, processor: type[Processor], key: str | None, gives: Sequence[Give], *, keeps: bool) -> None:
        self._outputs = Outputs(processor)
        self._key = key
        self._gives = gives
        self._keeps = keeps
        self.counts = ReplayCounts()
        self.inputs = InputSummary(key)
        self.ours: list[OutputRecord] = []
        self.warming: list[OutputRecord] = []

    def all(self, played: Iterable[ReplayedBatch]) -> None:
        """Take everything."""
        for one in played:
            if not one.state_only:
                self._take(self._chosen(one))
            elif self._keeps:
                self.warming += map(told, self._chosen(one))

    def _take(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self.counts.outputs += 1
            for give in self._gives:
                give(output)
            if self._keeps:
                self.ours.append(told(output))

    def _chosen(self, played: ReplayedBatch) -> Iterable[Output]:
        for output in self._outputs.of(played):
            # What the processor's own code made is of the key already; a late event was only passed on.
            if self._key is None or output.key == self._key or not self._outputs.is_late(output):
                yield output
