"""Archiver processes that stop in the middle of a write, like a machine that sleeps."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import penstock as ps
from penstock.backfill.archive import Archiver
from penstock.backfill.warehouse import ArchivedFile, Warehouse
from penstock.backfill.warehouse.layout import Stored
from penstock.ops.shell import stop_on_signals
from penstock.state.files import LocalFileStore
from penstock.transport.kafka import KafkaBus, KafkaSettings

from .victims import SHORT_TIMEOUTS, fork_server

SEGMENT = 50


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    sensor: str
    at: ps.EventTime
    value: int


def readings_of(name: str) -> ps.Category[Reading]:
    """Return the declaration of a category of readings."""
    return ps.Category(name, Reading, key="sensor", event_time="at", buckets=1)


class SleepyFiles(LocalFileStore):
    """A folder that stops its process (SIGSTOP) once, before the process writes a kind of file.

    Args:
        root: the folder.
        before: the kind of file; None for never.
    """

    def __init__(self, root: Path, before: type[Stored] | None) -> None:
        super().__init__(root)
        self._before = before

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file."""
        is_events = path.endswith(".parquet")
        is_time = is_events if self._before is ArchivedFile else self._wrote and not is_events
        if self._before is not None and is_time:
            self._before = None
            os.kill(os.getpid(), signal.SIGSTOP)
        self._wrote = self._wrote or is_events
        super().write(path, chunks)

    _wrote = False


def start(kafka: str, category: str, folder: Path, before: type[Stored] | None = None) -> ForkServerProcess:
    """Start an archiver of a category in its own process. SIGTERM ends it."""
    process = fork_server().Process(target=_archive, args=(kafka, category, folder, before))
    process.start()
    return process


def _archive(kafka: str, category: str, folder: Path, before: type[Stored] | None) -> None:
    bus = KafkaBus(KafkaSettings(kafka, SHORT_TIMEOUTS))
    warehouse = Warehouse(SleepyFiles(folder, before))
    archiver = Archiver(
        bus, [readings_of(category)], warehouse, segment_events=SEGMENT, write_every=timedelta(milliseconds=200)
    )
    with stop_on_signals(archiver.stop):
        archiver.run()
