"""Status reports of a worker. The loop sends them, so a hanging loop sends none, unless it hangs in a call, a checkpoint or the processor's code."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread, get_ident

import psutil
from msgspec.structs import replace

from ....processors import Counts, PenstockError, busy_line
from ....processors.declare import Processor
from ....state.local import RocksShardState
from ....transport import Bus, BusError, BusUnreachable, DeliveryFailed
from ...shell import SystemClock
from ..loop import Worker
from ..shards import OpenShard, WorkerBackups
from ..telemetry import (
    DEPLOYMENT_VARIABLE,
    OWN_CODE,
    REPORT_INTERVAL_S,
    REPORTS,
    STOPPED,
    HotKey,
    Report,
    ShardReport,
    Wait,
    free_share,
    node_of,
    report_message,
)
from .identity import Identity

_LOG = logging.getLogger("penstock.worker")
CLOSE_LIMIT_S = 5.0
"""How long an ending worker waits for the bus to accept its last report."""


class StatusReporter:
    """Reports the status of one worker on the bus. One thread, except for `report_wait`; close it once.

    Args:
        processor: the worker's processor.
        bus: receives the reports; their category exists.
        identity: the worker's identity.
        folder: contains its states.
        backups: the backups of its states; None without backups.
        until_end: whether it stops at the end of its input.
    """

    def __init__(
        self,
        processor: type[Processor],
        bus: Bus,
        identity: Identity,
        folder: Path,
        backups: WorkerBackups | None = None,
        *,
        until_end: bool = False,
    ) -> None:
        self._until_end = until_end
        self._node = node_of(processor)
        self._identity = identity
        self._folder = folder
        self._started_ms = SystemClock().now_ms()
        self._backups = backups
        self._writer = bus.writer()
        self._process = psutil.Process()
        self._due_s = 0.0
        self._last: Report | None = None
        self._lock = Lock()
        """Guards the two above."""
        self._loop = 0
        self._reported_s = time.monotonic()
        """When the loop has reported last."""
        self._caller: str | None = None
        """The line of user code that runs the loop, if any."""

    def report_start(self, worker: Worker) -> None:
        """Report a run to the end of its input before its first turn: runs behind it that start at the same time wait for it."""
        if self._until_end:
            self._send(self._report(worker, ""))
            self._due_s = 0.0  # the next one has its buckets

    def add_opened(self, shard: OpenShard) -> None:
        """Add an opened shard to the report that `report_wait` repeats: during a long first batch, it would seem to have no owner."""
        with self._lock:
            if self._last is not None:
                others = (other for other in self._last.shards if other.bucket != shard.number)
                self._last = replace(self._last, shards=(*others, _shard_report(shard, {}, None)))

    def report_if_due(self, worker: Worker) -> None:
        """Send a report if one is due; return at once."""
        self._loop, self._reported_s = get_ident(), time.monotonic()
        if self._reported_s >= self._due_s:
            self._caller = busy_line(self._loop)
            self._send(self._report(worker, ""))

    def report_wait(self, worker: Worker) -> None:
        """Repeat the last report while the loop waits in one call, with the reason. Any thread; return at once.

        The reasons are a service, the processor's code, and, in a run that others wait for, a checkpoint. A loop that hangs elsewhere is silent,
        so that nothing is sent during an outage of the bus.
        """
        last, saving_s = self._last, worker.metrics.checkpoint_running_s()
        if last is None or last.end_reason or time.monotonic() < self._due_s + REPORT_INTERVAL_S:
            return
        wait = worker.wait or self._wait_for_code()
        if wait is None and (saving_s is None or not self._until_end):
            return
        at_ms, (name, seconds) = SystemClock().now_ms(), wait or ("", 0.0)
        self._send(replace(last, at_ms=at_ms, waits_for=name, waits_s=seconds, checkpoint_running_s=saving_s), last)

    def _wait_for_code(self) -> Wait | None:
        line = busy_line(self._loop)
        if line is None or line == self._caller:
            return None
        place, _, _ = line.partition(": ")  # without the code, which may contain a value
        return Wait(f"{OWN_CODE}, {place}", time.monotonic() - self._reported_s)

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
        self._send(self._report(worker, reason))
        flushing = Thread(target=self._flush, daemon=True)  # an unreachable bus does not delay the end of the worker
        flushing.start()
        flushing.join(CLOSE_LIMIT_S)

    def _flush(self) -> None:
        try:
            self._writer.flush()
        except BusError as error:
            _LOG.info("The end of this worker is not reported: %s", error)

    def _send(self, report: Report, repeats: Report | None = None) -> None:
        """Send a report, unless it repeats one that is not the last one any more."""
        try:
            with self._lock:
                if repeats is not None and repeats is not self._last:
                    return
                self._last, self._due_s = report, time.monotonic() + REPORT_INTERVAL_S
                self._writer.send(REPORTS.name, [report_message(report)])
        except BusError as error:
            _LOG.info("The status of this worker is not reported: %s", error)

    def _report(self, worker: Worker, ended: str) -> Report:
        metrics, ages = worker.metrics, self._backups.ages() if self._backups is not None else None
        by_state = {} if ages is None else ages.by_shard
        backups_s = {identity.bucket: age.seconds for identity, age in by_state.items()}
        cpu, (waits_for, waits_s) = self._process.cpu_times(), worker.wait or ("", 0.0)
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
            checkpoint_running_s=metrics.checkpoint_running_s(),
            cpu_s=cpu.user + cpu.system,
            idle_s=metrics.loop.idle_s,
            blocked_s=metrics.loop.blocked_s,
            memory_bytes=self._process.memory_info().rss,
            restarts_ms=self._identity.restarts_ms,
            disk_free_share=free_share(self._folder),
            backup_interval_s=None if ages is None else ages.interval_s,
            backup_outage_s=None if ages is None else ages.outage_s,
            deployment=os.environ.get(DEPLOYMENT_VARIABLE, ""),
            end_reason=ended,
            table=None if metrics.lookups is None else metrics.lookups.table,
            standby_shards=None if metrics.standby_shards is None else metrics.standby_shards(),
            waits_for=waits_for,
            waits_s=waits_s,
            until_end=self._until_end,
        )

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def _shard_report(shard: OpenShard, backups_s: Mapping[int, float], hot_key: HotKey | None) -> ShardReport:
    key, share = hot_key or ("", None)
    return ShardReport(
        bucket=shard.number,
        position=dict(shard.position),
        events_in=shard.events_in,
        events_out=shard.events_out,
        low_ms=shard.operator.time.low_ms,
        catching_up=shard.catching_up,
        backup_age_s=backups_s.get(shard.number),
        retries=shard.in_flight.events,
        hot_key=key,
        hot_key_share=share,
        state_bytes=shard.state.size_bytes() if isinstance(shard.state, RocksShardState) else None,
    )
