"""The network between a process and the brokers, with slow, failed and unanswered requests."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar
from zlib import crc32

from penstock.transport import Bucket, BusUnreachable
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
TRICKLING_FETCHED = (0, 1, 1, 2, 5)
"""These numbers where messages trickle."""
TRICKLING_POLL_S = 1.0
"""The longest time of a poll where messages trickle."""


BROKERS = 3
"""The number of brokers, each of which leads a part of the buckets."""
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
        rate: how many bytes of messages per second they accept from a client, as by a quota or through a slow link; 0 for any number.
        trickles: whether clients receive few messages at a time.
    """

    def __init__(
        self, scheduler: Scheduler, transactions: Transactions, rate: int = 0, *, trickles: bool = False
    ) -> None:
        self._scheduler = scheduler
        self.rate = rate
        self.trickles = trickles
        self._transactions = transactions
        self._transactions.skips_marker = self._loses_marker
        self._loses_markers_until_ms = 0.0
        self._is_cut = False
        self._cut_off_until_ms: dict[int, float] = {}
        self.unreachable_until_ms = 0.0
        self.back_ms = 0.0

    def cut_off(self, broker: int, seconds: float) -> None:
        """Keep clients from one broker for a while; the brokers reach each other."""
        self._cut_off_until_ms[broker] = self._scheduler.now_ms + seconds * 1000

    @property
    def are_all_reached(self) -> bool:
        """Whether clients reach all brokers now."""
        return all(map(self._is_reached, range(BROKERS)))

    def _is_reached(self, broker: int) -> bool:
        return self._scheduler.now_ms >= self._cut_off_until_ms.get(broker, 0.0)

    def reach_leader_of(self, bucket: Bucket) -> bool:
        """Return whether clients reach the broker that leads a bucket now."""
        return self._is_reached((crc32(bucket.category.encode()) + bucket.number) % BROKERS)

    def go_down(self, seconds: float, *, loses_markers: bool = False) -> None:
        """Be unreachable for a while; killed brokers may lose markers of transactions that expire meanwhile."""
        self.unreachable_until_ms = max(self.unreachable_until_ms, self._scheduler.now_ms + seconds * 1000)
        self.back_ms = self.unreachable_until_ms
        if loses_markers:
            self._loses_markers_until_ms = self.back_ms + STARTING_MS

    def kill_during(self, effect: Callable[[], object], seconds: float) -> None:
        """Decide a request, and be killed before its first marker is written."""
        self.without_markers(effect)
        self.go_down(seconds, loses_markers=True)

    def without_markers(self, effect: Callable[[], T]) -> T:
        """Decide a request, and write none of its markers."""
        self._is_cut = True
        try:
            return effect()
        finally:
            self._is_cut = False

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
        is_unmarked = fault is not None and fault.kind is FaultKind.UNMARKED
        answer = self._brokers.without_markers(effect) if is_unmarked else effect()
        if fault is not None and fault.kind is FaultKind.LOST and limit_s <= MAX_FAILING_REQUEST_S:
            self._scheduler.sleep(limit_s)
            raise BusUnreachable(f"No broker answered ({name}).")
        self._scheduler.point(f"after {name}")
        return answer

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for a condition; the wait may exceed the timeout a little."""
        self._scheduler.point("poll")
        if self._brokers.trickles and timeout_s:
            self._scheduler.sleep(self._scheduler.random.uniform(0, TRICKLING_POLL_S))
        if timeout_s == 0 or until():
            return until()
        return self._scheduler.wait(until, timeout_s + self._scheduler.random.choice(EXTRA_POLL_S))

    def is_up(self) -> bool:
        """Tell whether the brokers answer."""
        return self._brokers.are_up

    def reaches_all(self) -> bool:
        """Return whether requests reach all brokers at present."""
        return self._brokers.are_all_reached

    def reaches(self, bucket: Bucket) -> bool:
        """Return whether requests reach the broker that leads a bucket at present."""
        return self._brokers.reach_leader_of(bucket)

    def wait_for_leaders(self, what: str, buckets: Collection[Bucket], limit_s: float = REQUEST_LIMIT_S) -> None:
        """Wait for the brokers that lead some buckets, up to a limit."""
        if not self._all_lead(buckets) and not self._scheduler.wait(lambda: self._all_lead(buckets), limit_s):
            raise BusUnreachable(f"A broker did not answer within {limit_s:.0f} s ({what}).")

    def _all_lead(self, buckets: Collection[Bucket]) -> bool:
        return all(map(self._brokers.reach_leader_of, buckets))

    def fetched(self, at_most: int) -> int:
        """Return the number of a bucket's messages that are already fetched: all, some, or none."""
        fetched = TRICKLING_FETCHED if self._brokers.trickles else FETCHED
        return min(at_most, self._scheduler.random.choice(fetched))

    def buffers(self) -> bool:
        """Tell whether messages are buffered until a flush; buffered messages are lost if the client dies."""
        is_slow = self._brokers.rate > 0
        return is_slow or not self._brokers.are_up or self._scheduler.random.random() < BUFFER_PROBABILITY

    def transfers(self, size_bytes: int, limit_s: float) -> bool:
        """Take the time that the brokers need for a message, up to a limit; return whether they have it then."""
        if not self._brokers.rate:
            return True
        takes_s = size_bytes / self._brokers.rate
        self._scheduler.sleep(min(takes_s, limit_s))
        return takes_s <= limit_s and self._brokers.are_up

    def heartbeat_ms(self, now_ms: int) -> int:
        """Return when the process last ran; restarted brokers count from their restart."""
        return int(
            max(self._process.last_reports_ms(now_ms), self._brokers.back_ms if self._brokers.are_up else now_ms)
        )
