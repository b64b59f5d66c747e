"""How far the answers of the query server are behind the events.

Kafka, workers' reports --Observer, every 2 s--> backlog of the processors before the results
ends of the categories --------every 2 s--> results that this server has not read
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from ....processors import PenstockError, RetryingThread
from ....transport import Bus
from ...shell import SystemClock
from ...status import Observer, ProcessorState, ProcessorStatus
from .answers import AsOf
from .follower import NotReady, ResultFollower
from .served import ServedProcessor

_LOG = logging.getLogger("penstock.serve")
POLL_EVERY_S = 2.0


class FreshnessReader:
    """Measures how far answers are behind, in a thread of its own. Start it once; close it.

    Args:
        follower: reads the results.
        bus: the bus of the processors.
        open_observer: opens the observer of all processors of the app.
    """

    def __init__(self, follower: ResultFollower, bus: Bus, open_observer: Callable[[], Observer]) -> None:
        self._follower = follower
        self._bus = bus
        self._open_observer = open_observer
        self._clock = SystemClock()
        self._latest: dict[str, AsOf] = {}
        self._observer: Observer | None = None
        self._thread = RetryingThread(
            "freshness",
            self._measure,
            log=_LOG,
            consequence="The lag is not known; answers show when it was measured last.",
            failed=self._mark,
            every_s=POLL_EVERY_S,
        )

    def start(self) -> None:
        """Start measuring."""
        self._thread.start()

    def close(self) -> None:
        """Stop measuring."""
        self._thread.close()
        if self._observer is not None:
            with suppress(PenstockError):
                self._observer.close()

    def as_of(self, name: str) -> AsOf:
        """Return the last measurement for a processor.

        Raises:
            NotReady: there is none yet.
        """
        found = self._latest.get(name)
        if found is None:
            raise NotReady("This server cannot answer yet, because it has not measured the lag. Ask again in a second.")
        return found

    def _measure(self) -> None:
        self._observer = self._observer or self._open_observer()
        cluster = self._observer.observe()
        statuses = {status.node.name: status for status in cluster.processors}
        for served in self._follower.served.values():
            self._latest[served.name] = self._of(served, statuses, cluster.at_ms)

    def _mark(self, problem: str) -> None:
        """Keep the last figures and their time, with the reason why there are no newer ones."""
        for name in self._follower.served:
            last = self._latest.get(name, AsOf(self._clock.now_ms()))
            self._latest[name] = msgspec.structs.replace(last, problem=problem)

    def _of(self, served: ServedProcessor, statuses: dict[str, ProcessorStatus], at_ms: int) -> AsOf:
        before = [statuses[name] for name in sorted(served.upstream) if name in statuses]
        own = statuses.get(served.source.name)
        is_known = len(before) == len(served.upstream)
        return AsOf(
            at_ms,
            None if own is None else _state(own.state),
            _sum(status.backlog_events for status in before) if is_known else None,
            _largest(status.lag_s for status in before) if is_known else None,
            self._unread(served.name),
            None if own is None else own.low_watermark_ms,
            self._follower.problem,
        )

    def _unread(self, name: str) -> int | None:
        try:
            positions = self._follower.positions(name)
        except NotReady:
            return None
        ends = self._bus.catalog.ends_of(positions)
        return sum(max(0, end - positions[bucket]) for bucket, end in ends.items())


def _state(state: ProcessorState) -> str:
    return state.value


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


def _largest(lags: Iterable[float | None]) -> float | None:
    known = list(lags)
    return None if None in known else max((lag or 0.0 for lag in known), default=0.0)
