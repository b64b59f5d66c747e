"""Standings as a test needs them, and reports as workers send them."""

from __future__ import annotations

from typing import Any

from penstock.ops.monitoring.findings import findings_of
from penstock.ops.monitoring.reports import Counts, Node, Report, ShardReport
from penstock.ops.monitoring.status import ClusterStatus, ProcessorStatus, ShardStatus, WorkerStatus

NODE = Node("scorer", "stateless", ("enriched",), ("scored",), "scorer.dead_letters", 1.0)
NOW_MS = 1_700_000_000_000


def shard(bucket: int = 0, **given: Any) -> ShardStatus:
    """A shard that has nothing to do."""
    fine: dict[str, Any] = {
        "owner": "one",
        "behind": 0,
        "behind_bytes": 0,
        "behind_s": 0.0,
        "expires_s": None,
        "rate_in": 0.0,
        "rate_out": 0.0,
        "low_ms": NOW_MS,
        "idle": False,
        "held_by": "",
        "catching_up": False,
        "backup_age_s": None,
    }
    return ShardStatus(bucket, **{**fine, **given})


def worker(name: str = "one", **given: Any) -> WorkerStatus:
    """A worker that is doing well."""
    fine: dict[str, Any] = {
        "host": "here",
        "pid": 7,
        "deployment": "",
        "started_ms": NOW_MS - 60_000,
        "silent_s": 1.0,
        "buckets": (0,),
        "rate_in": 0.0,
        "bytes_in": 0.0,
        "rate_out": 0.0,
        "bytes_out": 0.0,
        "saved_s": 1.0,
        "saving_s": 0.01,
        "cpu": 0.1,
        "memory_bytes": 1,
        "restarts": 0,
        "letters_rate": 0.0,
        "late": 0,
        "dropped": 0,
        "backup_every_s": None,
        "ended": "",
    }
    return WorkerStatus(name, **{**fine, **given})


def standing(*shards: ShardStatus, workers: tuple[WorkerStatus, ...] | None = None, **given: Any) -> ProcessorStatus:
    """A processor with these shards; by default one that is doing well."""
    run_by = (worker(),) if workers is None else workers
    return ProcessorStatus(
        **{"node": NODE, "at_ms": NOW_MS, "shards": shards, "workers": run_by, "dead_letters": 0, **given}
    )


def picture(*standings: ProcessorStatus, at_ms: int = NOW_MS) -> ClusterStatus:
    """What somebody sees who looks at them."""
    return ClusterStatus(at_ms, standings, findings_of(standings))


def report(at_ms: int, events_in: int = 0, **given: Any) -> Report:
    """What a worker of bucket 0 reports, which has read that many events of 100 bytes each."""
    told: dict[str, Any] = {
        "node": NODE,
        "worker": "one",
        "host": "here",
        "pid": 7,
        "started_ms": NOW_MS - 60_000,
        "shards": (ShardReport(0, {"enriched": events_in}, events_in, events_in // 2, NOW_MS),),
        "counts": Counts(events_in=events_in, bytes_in=100 * events_in, events_out=events_in // 2),
    }
    return Report(**{**told, "at_ms": at_ms, **given})
