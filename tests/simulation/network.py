"""The network between a process and the brokers, with slow, failed and unanswered requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.transport.errors import BusUnreachable
from penstock.transport.memory.network import REQUEST_LIMIT_S, Network
from penstock.transport.memory.transactions import Transactions

from .faults import Fault, FaultKind
from .scheduler import Process, Scheduler

T = TypeVar("T")
EXTRA_POLL_S = (0.0, 0.0, 0.2, 0.5, 1.0)
"""The extra time of a poll without messages, as on a busy machine; it also saves idle iterations."""
MAX_FAILING_REQUEST_S = 60.0
"""Requests with a longer limit always succeed in the end."""
FETCHED = (0, 1, 5, 20, 10_000, 10_000)
"""Possible numbers of a bucket's messages that are fetched before a poll."""


STARTING_MS = 3_000
"""How long brokers have no leaders after their start."""
MARKER_LOSS_PROBABILITY = 0.6
"""The probability that a marker is lost during the start."""
BUFFER_PROBABILITY = 0.6
"""The probability that a message is buffered until the next flush."""


class Brokers:
    """The brokers: whether they answer, and the markers that they lose at a restart.

    Args:
        scheduler: the clock of the run.
        transactions: the brokers' transactions.
    """

    def __init__(self, scheduler: Scheduler, transactions: Transactions) -> None:
        self._scheduler = scheduler
        self._transactions = transactions
        self._transactions.skips_marker = self._loses_marker
        self._loses_markers_until_ms = 0.0
        self._is_cut = False
        self.unreachable_until_ms = 0.0
        self.back_ms = 0.0

    def go_down(self, seconds: float, *, loses_markers: bool = False) -> None:
        """Be unreachable for a while; killed brokers may lose markers of transactions that expire meanwhile."""
        self.unreachable_until_ms = max(self.unreachable_until_ms, self._scheduler.now_ms + seconds * 1000)
        self.back_ms = self.unreachable_until_ms
        if loses_markers:
            self._loses_markers_until_ms = self.back_ms + STARTING_MS

    def kill_during(self, effect: Callable[[], object], seconds: float) -> None:
        """Decide a request, and be killed before its first marker is written."""
        self._is_cut = True
        try:
            effect()
        finally:
            self._is_cut = False
        self.go_down(seconds, loses_markers=True)

    def _loses_marker(self, has_expired: bool) -> bool:
        """Return whether a marker is missing. Markers of requests after the restart are written."""
        if self._is_cut:
            return True
        is_starting = self._scheduler.now_ms < self._loses_markers_until_ms
        return has_expired and is_starting and self._scheduler.random.random() < MARKER_LOSS_PROBABILITY

    @property
    def are_up(self) -> bool:
        """Whether the brokers answer now."""
        return self._scheduler.now_ms >= self.unreachable_until_ms


class SimulatedNetwork(Network):
    """The network of a process's clients.

    Args:
        scheduler: runs other tasks during a request.
        process: the process.
        brokers: the brokers.
        strike: returns the fault that hits the current request of the process.
    """

    def __init__(
        self, scheduler: Scheduler, process: Process, brokers: Brokers, strike: Callable[[Process, str], Fault | None]
    ) -> None:
        self._scheduler = scheduler
        self._process = process
        self._brokers = brokers
        self._strike = strike

    def request(self, name: str, effect: Callable[[], T], limit_s: float = REQUEST_LIMIT_S) -> T:
        """Perform a request, unless a fault prevents it or its answer."""
        self._scheduler.point(name)
        fault = self._strike(self._process, name)
        if fault is not None and fault.kind is FaultKind.SLOW:
            self._scheduler.sleep(min(fault.duration_s, limit_s * 0.9))
        if fault is not None and fault.kind is FaultKind.FAIL and limit_s <= MAX_FAILING_REQUEST_S:
            self._scheduler.sleep(limit_s)
            raise BusUnreachable(f"No broker answered ({name}).")
        if fault is not None and fault.kind is FaultKind.CUT and self._brokers.are_up:
            self._brokers.kill_during(effect, fault.duration_s)
            self._scheduler.sleep(limit_s)
            raise BusUnreachable(f"No broker answered ({name}).")
        if not self._brokers.are_up and not self._scheduler.wait(lambda: self._brokers.are_up, limit_s):
            raise BusUnreachable(f"No broker answered within {limit_s:.0f} s ({name}).")
        answer = effect()
        if fault is not None and fault.kind is FaultKind.LOST and limit_s <= MAX_FAILING_REQUEST_S:
            self._scheduler.sleep(limit_s)
            raise BusUnreachable(f"No broker answered ({name}).")
        self._scheduler.point(f"after {name}")
        return answer

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for a condition; the wait may exceed the timeout a little."""
        self._scheduler.point("poll")
        if timeout_s == 0 or until():
            return until()
        return self._scheduler.wait(until, timeout_s + self._scheduler.random.choice(EXTRA_POLL_S))

    def is_up(self) -> bool:
        """Tell whether the brokers answer."""
        return self._brokers.are_up

    def fetched(self, at_most: int) -> int:
        """Return the number of a bucket's messages that are already fetched: all, some, or none."""
        return min(at_most, self._scheduler.random.choice(FETCHED))

    def buffers(self) -> bool:
        """Tell whether messages are buffered until a flush; buffered messages are lost if the client dies."""
        return not self._brokers.are_up or self._scheduler.random.random() < BUFFER_PROBABILITY

    def heartbeat_ms(self, now_ms: int) -> int:
        """Return when the process last ran; restarted brokers count from their restart."""
        return int(
            max(self._process.last_reports_ms(now_ms), self._brokers.back_ms if self._brokers.are_up else now_ms)
        )
