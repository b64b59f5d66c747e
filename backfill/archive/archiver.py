"""The archiver, which copies categories from the bus into the warehouse.

It serves the categories in turn. Each has its own position on the bus and its own open segments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from ...processors import BackgroundThread, CallRetry, DeclarationError, counted
from ...processors.declare import AnyCategory
from ...state.files import RetryingFileStore
from ...transport import Bucket, Bus, elapsed_s
from ..warehouse import DayOf, Warehouse
from .archive_options import ArchiveMetrics, ArchiveOptions
from .category_archive import CategoryArchive
from .completeness import LatenessAllowance

SEGMENT_EVENTS = 250_000
DEFAULT_PATIENCE = LatenessAllowance()
POLL_WAIT_S = 0.1
OUTAGE_LIMIT = timedelta(minutes=4)
"""Below Kafka's limit between two polls, so that the archiver keeps its buckets."""
RETRY_PAUSES_S = 0.25, 10.0
LOOK_EVERY_S = 1.0
"""How often a thread looks whether the warehouse hangs."""
OUTAGE_ADVICE = (
    "Committed positions cover only events in the warehouse, so no event is lost. Start the archiver again: it continues from "
    "there, and archives every event once."
)


class Archiver:
    """Archives categories, each as the consumer group ``archiver.<category>``. Several archivers share the buckets.

    Args:
        bus: the bus; all categories exist on it.
        categories: their declarations.
        warehouse: the destination.
        segment_events: the number of offsets of a bucket in a segment. It is fixed for a category.
        by: the time that assigns events to days; chosen once for a category.
        patience: how long a day stays open for late events.
        write_every: the greatest delay before events are written. A file that has grown is rewritten.
        accept_gaps: continue when the bus has dropped events that were not archived, instead of failing.
        outage_limit: how long to retry an unreachable warehouse.
        monotonic_s: seconds for write intervals and bucket idleness; they include the machine's sleep.
        now_ms: the time at which days are marked complete (milliseconds since 1970, UTC).

    Raises:
        DeclarationError: the records of a category have no columns.
    """

    def __init__(
        self,
        bus: Bus,
        categories: Sequence[AnyCategory],
        warehouse: Warehouse,
        *,
        segment_events: int = SEGMENT_EVENTS,
        by: DayOf = DayOf.EVENT_TIME,
        patience: LatenessAllowance = DEFAULT_PATIENCE,
        write_every: timedelta = timedelta(minutes=5),
        accept_gaps: bool = False,
        outage_limit: timedelta = OUTAGE_LIMIT,
        monotonic_s: Callable[[], float] = elapsed_s,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if segment_events < 1:
            raise DeclarationError(f"A segment cannot have {counted(segment_events, 'event')}. Use 1 or more.")
        self.metrics = ArchiveMetrics()
        self._write_every_s = write_every.total_seconds()
        self._monotonic_s = monotonic_s
        self._written_s = monotonic_s()
        self._stopping = False
        self._idle = True
        options = ArchiveOptions(segment_events, by, patience, accept_gaps, now_ms, monotonic_s)
        retry = CallRetry(outage_limit.total_seconds(), *RETRY_PAUSES_S, is_stopping=lambda: self._stopping)
        self._files = RetryingFileStore(warehouse.files, retry, OUTAGE_ADVICE)
        retrying = Warehouse(self._files)
        self._archives = [CategoryArchive(bus, category, retrying, options, self.metrics) for category in categories]

    def run(self, finished: Callable[[Archiver], bool] = lambda _: False) -> None:
        """Archive until `stop` is called or `finished` returns True. Then write all events and leave the groups."""
        watch = BackgroundThread("archiver-waits", lambda: self._log_waits(watch))
        watch.start()
        try:
            self._run(finished)
        finally:
            watch.close()

    def _log_waits(self, thread: BackgroundThread) -> None:
        while not thread.wait(LOOK_EVERY_S):
            self._files.log_wait()

    def _run(self, finished: Callable[[Archiver], bool]) -> None:
        try:
            while not self._stopping:
                if finished(self) and self.save():
                    break
                self.run_once()
            else:
                self.save()
        except BaseException:
            for archive in self._archives:
                archive.abandon()
            raise
        for archive in self._archives:
            archive.close()

    def run_once(self) -> None:
        """Poll every category once, and write events when due."""
        # Wait only if the last turn was idle: a quiet category must not delay the others.
        wait_s = POLL_WAIT_S / len(self._archives) if self._idle else 0.0
        received = [archive.run_once(wait_s) for archive in self._archives]
        self._idle = not any(received)
        if self._monotonic_s() - self._written_s >= self._write_every_s:
            self.save()

    def save(self) -> bool:
        """Write all events and commit the positions. Return whether all positions are committed."""
        refreshed = [archive.refresh_idle() for archive in self._archives]
        saved = [archive.save() for archive in self._archives]
        self._written_s = self._monotonic_s()
        return all(refreshed) and all(saved)

    def stop(self) -> None:
        """Ask `run` to end after the current turn. Safe in a signal handler."""
        self._stopping = True

    def has_reached(self, targets: Mapping[Bucket, int]) -> bool:
        """Return whether every bucket of every category is read up to its target. False while a category has no buckets."""
        return all(archive.has_reached(targets) for archive in self._archives)
