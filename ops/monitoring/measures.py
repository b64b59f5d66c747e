"""The figures of processors by name, for Prometheus, alert rules and the documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from .reports import SILENT_AFTER_S, STOPPED
from .status import ProcessorStatus, ShardStatus, WorkerStatus

T = TypeVar("T")


class Measure(NamedTuple, Generic[T]):
    """A figure and its description.

    Args:
        description: its meaning and unit.
        of: returns the figure; None if it is unknown or does not apply.
    """

    description: str
    of: Callable[[T], float | None]


OF_PROCESSOR: dict[str, Measure[ProcessorStatus]] = {
    "behind_events": Measure("Backlog (events): input events after the committed offsets", lambda it: it.behind),
    "behind_bytes": Measure("Backlog (bytes), estimated from the mean event size", lambda it: it.behind_bytes),
    "behind_seconds": Measure(
        "Lag (time): seconds that the oldest event of the backlog has waited", lambda it: it.behind_s
    ),
    "retention_left": Measure(
        "remaining retention of the oldest backlog event, as a share from 0 to 1; the lowest of all buckets",
        lambda it: min(
            (
                max(0.0, shard.expires_s) / (max(0.0, shard.expires_s) + shard.behind_s)
                for shard in it.shards
                if shard.expires_s is not None and shard.behind_s
            ),
            default=None,
        ),
    ),
    "in_per_second": Measure("Throughput: events read per second", lambda it: it.total("rate_in")),
    "out_per_second": Measure("Throughput: records written per second", lambda it: it.total("rate_out")),
    "in_bytes_per_second": Measure("Throughput: bytes read per second", lambda it: it.total("bytes_in")),
    "out_bytes_per_second": Measure("Throughput: bytes written per second", lambda it: it.total("bytes_out")),
    "watermark_lag_seconds": Measure(
        "Watermark lag: seconds between the low watermark and the current time; absent while all buckets are idle",
        lambda it: it.watermark_lag_s,
    ),
    "watermark_still_seconds": Measure(
        "seconds without progress of the low watermark despite a backlog, as seen by this observer",
        lambda it: it.watermark_still_s,
    ),
    "checkpoint_age_seconds": Measure(
        "seconds since the last checkpoint of a worker with unsaved events; the longest of all workers",
        lambda it: max((unsaved_s for one in it.running if (unsaved_s := it.unsaved_s(one)) is not None), default=None),
    ),
    "checkpoint_seconds": Measure(
        "duration of the last checkpoint in seconds; the longest of all workers",
        lambda it: max((worker.saving_s for worker in it.running), default=None),
    ),
    "backup_age_seconds": Measure(
        "seconds since the newest backup of a shard; the longest of all shards", lambda it: it.backup_age_s
    ),
    "dead_letters": Measure("dead letters that Kafka stores", lambda it: it.dead_letters),
    "dead_letters_per_second": Measure("dead letters written per second", lambda it: it.total("letters_rate")),
    "dead_letters_share": Measure(
        "dead letters as a share of the events read, from 0 to 1", lambda it: it.dead_letters_share
    ),
    "late_events": Measure(
        "events that arrived after the watermark, since the workers started", lambda it: it.total("late")
    ),
    "workers": Measure("running workers", lambda it: len(it.running)),
    "workers_silent": Measure(
        f"workers without a report for {SILENT_AFTER_S:g} s that did not stop",
        lambda it: sum(not worker.ended for worker in it.workers) - len(it.running),
    ),
    "workers_failed": Measure(
        "workers that failed within the last hour and did not restart",
        lambda it: sum(worker.ended not in ("", STOPPED) for worker in it.workers),
    ),
    "not_running": Measure(
        "1 if no worker runs and there is a backlog, else 0", lambda it: float(not it.running and bool(it.behind))
    ),
    "restarts": Measure("restarts after failures in the last hour", lambda it: it.total("restarts")),
    "buckets_unowned": Measure(
        "buckets with a backlog and without an owner",
        lambda it: sum(not shard.owner and bool(shard.behind) for shard in it.shards),
    ),
}
"""Figures of a processor."""

OF_SHARD: dict[str, Measure[ShardStatus]] = {
    "bucket_behind_events": Measure("Backlog (events) of a bucket", lambda it: it.behind),
    "bucket_behind_seconds": Measure("Lag (time) of a bucket, in seconds", lambda it: it.behind_s),
    "bucket_in_per_second": Measure("Throughput of a bucket: events read per second", lambda it: it.rate_in),
    "bucket_low_watermark_seconds": Measure(
        "low watermark of a bucket, in seconds since 1970", lambda it: None if it.low_ms is None else it.low_ms / 1000
    ),
    "bucket_backup_age_seconds": Measure("seconds since the newest backup of a bucket", lambda it: it.backup_age_s),
}
"""Figures of a shard."""

OF_WORKER: dict[str, Measure[WorkerStatus]] = {
    "worker_in_per_second": Measure("Throughput of a worker: events read per second", lambda it: it.rate_in),
    "worker_cpu": Measure("CPU cores that a worker uses", lambda it: it.cpu),
    "worker_memory_bytes": Measure("memory of a worker", lambda it: it.memory_bytes),
    "worker_buckets": Measure("buckets that a worker owns", lambda it: len(it.buckets)),
    "worker_checkpoint_age_seconds": Measure("seconds since a worker's last checkpoint", lambda it: it.saved_s),
}
"""Figures of a worker."""
