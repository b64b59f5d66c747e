"""The JSON form of a cluster status, for `--json` and for the dashboard."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from msgspec import structs

from ...processors import PROCESSOR_ROWS, RATES, TOTALS
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
        **{row.name: row.of(status) for row in PROCESSOR_ROWS},
    }


def _worker_to_json(worker: WorkerStatus) -> dict[str, Any]:
    values = structs.asdict(worker) | {row.name: row.of(worker) for row in (*RATES, *TOTALS)}
    del values["counts"], values["per_s"]
    return {**values, "is_silent": worker.is_silent}
