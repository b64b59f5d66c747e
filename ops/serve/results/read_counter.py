"""Counts the queries that a server answers, for each processor.

answered query --count--> memory --every minute, and at the end--> penstock.reads
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from threading import Lock

from ....processors import BackgroundThread, PenstockError
from ....transport import Bus
from ....transport.tables import ServerReads, reads_on, write_reads
from ...shell import MachineClock, SystemClock

_LOG = logging.getLogger("penstock.serve")
SAVE_EVERY_S = 60.0
RETRY_S = 10.0
"""The pause before a failed first save is tried again."""


class ReadCounter:
    """Counts and saves the reads of one server. A crash loses at most those of the last minute. Start it once; close it.

    Args:
        bus: the bus of the processors.
        server: names the server; after a restart, it has the same name.
        processors: the processors that it serves.
        clock: the wall clock.
    """

    def __init__(self, bus: Bus, server: str, processors: Iterable[str], clock: MachineClock | None = None) -> None:
        self._bus = bus
        self._server = server
        self._clock = clock or SystemClock()
        now_ms = self._clock.now_ms()
        self._reads = {name: ServerReads(now_ms) for name in processors}
        self._new = dict.fromkeys(self._reads, 0)
        self._last_ms: dict[str, int] = {}
        self._is_loaded = False
        self._has_failed = False
        self._lock = Lock()
        self._thread = BackgroundThread("reads", self._run)

    def start(self) -> None:
        """Start to save."""
        self._thread.start()

    def count(self, processor: str) -> None:
        """Count an answered query. Any thread."""
        with self._lock:
            self._new[processor] += 1
            self._last_ms[processor] = self._clock.now_ms()

    def close(self) -> None:
        """Save, and stop."""
        self._thread.close()

    def _run(self) -> None:
        self._try_to_save()
        while not self._thread.wait(SAVE_EVERY_S if self._is_loaded else RETRY_S):
            self._try_to_save()
        self._try_to_save()

    def _try_to_save(self) -> None:
        try:
            self.save()
            self._has_failed = False
        except PenstockError as error:
            if not self._has_failed:  # queries are answered without it, so one line is enough
                _LOG.warning("The number of reads was not saved, and is saved as soon as Kafka accepts it. %s", error)
            self._has_failed = True

    def save(self) -> None:
        """Save the reads since the last time. At first, continue the counts of an earlier run.

        Raises:
            BusError: the bus does not answer; nothing was forgotten.
        """
        is_first = not self._is_loaded
        if is_first:
            saved = reads_on(self._bus)
            earlier = {name: saved[name].servers.get(self._server) for name in self._reads if name in saved}
            self._reads |= {name: reads for name, reads in earlier.items() if reads is not None}
        with self._lock:
            new = {name: reads for name, reads in self._new.items() if reads or is_first}
            last_ms = dict(self._last_ms)
        changed = {
            name: ServerReads(before.since_ms, before.reads + reads, last_ms.get(name, before.last_ms))
            for name, reads in new.items()
            for before in [self._reads[name]]
        }
        if changed:
            write_reads(self._bus, self._server, changed)
        self._is_loaded = True
        self._reads |= changed
        with self._lock:
            for name, reads in new.items():
                self._new[name] -= reads
