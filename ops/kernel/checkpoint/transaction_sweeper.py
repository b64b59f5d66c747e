"""Ends transactions that vanished workers left open, since they block all readers of committed data.

The bus aborts a dead worker's transaction after its timeout. A broker that is killed meanwhile may lose that decision and leave the transaction
open (see `transport.kafka.leftovers`). The worker's next start aborts it. If the worker never returns, because its disk or machine is lost, the
other workers of its processor abort it.

    the last stable offset of an output does not advance --for longer than the timeout--> silent workers, by their status reports
    a worker waits for the group's positions, which stay undecided --> the same
    --> a writer with the transactional id of each, which fences the worker and aborts its open transaction

After an outage of Kafka, workers have time to report before one counts as silent: a live worker that is fenced must start over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ....processors import BackgroundThread
from ....processors.declare import Processor, plan_of
from ....transport import Bucket, Bus, BusError, BusUnreachable, MissingCategory
from ...shell import MachineClock, SystemClock
from ..telemetry import SILENT_AFTER_S, OutageTracker, last_reports_ms

_LOG = logging.getLogger("penstock.worker")
SWEEP_EVERY_S = 10.0
LATE_ANSWER_S = 5.0
"""An answer after this time, perhaps to a repeated request, ends an outage, as one after a failure does."""
MARGIN_S = 30.0
"""How much longer than the transaction timeout an offset must stall before the transaction counts as abandoned."""


class StalledOffsets:
    """How long the last stable offset of each bucket has stalled before later events. Times in seconds of one clock."""

    def __init__(self) -> None:
        self._since: dict[Bucket, tuple[int, float]] = {}

    def longest_s(self, stable: Mapping[Bucket, int], ends: Mapping[Bucket, int], now_s: float) -> float:
        """Record the current offsets; return the longest stall."""
        blocked = {bucket: offset for bucket, offset in stable.items() if offset < ends[bucket]}
        self._since = {
            bucket: before
            if (before := self._since.get(bucket)) is not None and before[0] == offset
            else (offset, now_s)
            for bucket, offset in blocked.items()
        }
        return max((now_s - since_s for _, since_s in self._since.values()), default=0.0)


class TransactionSweeper:
    """Aborts open transactions of a processor's vanished workers. One thread.

    Args:
        processor: the processor.
        bus: contains its outputs.
        worker: the name of the sweeping worker.
        outputs: the categories that the processor writes in transactions.
        limit_s: the transaction timeout.
        is_settled: returns whether the sweeping worker reads all of its buckets, so that it needs no positions of the group.
        abort_open_transaction: opens and closes a writer with the transactional id of a worker.
        clock: the clock; the machine's by default.
    """

    def __init__(
        self,
        processor: type[Processor],
        bus: Bus,
        worker: str,
        outputs: Sequence[str],
        *,
        limit_s: float,
        is_settled: Callable[[], bool],
        abort_open_transaction: Callable[[str], None],
        clock: MachineClock | None = None,
    ) -> None:
        self._processor = processor
        self._bus = bus
        self._worker = worker
        self._outputs = outputs
        self._limit_s = limit_s + MARGIN_S
        self._is_settled = is_settled
        self._abort_open_transaction = abort_open_transaction
        self._clock = clock or SystemClock()
        self._outages = OutageTracker()
        self._stalled = StalledOffsets()
        self._swept: set[str] = set()

    def sweep(self) -> None:
        """Check the outputs once, and abort the open transactions of silent workers if readers wait for one.

        Raises:
            BusError: the bus does not answer; sweep again later.
        """
        try:
            self._sweep()
        except BusError:
            self._outages.note_failure()
            raise

    def _sweep(self) -> None:
        asked_s = self._clock.monotonic_s()
        stable, ends = self._offsets(self._bus.catalog.stable_ends), self._offsets(self._bus.catalog.ends)
        if self._clock.monotonic_s() - asked_s > LATE_ANSWER_S:
            self._outages.note_failure()
        self._outages.note_answer(self._clock.now_ms())
        # A bucket without a stable offset was created between the two requests, so it has no old transaction.
        stalled_s = self._stalled.longest_s(stable, {**stable, **ends}, self._clock.monotonic_s())
        if stalled_s < self._limit_s and self._are_positions_decided():
            self._swept.clear()
            return
        silent_s = self._silent_s()
        for worker in sorted(name for name, seconds in silent_s.items() if seconds > SILENT_AFTER_S):
            if worker not in self._swept:
                self._abort_open_transaction(worker)
                self._swept.add(worker)
                self._log_aborted(worker, silent_s[worker])

    def _are_positions_decided(self) -> bool:
        """Return whether the group's positions can be read, which waits long enough for transactions of live workers.

        A transaction without outputs leaves nothing open but positions. Only a worker that waits for them asks: the outputs have just
        answered, so a failure is no outage.
        """
        if self._is_settled():
            return True
        try:
            for category in plan_of(self._processor).inputs:
                self._bus.catalog.positions(self._processor.name, category.name)
        except BusUnreachable as error:
            _LOG.info("%s", error)
            return False
        return True

    def _silent_s(self) -> dict[str, float]:
        """Return for how long each other worker of the processor has not reported although the bus answered."""
        heard, now_ms = last_reports_ms(self._bus, self._processor.name), self._clock.now_ms()
        return {
            name: self._outages.last.silent_s(at_ms, now_ms) for name, at_ms in heard.items() if name != self._worker
        }

    def _log_aborted(self, worker: str, silent_s: float) -> None:
        _LOG.warning(
            "%s: readers of its outputs, or its workers, waited for an open transaction. It may belong to worker %s, which has not reported for %.0f s. That "
            "worker's open transaction was aborted; the owners of its buckets process those events again.",
            self._processor.name,
            worker,
            silent_s,
        )

    def _offsets(self, request: Callable[[str], Mapping[int, int]]) -> dict[Bucket, int]:
        found: dict[Bucket, int] = {}
        for category in self._outputs:
            try:
                found |= {Bucket(category, number): offset for number, offset in request(category).items()}
            except MissingCategory:
                _LOG.info("%s is not on the bus.", category)
        return found


@contextmanager
def sweeping(sweeper: TransactionSweeper | None) -> Iterator[None]:
    """Sweep repeatedly in a thread during the block. Without a sweeper, do nothing."""
    if sweeper is None:
        yield
        return

    def sweep_until_closed() -> None:
        while not thread.wait(SWEEP_EVERY_S):
            try:
                sweeper.sweep()
            except BusError as error:
                _LOG.info("Open transactions cannot be found until the bus answers: %s", error)

    thread = BackgroundThread("sweeping", sweep_until_closed)
    thread.start()
    try:
        yield
    finally:
        thread.close(0.0)  # an unreachable bus does not delay the end of the worker
