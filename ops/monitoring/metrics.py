"""The metrics of processors by name, for Prometheus, alert rules and the documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from .reports import SILENT_AFTER_S
from .states import ProcessorState
from .status import ProcessorStatus, ShardStatus, WorkerStatus

T = TypeVar("T")


class MetricDefinition(NamedTuple, Generic[T]):
    """A metric and its description.

    Args:
        description: its meaning and unit.
        of: returns the value; None if it is unknown or does not apply.
    """

    description: str
    of: Callable[[T], float | None]


def _waits_for_a_worker(status: ProcessorStatus) -> float | None:
    if status.state is ProcessorState.FAILED:
        return 1.0
    if status.state is not ProcessorState.NOT_RUNNING:
        return 0.0
    return None if status.backlog_events is None else float(status.backlog_events > 0)


PROCESSOR_METRICS: dict[str, MetricDefinition[ProcessorStatus]] = {
    "backlog_events": MetricDefinition(
        "Backlog (events): input events after the committed offsets", lambda status: status.backlog_events
    ),
    "backlog_bytes": MetricDefinition(
        "Backlog (bytes), estimated from the mean event size", lambda status: status.backlog_bytes
    ),
    "lag_seconds": MetricDefinition(
        "Lag (time): seconds that the oldest event of the backlog has waited", lambda status: status.lag_s
    ),
    "skewed_bucket_lag_seconds": MetricDefinition(
        "lag (time) of the slowest bucket if most others have less than a tenth of it, else 0",
        lambda status: (
            status.skewed_shard.lag_s if status.skewed_shard is not None and status.state.is_working else 0.0
        ),
    ),
    "retention_remaining_share": MetricDefinition(
        "remaining retention of the oldest backlog event, as a share from 0 to 1; the lowest of all buckets",
        lambda status: min(
            (
                max(0.0, shard.retention_remaining_s) / (max(0.0, shard.retention_remaining_s) + shard.lag_s)
                for shard in status.shards
                if shard.retention_remaining_s is not None and shard.lag_s
            ),
            default=None,
        ),
    ),
    "events_in_per_second": MetricDefinition(
        "Throughput: events read per second", lambda status: status.total("events_in_per_s")
    ),
    "events_out_per_second": MetricDefinition(
        "Throughput: records written per second", lambda status: status.total("events_out_per_s")
    ),
    "bytes_in_per_second": MetricDefinition(
        "Throughput: bytes read per second", lambda status: status.total("bytes_in_per_s")
    ),
    "bytes_out_per_second": MetricDefinition(
        "Throughput: bytes written per second", lambda status: status.total("bytes_out_per_s")
    ),
    "watermark_lag_seconds": MetricDefinition(
        "Watermark lag: seconds between the low watermark and the current time; absent while all buckets are idle",
        lambda status: status.watermark_lag_s,
    ),
    "watermark_stall_seconds": MetricDefinition(
        "seconds without progress of the low watermark despite a backlog, as measured by this observer",
        lambda status: status.watermark_stall_s,
    ),
    "checkpoint_age_seconds": MetricDefinition(
        "seconds since the last checkpoint of a worker with unsaved events; the longest of all workers",
        lambda status: max(
            (unsaved_s for worker in status.running_workers if (unsaved_s := status.unsaved_s(worker)) is not None),
            default=None,
        ),
    ),
    "checkpoint_duration_seconds": MetricDefinition(
        "duration of the last checkpoint in seconds; the longest of all workers",
        lambda status: max((worker.checkpoint_duration_s for worker in status.running_workers), default=None),
    ),
    "disk_free_share": MetricDefinition(
        "free share of the disk with the state, from 0 to 1; the least of all workers",
        lambda status: min(
            (worker.disk_free_share for worker in status.running_workers if worker.disk_free_share is not None),
            default=None,
        ),
    ),
    "lookup_table_rows": MetricDefinition(
        "rows of a lookup table in memory; the most of all workers",
        lambda status: max((table.rows for table in status.lookup_tables), default=None),
    ),
    "lookup_table_bytes": MetricDefinition(
        "size of the messages with the rows of a lookup table; the most of all workers",
        lambda status: max((table.size_bytes for table in status.lookup_tables), default=None),
    ),
    "lookup_table_unread": MetricDefinition(
        "messages that a lookup table had not applied at its last check; the most of all workers",
        lambda status: max((table.unread for table in status.lookup_tables), default=None),
    ),
    "backup_age_seconds": MetricDefinition(
        "seconds since the newest backup of a shard; the longest of all shards", lambda status: status.backup_age_s
    ),
    "backup_late": MetricDefinition(
        "1 if the newest backup of a shard is older than its interval allows, else 0",
        lambda status: None if status.is_backup_late is None else float(status.is_backup_late),
    ),
    "state_bytes": MetricDefinition("size of the states on the workers' disks", lambda status: status.state_bytes),
    "dead_letters": MetricDefinition(
        "pending dead letters: neither retried nor dropped", lambda status: status.dead_letters
    ),
    "dead_letters_per_second": MetricDefinition(
        "dead letters written per second", lambda status: status.total("dead_letters_per_s")
    ),
    "dead_letter_share": MetricDefinition(
        "dead letters as a share of the events read, from 0 to 1", lambda status: status.dead_letter_share
    ),
    "late_events": MetricDefinition(
        "events that arrived after the watermark, since the workers started", lambda status: status.total("late_events")
    ),
    "workers": MetricDefinition("running workers", lambda status: len(status.running_workers)),
    "workers_silent": MetricDefinition(
        f"workers without a report for {SILENT_AFTER_S:g} s that have not ended, while others run",
        lambda status: sum(worker.is_silent for worker in status.workers) if status.state.is_working else 0,
    ),
    "workers_failed": MetricDefinition(
        "workers that failed within the last hour and did not restart, while others run",
        lambda status: sum(worker.has_failed for worker in status.workers) if status.state.is_working else 0,
    ),
    "not_running": MetricDefinition(
        "1 if its last worker failed, or if no worker has reported for an hour and there is a backlog; else 0",
        _waits_for_a_worker,
    ),
    "figures_unknown": MetricDefinition(
        "figures that Kafka did not return; alerts about them do not change meanwhile",
        lambda status: len(status.failed_queries),
    ),
    "crash_looping": MetricDefinition(
        "1 if its workers fail and restart again and again, else 0",
        lambda status: float(status.state is ProcessorState.CRASH_LOOPING),
    ),
    "unsupervised": MetricDefinition(
        "1 if a worker runs without the supervisor that would restart it, else 0",
        lambda status: float(status.state is ProcessorState.UNSUPERVISED),
    ),
    "lost": MetricDefinition(
        "1 if its workers disappeared without a last report, else 0",
        lambda status: float(status.state is ProcessorState.LOST),
    ),
    "restarts": MetricDefinition("restarts after failures in the last hour", lambda status: status.total("restarts")),
    "buckets_unowned": MetricDefinition(
        "buckets with a backlog and without an owner",
        lambda status: sum(not shard.owner and bool(shard.backlog_events) for shard in status.shards),
    ),
}
"""Metrics of a processor."""

BUCKET_METRICS: dict[str, MetricDefinition[ShardStatus]] = {
    "bucket_backlog_events": MetricDefinition("Backlog (events) of a bucket", lambda shard: shard.backlog_events),
    "bucket_lag_seconds": MetricDefinition("Lag (time) of a bucket, in seconds", lambda shard: shard.lag_s),
    "bucket_events_in_per_second": MetricDefinition(
        "Throughput of a bucket: events read per second", lambda shard: shard.events_in_per_s
    ),
    "bucket_low_watermark_seconds": MetricDefinition(
        "low watermark of a bucket, in seconds since 1970",
        lambda shard: None if shard.low_watermark_ms is None else shard.low_watermark_ms / 1000,
    ),
    "bucket_hot_key_share": MetricDefinition(
        "share of the most frequent key in the recent events of a bucket, from 0 to 1; estimated",
        lambda shard: shard.hot_key_share if shard.hot_key else None,
    ),
    "bucket_state_bytes": MetricDefinition(
        "size of the state of a bucket on the disk of its owner", lambda shard: shard.state_bytes
    ),
    "bucket_backup_age_seconds": MetricDefinition(
        "seconds since the newest backup of a bucket", lambda shard: shard.backup_age_s
    ),
}
"""Metrics of a shard, with the label `bucket`."""

WORKER_METRICS: dict[str, MetricDefinition[WorkerStatus]] = {
    "worker_events_in_per_second": MetricDefinition(
        "Throughput of a worker: events read per second", lambda worker: worker.events_in_per_s
    ),
    "worker_cpu_cores": MetricDefinition("CPU cores that a worker uses", lambda worker: worker.cpu_cores),
    "worker_memory_bytes": MetricDefinition("memory of a worker", lambda worker: worker.memory_bytes),
    "worker_buckets": MetricDefinition("buckets that a worker owns", lambda worker: len(worker.buckets)),
    "worker_checkpoint_age_seconds": MetricDefinition(
        "seconds since a worker's last checkpoint", lambda worker: worker.checkpoint_age_s
    ),
}
"""Metrics of a worker, with the label `worker`."""
