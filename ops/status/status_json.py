"""The JSON form of a cluster status, for `--json` and for the dashboard."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .status import ClusterStatus, ProcessorStatus, WorkerStatus


def status_to_json(cluster: ClusterStatus) -> dict[str, Any]:
    """Return a cluster status as JSON values."""
    return {
        "at_ms": cluster.at_ms,
        "findings": [{**asdict(finding), "severity": finding.severity.name.lower()} for finding in cluster.findings],
        "processors": [_processor_to_json(status) for status in cluster.processors],
        "servers": [{**asdict(server), "state": server.state.value} for server in cluster.servers],
    }


def _processor_to_json(status: ProcessorStatus) -> dict[str, Any]:
    return {
        "processor": status.node.name,
        "kind": status.node.kind,
        "state": status.state.value,
        "versions": status.versions,
        "inputs": status.node.inputs,
        "outputs": status.node.outputs,
        "sinks": status.node.sinks,
        "backlog_events": status.backlog_events,
        "backlog_bytes": status.backlog_bytes,
        "lag_s": status.lag_s,
        "events_in_per_s": status.total("events_in_per_s"),
        "bytes_in_per_s": status.total("bytes_in_per_s"),
        "events_out_per_s": status.total("events_out_per_s"),
        "bytes_out_per_s": status.total("bytes_out_per_s"),
        "late_events": int(status.total("late_events")),
        "dropped_events": int(status.total("dropped_events")),
        "low_watermark_ms": status.low_watermark_ms,
        "skewed_bucket": None if status.skewed_shard is None else status.skewed_shard.bucket,
        "watermark_lag_s": status.watermark_lag_s,
        "backup_age_s": status.backup_age_s,
        "state_bytes": status.state_bytes,
        "retries": status.retries,
        "loop": None if status.loop is None else asdict(status.loop),
        "dead_letters": status.dead_letters,
        "failed_queries": status.failed_queries,
        "workers": [_worker_to_json(worker) for worker in status.workers],
        "shards": [asdict(shard) for shard in status.shards],
    }


def _worker_to_json(worker: WorkerStatus) -> dict[str, Any]:
    return {**asdict(worker), "is_silent": worker.is_silent, "busy_share": worker.busy_share}
