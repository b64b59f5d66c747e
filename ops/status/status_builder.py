"""The status of one processor, built from reports, watermarks and figures from Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from ...processors.time import NEVER_MS
from ...transport import OpenTransaction, Position
from ...transport.tables import WatermarkOwner, WatermarkStatement
from ..deploy import DeployedProcessor, crash_loop_since
from ..kernel import SILENT_AFTER_S, Node, Outage, Report, ReportInterval, ShardReport
from .bus_figures import BusFigures
from .status import ProcessorStatus, ShardStatus, WorkerStatus

HOUR_MS = 3_600_000


def processor_status(
    node: Node,
    now_ms: int,
    intervals: Sequence[ReportInterval],
    figures: BusFigures,
    watermarks: Mapping[WatermarkOwner, WatermarkStatement],
    *,
    deployed: DeployedProcessor | None,
    outage: Outage,
) -> ProcessorStatus:
    """Return the status of a processor.

    Args:
        node: the processor.
        now_ms: the current time (milliseconds since 1970, UTC).
        intervals: the report intervals of its workers.
        figures: the figures from Kafka.
        watermarks: the newest published watermarks of all processors.
        deployed: its deployment on this machine; None if it is not deployed here.
        outage: the last outage of Kafka.
    """
    unread: dict[int, list[Position]] = {}
    for position in figures.unread_positions(node):
        unread.setdefault(position.bucket.number, []).append(position)
    recreated = tuple(figures.recreated.get(node.name, ()))
    is_backlog_known = (
        figures.has_positions(node) and not recreated
    )  # otherwise, the positions are those of another topic
    recent = [interval for interval in intervals if interval.silent_s(now_ms, outage) < SILENT_AFTER_S]
    shards = tuple(
        _shard_status(
            bucket,
            now_ms,
            _OwnerReport.of(bucket, intervals, recent),
            _Backlog.of(unread.get(bucket, []), figures) if is_backlog_known else _UNKNOWN_BACKLOG,
            watermarks.get((node.name, bucket)),
        )
        for bucket in range(figures.shard_count(node))
    )
    return ProcessorStatus(
        node,
        now_ms,
        shards,
        tuple(_worker_status(interval, now_ms, outage) for interval in intervals),
        figures.dead_letters(node),
        failed_queries=tuple(map(str, figures.failed.get(node.name, ()))),
        recreated_inputs=recreated,
        deleted_outputs=tuple(name for name in node.local_outputs if name not in figures.existing),
        deployed=deployed,
        is_registered=None if figures.registered is None else node.name in figures.registered,
        unread=_unread_events(node, figures),
    )


def _unread_events(node: Node, figures: BusFigures) -> dict[str, int]:
    """Return the number of unread events by input, where it is known."""
    unread = {name: 0 for name in node.inputs if (node.name, name) in figures.committed}
    for position in figures.unread_positions(node):
        name, number = position.bucket
        unread[name] += figures.categories[name].ends[number] - (position.offset or 0)
    return unread


class _OwnerReport(NamedTuple):
    """The report of a shard by its owner.

    Args:
        owner: the worker; empty if no worker reports the shard.
        shard: its report of the shard; None without an owner.
        events_in_per_s: events read per second.
        events_out_per_s: records written per second.
        event_bytes: the mean size of the processor's recent events; None if unknown.
    """

    owner: str
    shard: ShardReport | None
    events_in_per_s: float
    events_out_per_s: float
    event_bytes: float | None

    @staticmethod
    def of(bucket: int, intervals: Sequence[ReportInterval], recent: Sequence[ReportInterval]) -> _OwnerReport:
        for interval in sorted(recent, key=lambda interval: -interval.arrived_ms):
            for shard in interval.last.shards:
                if shard.bucket == bucket:
                    events_in_per_s = interval.shard_rate(bucket, lambda report: report.events_in)
                    events_out_per_s = interval.shard_rate(bucket, lambda report: report.events_out)
                    return _OwnerReport(
                        interval.last.worker, shard, events_in_per_s, events_out_per_s, _event_bytes(intervals)
                    )
        return _OwnerReport("", None, 0.0, 0.0, _event_bytes(intervals))


def _event_bytes(intervals: Sequence[ReportInterval]) -> float | None:
    """Return the mean size of the events that the workers have read."""
    events = sum(interval.last.counts.events_in for interval in intervals)
    return sum(interval.last.counts.bytes_in for interval in intervals) / events if events else None


class _Backlog(NamedTuple):
    """The backlog of a shard.

    Args:
        events: its number of events; None if unknown.
        arrived_ms: the arrival of its oldest event (milliseconds since 1970, UTC); None without a readable event.
        expires_ms: the time from which Kafka may delete an event of it; None if it never does.
        is_timed: whether the arrival is known, or no event is readable.
        blocked_by: the open transaction that its reader waits for; None without one.
    """

    events: int | None
    arrived_ms: int | None
    expires_ms: int | None
    is_timed: bool
    blocked_by: OpenTransaction | None = None

    def lag_s(self, now_ms: int) -> float | None:
        if not self.is_timed:
            return None
        return 0.0 if self.arrived_ms is None else max(0.0, (now_ms - self.arrived_ms) / 1000)

    def size(self, event_bytes: float | None) -> int | None:
        """Return its size in bytes, estimated from the mean size of an event."""
        if self.events == 0:
            return 0
        return None if self.events is None or event_bytes is None else int(self.events * event_bytes)

    @staticmethod
    def of(unread: Sequence[Position], figures: BusFigures) -> _Backlog:
        events, arrivals_ms, expiries_ms = 0, list[int](), list[int]()
        for position in unread:
            category = figures.categories[position.bucket.category]
            events += category.ends[position.bucket.number] - (position.offset or 0)
            arrived_ms = figures.arrived_ms.get(position)
            if arrived_ms is not None:
                arrivals_ms.append(arrived_ms)
                if category.spec.retention is not None:
                    expiries_ms.append(arrived_ms + int(category.spec.retention.total_seconds() * 1000))
        is_timed = all(figures.arrived_ms.get(position, 0) is not None for position in unread)
        blocked_by = min(filter(None, map(figures.blocking, unread)), key=_since_ms, default=None)
        return _Backlog(events, min(arrivals_ms, default=None), min(expiries_ms, default=None), is_timed, blocked_by)


def _since_ms(transaction: OpenTransaction) -> int:
    return transaction.since_ms


_UNKNOWN_BACKLOG = _Backlog(None, None, None, is_timed=False)


def _shard_status(
    bucket: int, now_ms: int, report: _OwnerReport, backlog: _Backlog, watermark: WatermarkStatement | None
) -> ShardStatus:
    low_ms = None if watermark is None or watermark.low_ms == NEVER_MS else watermark.low_ms
    return ShardStatus(
        owner=report.owner,
        backlog_events=backlog.events,
        backlog_bytes=backlog.size(report.event_bytes),
        lag_s=backlog.lag_s(now_ms),
        retention_remaining_s=None if backlog.expires_ms is None else (backlog.expires_ms - now_ms) / 1000,
        events_in_per_s=report.events_in_per_s,
        events_out_per_s=report.events_out_per_s,
        low_watermark_ms=low_ms,
        idle=watermark is not None and watermark.idle and report.shard is not None,
        held_by="" if watermark is None else watermark.held_by,
        blocked_by="" if backlog.blocked_by is None else backlog.blocked_by.report(now_ms),
        **({"bucket": bucket} if report.shard is None else _passed_on(report.shard, ShardStatus)),
    )


def _worker_status(interval: ReportInterval, now_ms: int, outage: Outage) -> WorkerStatus:
    last, worker_ms = interval.last, interval.worker_ms(now_ms)
    clock_error_ms = worker_ms - now_ms
    restarts_ms = [at_ms - clock_error_ms for at_ms in last.restarts_ms if at_ms > worker_ms - HOUR_MS]
    return WorkerStatus(
        report_age_s=max(0.0, (now_ms - interval.arrived_ms) / 1000),
        outage_s=outage.seconds_since(interval.arrived_ms),
        buckets=tuple(shard.bucket for shard in last.shards),
        per_s=interval.per_s,
        checkpoint_age_s=None if last.last_checkpoint_ms is None else (worker_ms - last.last_checkpoint_ms) / 1000,
        cpu_cores=(last.cpu_s - interval.first.cpu_s) / interval.seconds if interval.seconds else 0.0,
        idle_share=interval.share(lambda report: report.idle_s),
        busy_share=interval.share(lambda report: report.at_ms / 1000 - report.idle_s - report.blocked_s),
        blocked_share=interval.share(lambda report: report.blocked_s),
        restarts=len(restarts_ms),
        crash_loop_since_ms=crash_loop_since(restarts_ms, now_ms),
        **{**_passed_on(last, WorkerStatus), "started_ms": last.started_ms - clock_error_ms},
    )


def _passed_on(report: Report | ShardReport, status: type[Struct]) -> dict[str, Any]:
    """Return the fields of a report that a status has as they are."""
    return {name: getattr(report, name) for name in report.__struct_fields__ if name in status.__struct_fields__}
