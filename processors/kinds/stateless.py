"""The kind that remembers nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..records import Record
from .base import Processor


class Stateless(Processor):
    """Events in, events out; nothing is remembered."""

    @abstractmethod
    def process(self, event: Any) -> Iterable[Record]:
        """Return, or yield, the outputs of one event."""

    def for_batch(self, events: Sequence[Any]) -> Callable[[Any], Iterable[Record]]:  # noqa: ARG002 - for those that fetch
        """Return what is to be asked for the outputs of the events of a batch, one after the other, each once.

        Raises:
            Deferred: the batch is to be given again.
            Halted: it cannot be processed.
        """
        return self.process
