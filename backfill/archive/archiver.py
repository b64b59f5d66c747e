"""The archiver: categories from the bus into the warehouse, as they fill.

It turns from category to category; each keeps its own place on the bus and its own open segments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from ...processors.declare.categories import AnyCategory
from ...processors.errors import DeclarationError
from ...processors.retry import Retry
from ...state.files.wrappers import RetryingFileStore
from ...transport.bus import Bus
from ...transport.elapsed import elapsed_s
from ...transport.messages import Bucket
from ..warehouse.layout import By
from ..warehouse.warehouse import Warehouse
from .category_archive import ArchiveMetrics, ArchiveOptions, CategoryArchive
from .completeness import LatenessAllowance

SEGMENT_EVENTS = 250_000
DEFAULT_PATIENCE = LatenessAllowance()
POLL_WAIT_S = 0.1
OUTAGE_LIMIT = timedelta(minutes=4)
"""Below Kafka's limit between two polls, so that the archiver keeps its buckets."""
RETRY_PAUSES_S = 0.25, 10.0
OUTAGE_ADVICE = (
    "No position was committed for events that are not in the warehouse, so none is lost. Start the archiver again: it continues from "
    "there, and archives every event once."
)


class Archiver:
    """Archives categories, each as the consumer group ``archiver.<category>``; several archivers share the buckets.

    Args:
        bus: where the categories are; all of them exist.
        categories: their declarations.
        warehouse: where the events go.
        segment_events: how many offsets of a bucket share a file name. Keep it for the life of a category.
        by: by which time events have their days. Chosen once for a category.
        patience: how long is waited for events until a day counts as complete.
        write_every: how long events may wait before they are written, in a file that is rewritten when it has grown.
        accept_gaps: go on where the bus has dropped events that were not archived, instead of refusing.
        outage_limit: how long a warehouse that does not answer is waited for.
        monotonic_s: tells when to write, and how long a bucket has been silent: seconds that count on while the machine sleeps.
        now_ms: tells when a day is marked (milliseconds since 1970, UTC).

    Raises:
        DeclarationError: a category whose records have no columns.
    """

    def __init__(
        self,
        bus: Bus,
        categories: Sequence[AnyCategory],
        warehouse: Warehouse,
        *,
        segment_events: int = SEGMENT_EVENTS,
        by: By = By.EVENT_TIME,
        patience: LatenessAllowance = DEFAULT_PATIENCE,
        write_every: timedelta = timedelta(minutes=5),
        accept_gaps: bool = False,
        outage_limit: timedelta = OUTAGE_LIMIT,
        monotonic_s: Callable[[], float] = elapsed_s,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if segment_events < 1:
            raise DeclarationError(f"A segment of {segment_events} events: it needs at least one.")
        self.tally = ArchiveMetrics()
        self._write_every_s = write_every.total_seconds()
        self._monotonic_s = monotonic_s
        self._written_s = monotonic_s()
        self._stopping = False
        self._idle = True
        manner = ArchiveOptions(segment_events, by, patience, accept_gaps, now_ms, monotonic_s)
        retry = Retry(outage_limit.total_seconds(), *RETRY_PAUSES_S, is_stopping=lambda: self._stopping)
        retrying = Warehouse(RetryingFileStore(warehouse.files, retry, OUTAGE_ADVICE))
        self._archives = [CategoryArchive(bus, category, retrying, manner, self.tally) for category in categories]

    def run(self, finished: Callable[[Archiver], bool] = lambda _: False) -> None:
        """Work until `stop` is called or `finished` says so, then write what is held and leave the groups."""
        try:
            while not self._stopping:
                if finished(self) and self.save():
                    break
                self.turn()
            else:
                self.save()
        except BaseException:
            for archive in self._archives:
                archive.abandon()
            raise
        for archive in self._archives:
            archive.close()

    def turn(self) -> None:
        """Poll every category once, and write what is held if that is due."""
        # Where something came last time, nobody waits: a quiet category must not hold up the others.
        wait_s = POLL_WAIT_S / len(self._archives) if self._idle else 0.0
        came = [archive.turn(wait_s) for archive in self._archives]
        self._idle = not any(came)
        if self._monotonic_s() - self._written_s >= self._write_every_s:
            self.save()

    def save(self) -> bool:
        """Write everything that is held, and commit the positions; return whether all of them are."""
        heard = [archive.listen() for archive in self._archives]
        saved = [archive.save() for archive in self._archives]
        self._written_s = self._monotonic_s()
        return all(heard) and all(saved)

    def stop(self) -> None:
        """Ask `run` to end after the turn it is in; may be called from a signal handler."""
        self._stopping = True

    def has_reached(self, targets: Mapping[Bucket, int]) -> bool:
        """Tell whether every bucket of every category is read up to its target; False while a category has none."""
        return all(archive.has_reached(targets) for archive in self._archives)
