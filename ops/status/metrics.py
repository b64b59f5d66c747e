"""The metrics of processors by name, for Prometheus, alert rules and the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from ...processors import PROCESSOR_ROWS, RATES, WorkerFigures, rows_of
from ...processors.declare import ALERT_METRICS, SERVER_ALERT_METRICS
from .servers import ServerStatus
from .states import ProcessorState
from .status import ClusterStatus, ProcessorStatus, ShardStatus, WorkerStatus

T = TypeVar("T")
_RECENT_S = 60.0
"""The time for which a checkpoint counts as recent, in seconds, however short it was."""
PREFIX = "penstock_"
"""The prefix of names where metrics of several systems meet."""


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
        return float(not status.missing_outputs)
    if status.state is not ProcessorState.NOT_RUNNING:
        return 0.0
    return None if status.backlog_events is None else float(status.backlog_events > 0)


def _recent_checkpoint_duration_s(worker: WorkerStatus) -> float:
    """Return the duration of a worker's last checkpoint, or of the running one; 0 if that was long ago, for example because no event has arrived since."""
    return max(_last_checkpoint_duration_s(worker), worker.checkpoint_running_s or 0.0)


def _last_checkpoint_duration_s(worker: WorkerStatus) -> float:
    is_recent = worker.checkpoint_age_s is None or worker.checkpoint_age_s <= max(
        2 * worker.checkpoint_duration_s, _RECENT_S
    )
    return worker.checkpoint_duration_s if is_recent else 0.0


_PROCESSOR_VALUES: dict[str, Callable[[ProcessorStatus], float | None]] = {
    **{row.metric: row.of for row in PROCESSOR_ROWS},
    "backlog_events": lambda status: status.backlog_events,
    "backlog_bytes": lambda status: status.backlog_bytes,
    "lag_seconds": lambda status: status.lag_s,
    "skewed_bucket_lag_seconds": lambda status: (
        status.skewed_shard.lag_s if status.skewed_shard is not None and status.can_progress else 0.0
    ),
    "retention_remaining_share": lambda status: min(
        (
            max(0.0, shard.retention_remaining_s) / (max(0.0, shard.retention_remaining_s) + shard.lag_s)
            for shard in status.shards
            if shard.retention_remaining_s is not None and shard.lag_s
        ),
        default=None,
    ),
    "watermark_lag_seconds": lambda status: status.watermark_lag_s,
    "watermark_stall_seconds": lambda status: status.watermark_stall_s,
    "checkpoint_age_seconds": lambda status: max(
        (unsaved_s for worker in status.running_workers if (unsaved_s := status.unsaved_s(worker)) is not None),
        default=None,
    ),
    "checkpoint_duration_seconds": lambda status: max(
        (_recent_checkpoint_duration_s(worker) for worker in status.running_workers), default=None
    ),
    "lookup_table_rows": lambda status: max((table.rows for table in status.lookup_tables), default=None),
    "lookup_table_bytes": lambda status: max((table.size_bytes for table in status.lookup_tables), default=None),
    "lookup_table_unread": lambda status: max((table.unread for table in status.lookup_tables), default=None),
    "backup_late": lambda status: None if status.is_backup_late is None else float(status.is_backup_late),
    "dead_letters": lambda status: status.dead_letters,
    "dead_letter_share": lambda status: status.dead_letter_share,
    "dropped_share": lambda status: status.dropped_share,
    "workers": lambda status: len(status.running_workers),
    "waiting_seconds": lambda status: max(
        (worker.waits_s for worker in status.running_workers if not worker.is_in_code), default=0.0
    ),
    "workers_silent": lambda status: (
        sum(worker.is_silent for worker in status.workers) if status.state.is_working else 0
    ),
    "workers_failed": lambda status: sum(worker.has_failed for worker in status.workers) if status.can_progress else 0,
    "not_running": _waits_for_a_worker,
    "figures_unknown": lambda status: len(status.failed_queries),
    "crash_looping": lambda status: float(status.state is ProcessorState.CRASH_LOOPING and not status.missing_outputs),
    "unsupervised": lambda status: float(status.state is ProcessorState.UNSUPERVISED),
    "lost": lambda status: float(status.state is ProcessorState.LOST),
    "outputs_missing": lambda status: len(status.missing_outputs),
    "buckets_blocked": lambda status: (
        sum(bool(shard.blocked_by) for shard in status.shards) if status.can_progress else 0
    ),
    "buckets_unowned": lambda status: sum(not shard.owner and bool(shard.backlog_events) for shard in status.shards),
}
"""The functions that compute the metrics of a processor."""

