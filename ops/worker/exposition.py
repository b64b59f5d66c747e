"""The metrics of one worker, and those of its user's code, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .metrics import Metrics

COUNTERS = {
    "events_in": "events read",
    "events_out": "records written",
    "bytes_in": "bytes of the values read",
    "bytes_out": "bytes of the values written",
    "late": "events after the watermark",
    "dropped": "late events in no open window",
    "unmatched": "events dropped without a row in the lookup",
    "dead_letters": "events written to the dead letters",
    "checkpoints": "checkpoints saved",
}
"""The counters of a worker by their attributes, with descriptions."""

SPAN_COUNTERS = {
    "ended": "spans of processed events",
    "exported": "spans that the receiver has accepted",
    "failed": "spans whose export failed",
    "dropped": "spans without a place in the queue",
}
"""The counters of `SpanMetrics` by their attributes, with descriptions."""


class WorkerCollector(Collector):
    """Collects the metrics of a worker.

    Args:
        metrics: returns the name of the worker's processor and its metrics; None before its first turn.
    """

    def __init__(self, metrics: Callable[[], tuple[str, Metrics] | None]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield the counters since the worker's start, and the duration of its last checkpoint."""
        found = self._metrics()
        if found is None:
            return
        processor, metrics = found
        for name, description in COUNTERS.items():
            yield _counter(name, description, processor, getattr(metrics, name))
        for name, description in SPAN_COUNTERS.items() if metrics.spans is not None else ():
            yield _counter(f"spans_{name}", description, processor, getattr(metrics.spans, name))
        saving = GaugeMetricFamily(
            "penstock_worker_checkpoint_seconds", "duration of the last checkpoint in seconds", labels=["processor"]
        )
        saving.add_metric([processor], metrics.saving_s)
        yield saving


def _counter(name: str, description: str, processor: str, value: float) -> CounterMetricFamily:
    """Return a counter since the start of the worker."""
    family = CounterMetricFamily(
        f"penstock_worker_{name}", f"{description}, since the start of the worker", labels=["processor"]
    )
    family.add_metric([processor], value)
    return family


def exposition(worker: WorkerCollector) -> bytes:
    """Return the metrics of a worker, and all metrics that its process has registered with `prometheus_client`."""
    own = CollectorRegistry()
    own.register(worker)
    return generate_latest(own) + generate_latest(REGISTRY)
