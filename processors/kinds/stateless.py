"""The kind that remembers nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from ..records import Record
from .base import Processor


class Stateless(Processor):
    """Events in, events out; nothing is remembered."""

    @abstractmethod
    def process(self, event: Any) -> Iterable[Record]:
        """Return, or yield, the outputs of one event."""
