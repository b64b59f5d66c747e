"""Statuses of processors, and reports of workers, with defaults for tests."""

from __future__ import annotations

from typing import Any

from penstock.ops.kernel import Node, Report, ShardReport
from penstock.ops.status import ClusterStatus, ProcessorStatus
from penstock.ops.status.findings import findings_of
from penstock.ops.status.status import ShardStatus, WorkerStatus
from penstock.processors import Counts

NODE = Node("scorer", "stateless", ("enriched",), ("scored",), "scorer.dead_letters", 1.0)
NOW_MS = 1_700_000_000_000


def shard_status(bucket: int = 0, **fields: Any) -> ShardStatus:
    """Return the status of a shard without a backlog."""
    defaults: dict[str, Any] = {
        "owner": "one",
        "backlog_events": 0,
        "backlog_bytes": 0,
        "lag_s": 0.0,
        "retention_remaining_s": None,
        "events_in_per_s": 0.0,
        "events_out_per_s": 0.0,
        "low_watermark_ms": NOW_MS,
        "idle": False,
        "held_by": "",
        "catching_up": False,
        "backup_age_s": None,
    }
    return ShardStatus(**{"bucket": bucket, **defaults, **fields})


def worker_status(name: str = "one", **fields: Any) -> WorkerStatus:
    """Return the status of a running worker without problems."""
    defaults: dict[str, Any] = {
        "host": "here",
        "pid": 7,
        "deployment": "",
        "started_ms": NOW_MS - 60_000,
        "report_age_s": 1.0,
        "buckets": (0,),
        "counts": Counts(),
        "per_s": Counts(),
        "checkpoint_age_s": 1.0,
        "checkpoint_duration_s": 0.01,
        "cpu_cores": 0.1,
        "memory_bytes": 1,
        "restarts": 0,
        "crash_loop_since_ms": None,
        "disk_free_share": 0.5,
        "backup_interval_s": None,
        "end_reason": "",
    }
    return WorkerStatus(**{"worker": name, **defaults, **fields})


def processor_status(
    *shards: ShardStatus, workers: tuple[WorkerStatus, ...] | None = None, **fields: Any
) -> ProcessorStatus:
    """Return the status of a processor with these shards; by default with one worker without problems."""
    run_by = (worker_status(),) if workers is None else workers
    return ProcessorStatus(
        **{"node": NODE, "at_ms": NOW_MS, "shards": shards, "workers": run_by, "dead_letters": 0, **fields}
    )


def cluster_status(*processors: ProcessorStatus, at_ms: int = NOW_MS) -> ClusterStatus:
    """Return the status of processors with their findings."""
    return ClusterStatus(at_ms, processors, findings_of(processors))


def shard_report(bucket: int, events_in: int, at_ms: int = NOW_MS) -> ShardReport:
    """Return the report of a shard that has read that many events, and written half as many records."""
    return ShardReport(
        bucket=bucket, position={"enriched": events_in}, events_in=events_in, events_out=events_in // 2, low_ms=at_ms
    )


def report(at_ms: int, events_in: int = 0, **fields: Any) -> Report:
    """Return the report of a worker of bucket 0 that has read that many events of 100 bytes each."""
    defaults: dict[str, Any] = {
        "node": NODE,
        "worker": "one",
        "host": "here",
        "pid": 7,
        "started_ms": NOW_MS - 60_000,
        "shards": (shard_report(0, events_in),),
        "counts": Counts(events_in=events_in, bytes_in=100 * events_in, events_out=events_in // 2),
    }
    return Report(**{**defaults, "at_ms": at_ms, **fields})
