"""Transactions that nobody ends: left open in the log by a worker that never comes back, in front of everybody who reads committed data.

The bus ends what a dead worker left open when its time is up. A broker that is killed meanwhile may take it for ended and leave it open (see
`transport.kafka.leftovers`); the next writer of the same identity ends it. Where that worker is gone for good, with its disk or its
machine, the others of its processor do so in its name.

    the last stable offset of an output stands still --longer than a transaction may be open--> silent workers, by their reports
    --> a writer is opened in the name of each, which fences it and aborts what it left open
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread

from ...processors.declare.processor import Processor
from ...transport.bus import Bus
from ...transport.errors import BusError, MissingCategory
from ...transport.messages import Bucket
from ..clock import Clock, SystemClock
from ..monitoring.reports import SILENT_AFTER_S, last_reports_ms

_LOG = logging.getLogger("penstock.worker")
LOOK_EVERY_S = 10.0
MARGIN_S = 30.0
"""How much longer than a transaction may be open an offset stands still before it is taken for left behind."""


class StalledTransaction:
    """For how long the last stable offset of each bucket has stood still with something behind it. Times in seconds of one clock."""

    def __init__(self) -> None:
        self._since: dict[Bucket, tuple[int, float]] = {}

    def longest_s(self, stable: Mapping[Bucket, int], ends: Mapping[Bucket, int], now_s: float) -> float:
        """Take what is seen now; return for how long the one that stands still longest has done so."""
        held = {bucket: offset for bucket, offset in stable.items() if offset < ends[bucket]}
        self._since = {
            bucket: before
            if (before := self._since.get(bucket)) is not None and before[0] == offset
            else (offset, now_s)
            for bucket, offset in held.items()
        }
        return max((now_s - since_s for _, since_s in self._since.values()), default=0.0)


class TransactionSweeper:
    """Ends what workers of a processor have left open that are gone. One thread.

    Args:
        processor: whose workers.
        bus: where it writes.
        name: that of the worker that sweeps.
        writes: the categories that it writes in transactions.
        limit_s: how long a transaction may be open.
        end_left_open: opens a writer in the name of a worker, and closes it.
        clock: tells the time; by default the machine's.
    """

    def __init__(
        self,
        processor: type[Processor],
        bus: Bus,
        name: str,
        writes: Sequence[str],
        *,
        limit_s: float,
        end_left_open: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self._processor = processor
        self._bus = bus
        self._name = name
        self._writes = writes
        self._limit_s = limit_s + MARGIN_S
        self._end_left_open = end_left_open
        self._clock = clock or SystemClock()
        self._standstill = StalledTransaction()
        self._swept: set[str] = set()

    def look(self) -> None:
        """Look once; end what silent workers left open where readers wait for it.

        Raises:
            BusError: the bus does not answer; look again.
        """
        stable, ends = self._offsets(self._bus.catalog.stable_ends), self._offsets(self._bus.catalog.ends)
        # What has come since the first question is no older than a moment.
        if self._standstill.longest_s(stable, {**stable, **ends}, self._clock.monotonic_s()) < self._limit_s:
            self._swept.clear()
            return
        silent_ms = self._clock.now_ms() - SILENT_AFTER_S * 1000
        heard = last_reports_ms(self._bus, self._processor.name)
        for name in sorted(name for name, at_ms in heard.items() if at_ms < silent_ms and name != self._name):
            if name not in self._swept:
                self._end_left_open(name)
                self._swept.add(name)
                _LOG.warning(
                    "%s: readers of its outputs waited for a transaction that was left open. Worker %s, which has said nothing for %.0f s, may "
                    "have done so; what it left open is aborted, and done again by who has its buckets.",
                    self._processor.name,
                    name,
                    (self._clock.now_ms() - heard[name]) / 1000,
                )

    def _offsets(self, ask: Callable[[str], Mapping[int, int]]) -> dict[Bucket, int]:
        found: dict[Bucket, int] = {}
        for category in self._writes:
            try:
                found |= {Bucket(category, number): offset for number, offset in ask(category).items()}
            except MissingCategory:
                _LOG.info("%s is not on the bus.", category)
        return found


class SweepThread:
    """Has a sweeper look again and again, beside the worker; `close` ends that.

    Args:
        sweeper: looks.
    """

    def __init__(self, sweeper: TransactionSweeper) -> None:
        self._sweeper = sweeper
        self._closed = Event()
        # A bus that does not answer keeps no worker from ending.
        Thread(target=self._look, name="sweeping", daemon=True).start()

    def _look(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            try:
                self._sweeper.look()
            except BusError as error:
                _LOG.info("Whether a transaction was left open is not known until the bus answers: %s", error)

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
