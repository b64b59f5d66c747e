"""A picture for programs: the same for a terminal's `--json` and for a page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .status import ClusterStatus, ProcessorStatus


def described(picture: ClusterStatus) -> dict[str, Any]:
    """Return a picture as JSON has it."""
    return {
        "at_ms": picture.at_ms,
        "findings": [{**asdict(finding), "severity": finding.severity.name.lower()} for finding in picture.findings],
        "processors": [_described(standing) for standing in picture.standings],
    }


def _described(it: ProcessorStatus) -> dict[str, Any]:
    return {
        "processor": it.node.name,
        "kind": it.node.kind,
        "inputs": it.node.inputs,
        "outputs": it.node.outputs,
        "behind": it.behind,
        "behind_bytes": it.behind_bytes,
        "behind_s": it.behind_s,
        "rate_in": it.total("rate_in"),
        "bytes_in": it.total("bytes_in"),
        "rate_out": it.total("rate_out"),
        "bytes_out": it.total("bytes_out"),
        "low_ms": it.low_ms,
        "watermark_lag_s": it.watermark_lag_s,
        "backup_age_s": it.backup_age_s,
        "dead_letters": it.dead_letters,
        "unread": it.unread,
        "workers": [asdict(worker) for worker in it.workers],
        "shards": [asdict(shard) for shard in it.shards],
    }
