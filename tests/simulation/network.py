"""The network between a process and the brokers: requests that take long, fail, or are carried out and not answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.transport.errors import BusUnreachable
from penstock.transport.memory.network import REQUEST_LIMIT_S, Network
from penstock.transport.memory.transactions import Transactions

from .faults import Fault, What
from .scheduler import Process, Scheduler

T = TypeVar("T")
LAZY_S = (0.0, 0.0, 0.2, 0.5, 1.0)
"""How much longer than asked for a poll may take that gives nothing, as on a busy machine; and a run has fewer idle turns."""
PATIENT_S = 60.0
"""What a client keeps trying for longer than this, it is lucky with in the end."""
FETCHED = (0, 1, 5, 20, 10_000, 10_000)
"""How many messages of a bucket may have been fetched by the time of a poll."""


STARTING_MS = 3_000
"""How long after their start brokers do not know yet who leads what."""
FORGETFUL = 0.6
"""How likely a marker is lost until then."""
BUFFERED = 0.6
"""How likely what is sent waits for the next flush."""


class Brokers:
    """Whether the brokers answer, and what they forget when they are started again.

    Args:
        scheduler: tells the time.
        transactions: what they keep of transactions.
    """

    def __init__(self, scheduler: Scheduler, transactions: Transactions) -> None:
        self._scheduler = scheduler
        self._transactions = transactions
        self._transactions.skips_marker = self._loses_marker
        self._forgets_until_ms = 0.0
        self._is_cut = False
        self.away_until_ms = 0.0
        self.back_ms = 0.0

    def go(self, seconds: float, *, loses_markers: bool = False) -> None:
        """Be away for a while; what is killed may lose markers of what ran out of time meanwhile, when it is started again."""
        self.away_until_ms = max(self.away_until_ms, self._scheduler.now_ms + seconds * 1000)
        self.back_ms = self.away_until_ms
        if loses_markers:
            self._forgets_until_ms = self.back_ms + STARTING_MS

    def cut(self, effect: Callable[[], object], seconds: float) -> None:
        """Decide what is asked for, and be killed before any marker of it is written."""
        self._is_cut = True
        try:
            effect()
        finally:
            self._is_cut = False
        self.go(seconds, loses_markers=True)

    def _loses_marker(self, has_expired: bool) -> bool:
        """Return whether a marker is missing. Markers of requests after the restart are written."""
        if self._is_cut:
            return True
        is_starting = self._scheduler.now_ms < self._forgets_until_ms
        return has_expired and is_starting and self._scheduler.random.random() < FORGETFUL

    @property
    def are_up(self) -> bool:
        """Whether they answer now."""
        return self._scheduler.now_ms >= self.away_until_ms


class SimulatedLine(Network):
    """What a process's clients go through.

    Args:
        scheduler: lets others go on.
        process: whose.
        brokers: whether they answer.
        strike: gives the fault that befalls a request of the process now.
    """

    def __init__(
        self, scheduler: Scheduler, process: Process, brokers: Brokers, strike: Callable[[Process, str], Fault | None]
    ) -> None:
        self._scheduler = scheduler
        self._process = process
        self._brokers = brokers
        self._strike = strike

    def request(self, what: str, effect: Callable[[], T], limit_s: float = REQUEST_LIMIT_S) -> T:
        """Have the brokers do something, unless a fault keeps the request or its answer."""
        self._scheduler.point(what)
        fault = self._strike(self._process, what)
        if fault is not None and fault.what is What.SLOW:
            self._scheduler.sleep(min(fault.lasts_s, limit_s * 0.9))
        if fault is not None and fault.what is What.FAIL and limit_s <= PATIENT_S:
            self._scheduler.sleep(limit_s)
            raise BusUnreachable(f"No broker answered ({what}).")
        if fault is not None and fault.what is What.CUT and self._brokers.are_up:
            self._brokers.cut(effect, fault.lasts_s)
            self._scheduler.sleep(limit_s)
            raise BusUnreachable(f"No broker answered ({what}).")
        if not self._brokers.are_up and not self._scheduler.wait(lambda: self._brokers.are_up, limit_s):
            raise BusUnreachable(f"No broker answered within {limit_s:.0f} s ({what}).")
        answer = effect()
        if fault is not None and fault.what is What.LOST and limit_s <= PATIENT_S:
            self._scheduler.sleep(limit_s)
            raise BusUnreachable(f"No broker answered ({what}).")
        self._scheduler.point(f"after {what}")
        return answer

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Wait, perhaps a little longer than was asked for."""
        self._scheduler.point("poll")
        if timeout_s == 0 or until():
            return until()
        return self._scheduler.wait(until, timeout_s + self._scheduler.random.choice(LAZY_S))

    def is_up(self) -> bool:
        """Tell whether the brokers answer."""
        return self._brokers.are_up

    def fetched(self, at_most: int) -> int:
        """Return how many messages of a bucket are fetched already: all, some, or none."""
        return min(at_most, self._scheduler.random.choice(FETCHED))

    def buffers(self) -> bool:
        """Keep what is sent until it is flushed, mostly: what a client had not sent yet dies with it."""
        return not self._brokers.are_up or self._scheduler.random.random() < BUFFERED

    def heartbeat_ms(self, now_ms: int) -> int:
        """Return when the process last ran; brokers that come back begin to count anew."""
        return int(
            max(self._process.last_reports_ms(now_ms), self._brokers.back_ms if self._brokers.are_up else now_ms)
        )
