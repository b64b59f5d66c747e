"""The JSON form of a cluster status, for `--json` and for the dashboard."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from msgspec import structs

from ...processors import RATES, TOTALS, Counts
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
        "low_watermark_ms": status.low_watermark_ms,
        "skewed_bucket": None if status.skewed_shard is None else status.skewed_shard.bucket,
        "watermark_lag_s": status.watermark_lag_s,
        "loop": None if status.loop is None else asdict(status.loop),
        "dead_letters": status.dead_letters,
        "failed_queries": status.failed_queries,
        "workers": [_worker_to_json(worker) for worker in status.workers],
        "shards": [structs.asdict(shard) for shard in status.shards],
        **structs.asdict(status.shard_figures),
        **structs.asdict(status.worker_figures),
        **_of_counts(status.counts, status.per_s),
    }


def _worker_to_json(worker: WorkerStatus) -> dict[str, Any]:
    values = structs.asdict(worker)
    counts, per_s = values.pop("counts"), values.pop("per_s")
    return {**values, **_of_counts(counts, per_s), "is_silent": worker.is_silent, "busy_share": worker.busy_share}


def _of_counts(counts: Counts, per_s: Counts) -> dict[str, Any]:
    return {row.name: row.of(counts) for row in TOTALS} | {row.name: row.of(per_s) for row in RATES}
