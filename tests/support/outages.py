"""A bus in memory with outages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from penstock.transport import BusError, BusUnreachable, CategoryState, Polled, Position
from penstock.transport.bus import Scanner
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.cluster import MemoryCluster
from penstock.transport.memory.network import REQUEST_LIMIT_S, Network

T = TypeVar("T")


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


class Switch(Network):
    """A network that can be cut. A cut network buffers messages."""

    def __init__(self) -> None:
        self.is_cut = False

    def request(self, what: str, effect: Callable[[], T], limit_s: float = REQUEST_LIMIT_S) -> T:
        if self.is_cut:
            raise BusUnreachable(f"No broker answered ({what}). Correct [kafka-settings].")
        return super().request(what, effect, limit_s)

    def is_up(self) -> bool:
        return not self.is_cut

    def buffers(self) -> bool:
        return self.is_cut


class SilentBus(MemoryBus):
    """A bus that answers requests, but sends no message of some categories, as if the leaders of their buckets had failed.

    Args:
        silent: the categories.
        now_ms: as for `MemoryBus`.
        cluster: as for `MemoryBus`.
    """

    def __init__(
        self, silent: Iterable[str] = (), now_ms: Callable[[], int] | None = None, cluster: MemoryCluster | None = None
    ) -> None:
        super().__init__(now_ms, cluster=cluster)
        self.silent = set(silent)

    def scanner(self, positions: Sequence[Position]) -> SilentScanner:  # type: ignore[override]
        categories = {position.bucket.category for position in positions}
        return SilentScanner(super().scanner(positions), lambda: bool(categories & self.silent))


class SilentScanner:
    """A scanner that receives no messages while its bus is silent."""

    def __init__(self, scanner: Scanner, is_silent: Callable[[], bool]) -> None:
        self._scanner = scanner
        self._is_silent = is_silent

    def poll(self, timeout_s: float) -> Polled:
        return Polled([], []) if self._is_silent() else self._scanner.poll(timeout_s)

    def close(self) -> None:
        self._scanner.close()
