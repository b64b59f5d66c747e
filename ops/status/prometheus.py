"""Prometheus metrics of processors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .metrics import metric_values
from .observer import Observer
from .status import ClusterStatus


class StatusCollector(Collector):
    """Observes the processors at each scrape.

    Args:
        observer: the observer of the processors.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics."""
        return metric_families(self._observer.observe())


def metric_families(cluster: ClusterStatus) -> Iterator[Metric]:
    """Yield the known metrics of processors, their shards and their running workers, and of servers."""
    for metric in metric_values(cluster):
        family = GaugeMetricFamily(metric.name, metric.description, labels=metric.labels)
        for labels, value in metric.values:
            family.add_metric(labels, value)
        yield family
