"""Prometheus metrics of processors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .metrics import BUCKET_METRICS, PROCESSOR_METRICS, WORKER_METRICS, MetricDefinition, T
from .observer import Observer
from .status import ProcessorStatus

PREFIX = "penstock_"


class StatusCollector(Collector):
    """Observes the processors at each scrape. One scrape at a time.

    Args:
        observer: the observer of the processors.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics."""
        return metric_families(self._observer.observe().processors)


def metric_families(processors: Sequence[ProcessorStatus]) -> Iterator[Metric]:
    """Yield the known metrics of processors, their shards and their running workers."""
    yield from _gauges(PROCESSOR_METRICS, [], [([status.node.name], status) for status in processors])
    shards = [([status.node.name, str(shard.bucket)], shard) for status in processors for shard in status.shards]
    yield from _gauges(BUCKET_METRICS, ["bucket"], shards)
    workers = [
        ([status.node.name, worker.worker], worker) for status in processors for worker in status.running_workers
    ]
    yield from _gauges(WORKER_METRICS, ["worker"], workers)


def _gauges(
    metrics: dict[str, MetricDefinition[T]], labels: Sequence[str], subjects: Sequence[tuple[list[str], T]]
) -> Iterator[Metric]:
    for name, metric in metrics.items():
        family = GaugeMetricFamily(PREFIX + name, metric.description, labels=["processor", *labels])
        for label_values, subject in subjects:
            value = metric.of(subject)
            if value is not None:
                family.add_metric(label_values, float(value))
        yield family
