"""Prometheus metrics of processors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .measures import OF_PROCESSOR, OF_SHARD, OF_WORKER, Measure, T
from .observer import Observer
from .status import ProcessorStatus

PREFIX = "penstock_"


class Scraped(Collector):
    """Observes the processors at each scrape. One scrape at a time.

    Args:
        observer: the observer of the processors.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def collect(self) -> Iterable[Metric]:
        """Return the current figures."""
        return families(self._observer.look().standings)


def families(standings: Sequence[ProcessorStatus]) -> Iterator[Metric]:
    """Yield all figures of processors that are known."""
    yield from _gauges(OF_PROCESSOR, [], [([it.node.name], it) for it in standings])
    shards = [([it.node.name, str(shard.bucket)], shard) for it in standings for shard in it.shards]
    yield from _gauges(OF_SHARD, ["bucket"], shards)
    workers = [([it.node.name, worker.worker], worker) for it in standings for worker in it.running]
    yield from _gauges(OF_WORKER, ["worker"], workers)


def _gauges(
    measures: dict[str, Measure[T]], labels: Sequence[str], subjects: Sequence[tuple[list[str], T]]
) -> Iterator[Metric]:
    for name, measure in measures.items():
        family = GaugeMetricFamily(PREFIX + name, measure.description, labels=["processor", *labels])
        for values, subject in subjects:
            figure = measure.of(subject)
            if figure is not None:
                family.add_metric(values, float(figure))
        yield family