PROCESSOR_METRICS: dict[str, MetricDefinition[ProcessorStatus]] = {
    name: MetricDefinition(description, _PROCESSOR_VALUES[name]) for name, description in ALERT_METRICS.items()
}
"""Metrics of a processor."""

SERVER_METRICS: dict[str, MetricDefinition[ServerStatus]] = {
    name: MetricDefinition(description, lambda server: server.day_age_s)
    for name, description in SERVER_ALERT_METRICS.items()
}
"""Metrics of a server. Its name is the value of the label `processor`, so that rules select servers like processors."""

BUCKET_METRICS: dict[str, MetricDefinition[ShardStatus]] = {
    f"bucket_{row.metric}": MetricDefinition(row.help, row.of) for row in rows_of(ShardStatus)
}
"""Metrics of a shard, with the label `bucket`."""

WORKER_METRICS: dict[str, MetricDefinition[WorkerStatus]] = {
    **{f"worker_{row.metric}": MetricDefinition(row.help, row.of) for row in (*rows_of(WorkerFigures), *RATES)},
    "worker_buckets": MetricDefinition("buckets that a worker owns", lambda worker: len(worker.buckets)),
}
"""Metrics of a worker, with the label `worker`."""


class MetricValues(NamedTuple):
    """A metric and its known values.

    Args:
        name: its name.
        description: its meaning and unit.
        labels: the names of its labels.
        values: the values of its labels, and its value, by processor, bucket or worker.
    """

    name: str
    description: str
    labels: tuple[str, ...]
    values: list[tuple[tuple[str, ...], float]]


def alert_values(metric: str, cluster: ClusterStatus) -> Iterator[tuple[str, float | None]]:
    """Yield the name of each processor or server that may have a metric, and its value; None if it is unknown or does not apply."""
    if metric in SERVER_METRICS:
        yield from ((server.name, SERVER_METRICS[metric].of(server)) for server in cluster.servers)
    else:
        yield from ((status.node.name, PROCESSOR_METRICS[metric].of(status)) for status in cluster.processors)


def metric_values(cluster: ClusterStatus) -> Iterator[MetricValues]:
    """Yield the metrics of processors, their shards and their running workers, and of servers, for every system that collects them."""
    processors = cluster.processors
    yield from _values(SERVER_METRICS, (), [((server.name,), server) for server in cluster.servers])
    yield from _values(PROCESSOR_METRICS, (), [((status.node.name,), status) for status in processors])
    shards = [((status.node.name, str(shard.bucket)), shard) for status in processors for shard in status.shards]
    yield from _values(BUCKET_METRICS, ("bucket",), shards)
    workers = [
        ((status.node.name, worker.worker), worker) for status in processors for worker in status.running_workers
    ]
    yield from _values(WORKER_METRICS, ("worker",), workers)


def _values(
    metrics: dict[str, MetricDefinition[T]], labels: tuple[str, ...], subjects: Sequence[tuple[tuple[str, ...], T]]
) -> Iterator[MetricValues]:
    for name, metric in metrics.items():
        known = [(place, float(value)) for place, subject in subjects if (value := metric.of(subject)) is not None]
        yield MetricValues(PREFIX + name, metric.description, ("processor", *labels), known)
