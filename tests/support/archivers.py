"""Archiver processes that stop in the middle of their work, as a machine that sleeps does."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import penstock as ps
from penstock.backfill.archive.archiver import Archiver
from penstock.backfill.warehouse.layout import Note, Stored, StoredFile
from penstock.backfill.warehouse.protocols import LocalWarehouse
from penstock.ops.cli.signals import stopping_on_signals
from penstock.transport.kafka import KafkaBus, KafkaSettings

from .victims import HASTY, forking

SEGMENT = 50


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    sensor: str
    at: ps.EventTime
    value: int


def readings_of(name: str) -> ps.Category[Reading]:
    """Return the declaration of a category of readings."""
    return ps.Category(name, Reading, key="sensor", event_time="at", buckets=1)


class SleepyWarehouse(LocalWarehouse):
    """A folder whose user is stopped (SIGSTOP), once, right before it writes a kind of file.

    Args:
        root: the folder.
        before: the kind of file; None for never.
    """

    def __init__(self, root: Path, before: type[Stored] | None) -> None:
        super().__init__(root)
        self._before = before

    def write(self, file: Stored, content: bytes) -> None:
        """Store a file."""
        is_time = isinstance(file, StoredFile) if self._before is StoredFile else isinstance(file, Note) and self._wrote
        if self._before is not None and is_time:
            self._before = None
            os.kill(os.getpid(), signal.SIGSTOP)
        self._wrote = self._wrote or isinstance(file, StoredFile)
        super().write(file, content)

    _wrote = False


def start(kafka: str, category: str, folder: Path, before: type[Stored] | None = None) -> ForkServerProcess:
    """Start an archiver of a category in a process of its own. SIGTERM ends it."""
    process = forking().Process(target=_archive, args=(kafka, category, folder, before))
    process.start()
    return process


def _archive(kafka: str, category: str, folder: Path, before: type[Stored] | None) -> None:
    bus = KafkaBus(KafkaSettings(kafka, HASTY))
    warehouse = SleepyWarehouse(folder, before)
    archiver = Archiver(
        bus, [readings_of(category)], warehouse, segment_events=SEGMENT, write_every=timedelta(milliseconds=200)
    )
    with stopping_on_signals(archiver.stop):
        archiver.run()
