"""Status reports of a worker. The loop sends them, so a hanging loop sends none."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import psutil

from ...processors.declare.processor import Processor
from ...processors.errors import PenstockError
from ...state.local.rocksdb import RocksShardState
from ...transport.bus import Bus
from ...transport.errors import BusError, BusUnreachable, DeliveryFailed
from ..clock import SystemClock
from ..monitoring.disk import free_share
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
from .hot_keys import HotKey
from .identity import Identity
from .open_shard import OpenShard
from .worker import Worker

_LOG = logging.getLogger("penstock.worker")
CLOSE_LIMIT_S = 5.0
"""How long an ending worker waits for the bus to accept its last report."""


class StatusReporter:
    """Reports the status of one worker on the bus. One thread; close it once.

    Args:
        processor: the worker's processor.
        bus: receives the reports; their category exists.
        identity: the worker's identity.
        folder: contains its states.
        backups: the backups of its states; None without backups.
    """

    def __init__(
        self,
        processor: type[Processor],
        bus: Bus,
        identity: Identity,
        folder: Path,
        backups: WorkerBackups | None = None,
    ) -> None:
        self._node = node_of(processor)
        self._identity = identity
        self._folder = folder
        self._started_ms = SystemClock().now_ms()
        self._backups = backups
        self._writer = bus.writer()
        self._process = psutil.Process()
        self._due_s = 0.0

    def report_if_due(self, worker: Worker) -> None:
        """Send a report if one is due; return at once."""
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + REPORT_INTERVAL_S
            self._send(worker, "")

    @contextmanager
    def reporting_end(self, worker: Worker) -> Iterator[None]:
        """Report the end of the worker and its reason when the block ends."""
        try:
            yield
        except (BusUnreachable, DeliveryFailed):
            raise  # the bus could not accept the report
        except (Exception, KeyboardInterrupt) as error:
            self._report_end(worker, str(error) if isinstance(error, PenstockError) else repr(error))
            raise
        self._report_end(worker, STOPPED)

    def _report_end(self, worker: Worker, reason: str) -> None:
        self._send(worker, reason)
        flushing = Thread(target=self._flush, daemon=True)  # an unreachable bus does not delay the end of the worker
        flushing.start()
        flushing.join(CLOSE_LIMIT_S)

    def _flush(self) -> None:
        try:
            self._writer.flush()
        except BusError as error:
            _LOG.info("The end of this worker is not reported: %s", error)

    def _send(self, worker: Worker, ended: str) -> None:
        try:
            self._writer.send(REPORTS.name, [report_message(self._report(worker, ended))])
        except BusError as error:
            _LOG.info("The status of this worker is not reported: %s", error)

    def _report(self, worker: Worker, ended: str) -> Report:
        metrics, ages = worker.metrics, self._backups.ages() if self._backups is not None else None
        by_state = {} if ages is None else ages.by_shard
        backups_s = {identity.bucket: age.seconds for identity, age in by_state.items() if age.exists}
        cpu = self._process.cpu_times()
        return Report(
            node=self._node,
            worker=self._identity.name,
            host=platform.node(),
            pid=os.getpid(),
            started_ms=self._started_ms,
            at_ms=SystemClock().now_ms(),
            shards=()
            if ended
            else tuple(_shard_report(shard, backups_s, worker.hot_key(shard.number)) for shard in worker.shards),
            counts=Counts(**{name: getattr(metrics, name) for name in Counts.__struct_fields__}),
            last_checkpoint_ms=metrics.saved_ms,
            checkpoint_duration_s=metrics.saving_s,
            cpu_s=cpu.user + cpu.system,
            idle_s=metrics.loop.idle_s,
            blocked_s=metrics.loop.blocked_s,
            memory_bytes=self._process.memory_info().rss,
            restarts_ms=self._identity.restarts_ms,
            disk_free_share=free_share(self._folder),
            backup_interval_s=None if ages is None else ages.interval_s,
            deployment=os.environ.get(DEPLOYMENT_VARIABLE, ""),
            end_reason=ended,
            table=None if metrics.lookups is None else metrics.lookups.table,
            standby_shards=None if metrics.standby is None else metrics.standby.current,
        )

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def _shard_report(shard: OpenShard, backups_s: Mapping[int, float], hot_key: HotKey | None) -> ShardReport:
    return ShardReport(
        shard.number,
        dict(shard.position),
        shard.events_in,
        shard.events_out,
        shard.operator.time.low_ms,
        shard.catching_up,
        backups_s.get(shard.number),
        shard.in_flight.events,
        *(hot_key or ("", 0.0)),
        shard.state.size_bytes() if isinstance(shard.state, RocksShardState) else None,
    )
