"""Idle inputs of a shard, by when their events arrived."""

from __future__ import annotations

from ..declare import Processor, plan_of
from ..time import MILLISECOND


class IdleInputs:
    """Follows the inputs of one shard.

    Args:
        processor: declares after how long an input is idle.
    """

    def __init__(self, processor: Processor) -> None:
        names = [category.name for category in plan_of(processor).sources]
        self._names = names if len(names) > 1 else []  # no watermark waits for the only input
        self._limit_ms = None if processor.idle_after is None else processor.idle_after // MILLISECOND
        self._heard_ms: dict[str, int] = {}

    def heard(self, name: str, arrived_ms: int) -> None:
        """Note that events of an input arrived."""
        self._heard_ms[name] = arrived_ms

    def idle(self, now_ms: int) -> frozenset[str]:
        """Return the inputs that are idle at a time."""
        if self._limit_ms is None:
            return frozenset()
        return frozenset(
            name for name in self._names if now_ms - self._heard_ms.setdefault(name, now_ms) >= self._limit_ms
        )
