"""A bus in memory with outages."""

from __future__ import annotations

from collections.abc import Callable

from penstock.transport.category_spec import CategoryState
from penstock.transport.errors import BusError
from penstock.transport.memory import MemoryBus


class FailingBus(MemoryBus):
    """Does not answer while it has an error."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self.error: BusError | None = None

    def names(self) -> list[str]:
        if self.error is not None:
            raise self.error
        return super().names()

    def describe(self, name: str) -> CategoryState:
        self.names()
        return super().describe(name)

    def stable_ends(self, name: str) -> dict[int, int]:
        self.names()
        return super().stable_ends(name)
