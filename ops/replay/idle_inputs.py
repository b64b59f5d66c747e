"""Which inputs of a shard are idle, by when events arrived: nobody waits for them any more."""

from __future__ import annotations

from ...processors.declare.processor import Processor
from ...processors.time.windows import MILLISECOND


class ReplayIdleInputs:
    """Listens to the inputs of one shard.

    Args:
        processor: whose inputs; it says after how long one is idle.
    """

    def __init__(self, processor: Processor) -> None:
        names = [category.name for category in processor.inputs()]
        self._names = names if len(names) > 1 else []  # nobody waits for the only one
        self._limit_ms = None if processor.idle_after is None else processor.idle_after // MILLISECOND
        self._heard_ms: dict[str, int] = {}

    def heard(self, name: str, arrived_ms: int) -> None:
        """Note that events came."""
        self._heard_ms[name] = arrived_ms

    def idle(self, now_ms: int) -> frozenset[str]:
        """Return those that are idle at a time."""
        if self._limit_ms is None:
            return frozenset()
        return frozenset(
            name for name in self._names if now_ms - self._heard_ms.setdefault(name, now_ms) >= self._limit_ms
        )
