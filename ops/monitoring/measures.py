"""The figures of processors, by name: what Prometheus is given, what alert rules are about, and what the documentation lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from .reports import SILENT_AFTER_S, STOPPED
from .status import ProcessorStatus, ShardStatus, WorkerStatus

T = TypeVar("T")


class Measure(NamedTuple, Generic[T]):
    """One figure.

    Args:
        says: what it is, with its unit.
        of: gives it; None where it is not known, or there is none.
    """

    says: str
    of: Callable[[T], float | None]


OF_PROCESSOR: dict[str, Measure[ProcessorStatus]] = {
    "behind_events": Measure("events of its inputs that are not processed and saved yet", lambda it: it.behind),
    "behind_bytes": Measure("about how many bytes those are", lambda it: it.behind_bytes),
    "behind_seconds": Measure("how long the oldest of them has waited on the bus", lambda it: it.behind_s),
    "retention_left": Measure(
        "what is left of the time that the oldest of them is kept, as a share of it; of all inputs the least",
        lambda it: min(
            (
                max(0.0, shard.expires_s) / (max(0.0, shard.expires_s) + shard.behind_s)
                for shard in it.shards
                if shard.expires_s is not None and shard.behind_s
            ),
            default=None,
        ),
    ),
    "in_per_second": Measure("events read in a second", lambda it: it.total("rate_in")),
    "out_per_second": Measure("records written in a second", lambda it: it.total("rate_out")),
    "in_bytes_per_second": Measure("bytes read in a second", lambda it: it.total("bytes_in")),
    "out_bytes_per_second": Measure("bytes written in a second", lambda it: it.total("bytes_out")),
    "watermark_lag_seconds": Measure(
        "how far its low watermark is behind the time of day; none while nobody waits for it",
        lambda it: it.watermark_lag_s,
    ),
    "watermark_still_seconds": Measure(
        "for how long its low watermark has stood still although events wait; counted by whoever looks",
        lambda it: it.watermark_still_s,
    ),
    "checkpoint_age_seconds": Measure(
        "for how long a worker that reads has saved nothing although events wait for that; of all the longest",
        lambda it: max((unsaved_s for one in it.running if (unsaved_s := it.unsaved_s(one)) is not None), default=None),
    ),
    "checkpoint_seconds": Measure(
        "how long the longest last checkpoint of its workers took",
        lambda it: max((worker.saving_s for worker in it.running), default=None),
    ),
    "backup_age_seconds": Measure("how old the oldest newest backup of a shard is", lambda it: it.backup_age_s),
    "dead_letters": Measure("dead letters that the bus keeps", lambda it: it.dead_letters),
    "dead_letters_per_second": Measure("events set aside in a second", lambda it: it.total("letters_rate")),
    "dead_letters_share": Measure(
        "share of the events read that is set aside, from 0 to 1", lambda it: it.dead_letters_share
    ),
    "late_events": Measure(
        "events that came after their watermark, since its workers started", lambda it: it.total("late")
    ),
    "workers": Measure("workers that run", lambda it: len(it.running)),
    "workers_silent": Measure(
        f"workers that have said nothing for {SILENT_AFTER_S:g} s and have not ended",
        lambda it: sum(not worker.ended for worker in it.workers) - len(it.running),
    ),
    "workers_failed": Measure(
        "workers that ended with an error within the last hour and were not started again",
        lambda it: sum(worker.ended not in ("", STOPPED) for worker in it.workers),
    ),
    "not_running": Measure(
        "1 where nobody runs it although events wait, else 0", lambda it: float(not it.running and bool(it.behind))
    ),
    "restarts": Measure(
        "restarts of its workers in the last hour after ends that nobody asked for", lambda it: it.total("restarts")
    ),
    "buckets_unowned": Measure(
        "buckets in which events wait and that no worker has open",
        lambda it: sum(not shard.owner and bool(shard.behind) for shard in it.shards),
    ),
}
"""Of a processor."""

OF_SHARD: dict[str, Measure[ShardStatus]] = {
    "bucket_behind_events": Measure("events of a bucket that are left", lambda it: it.behind),
    "bucket_behind_seconds": Measure("how long the oldest of them has waited", lambda it: it.behind_s),
    "bucket_in_per_second": Measure("events of a bucket read in a second", lambda it: it.rate_in),
    "bucket_low_watermark_seconds": Measure(
        "its low watermark, seconds since 1970", lambda it: None if it.low_ms is None else it.low_ms / 1000
    ),
    "bucket_backup_age_seconds": Measure("how old its newest backup is", lambda it: it.backup_age_s),
}
"""Of each of its buckets."""

OF_WORKER: dict[str, Measure[WorkerStatus]] = {
    "worker_in_per_second": Measure("events that a worker reads in a second", lambda it: it.rate_in),
    "worker_cpu": Measure("processors that it uses", lambda it: it.cpu),
    "worker_memory_bytes": Measure("memory that it holds", lambda it: it.memory_bytes),
    "worker_buckets": Measure("buckets that it has open", lambda it: len(it.buckets)),
    "worker_checkpoint_age_seconds": Measure("how old its last checkpoint is", lambda it: it.saved_s),
}
"""Of each of its workers."""
