"""A worker's reports: made in its own loop, so that a loop that hangs is one that says nothing."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread

import psutil

from ...processors.declare.processor import Processor
from ...processors.errors import PenstockError
from ...transport.bus import Bus
from ...transport.errors import BusError, BusUnreachable, DeliveryFailed
from ..clock import SystemClock
from ..monitoring.reports import (
    REPORT_INTERVAL_S,
    REPORTS,
    STOPPED,
    Counts,
    Report,
    ShardReport,
    node_of,
    report_message,
)
from .backups import WorkerBackups
from .health import DEPLOYMENT_VARIABLE
from .identity import Identity
from .open_shard import OpenShard
from .worker import Worker

_LOG = logging.getLogger("penstock.worker")
LAST_WORD_S = 5.0
"""How long a worker that ends waits until it is known that it has."""


class StatusReporter:
    """Tells the bus of one worker. One thread calls: look, any number of times; then close, once.

    Args:
        processor: what it runs.
        bus: where reports go; their category exists.
        identity: by which the worker is known.
        backups: what keeps copies of its states; None where nothing does.
    """

    def __init__(
        self, processor: type[Processor], bus: Bus, identity: Identity, backups: WorkerBackups | None = None
    ) -> None:
        self._node = node_of(processor)
        self._identity = identity
        self._started_ms = SystemClock().now_ms()
        self._backups = backups
        self._writer = bus.writer()
        self._process = psutil.Process()
        self._due_s = 0.0

    def look(self, worker: Worker) -> None:
        """Report, if it is time to; returns at once."""
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + REPORT_INTERVAL_S
            self._send(worker, "")

    @contextmanager
    def ending(self, worker: Worker) -> Iterator[None]:
        """Report, when the block ends, that the worker has ended, and why."""
        try:
            yield
        except (BusUnreachable, DeliveryFailed):
            raise  # who would have to be told by the bus that does not answer
        except (Exception, KeyboardInterrupt) as error:
            self._say_end(worker, str(error) if isinstance(error, PenstockError) else repr(error))
            raise
        self._say_end(worker, STOPPED)

    def _say_end(self, worker: Worker, why: str) -> None:
        self._send(worker, why)
        telling = Thread(target=self._flush, daemon=True)  # a bus that does not answer keeps nobody from ending
        telling.start()
        telling.join(LAST_WORD_S)

    def _flush(self) -> None:
        try:
            self._writer.flush()
        except BusError as error:
            _LOG.info("Nobody is told that this worker has ended: %s", error)

    def _send(self, worker: Worker, ended: str) -> None:
        try:
            self._writer.send(REPORTS.name, [report_message(self._report(worker, ended))])
        except BusError as error:
            _LOG.info("Nobody is told how this worker is doing: %s", error)

    def _report(self, worker: Worker, ended: str) -> Report:
        tally, ages = worker.metrics, self._backups.ages() if self._backups is not None else None
        of = {} if ages is None else ages.by_shard
        backups_s = {identity.bucket: age.seconds for identity, age in of.items() if age.exists}
        cpu = self._process.cpu_times()
        return Report(
            node=self._node,
            worker=self._identity.name,
            host=platform.node(),
            pid=os.getpid(),
            started_ms=self._started_ms,
            at_ms=SystemClock().now_ms(),
            shards=() if ended else tuple(_of_shard(shard, backups_s) for shard in worker.shards),
            counts=Counts(**{name: getattr(tally, name) for name in Counts.__struct_fields__}),
            last_checkpoint_ms=tally.saved_ms,
            checkpoint_duration_s=tally.saving_s,
            cpu_s=cpu.user + cpu.system,
            memory_bytes=self._process.memory_info().rss,
            restarts_ms=self._identity.restarts_ms,
            backup_interval_s=None if ages is None else ages.interval_s,
            deployment=os.environ.get(DEPLOYMENT_VARIABLE, ""),
            end_reason=ended,
        )

    def close(self) -> None:
        """Let go of the connection."""
        self._writer.close()


def _of_shard(shard: OpenShard, backups_s: Mapping[int, float]) -> ShardReport:
    return ShardReport(
        shard.number,
        dict(shard.position),
        shard.events_in,
        shard.events_out,
        shard.operator.time.low_ms,
        shard.catching_up,
        backups_s.get(shard.number),
    )
