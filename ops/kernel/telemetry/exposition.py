"""The metrics of one worker, and those of its user's code, in OpenMetrics or Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isinf
from typing import NamedTuple, TypeAlias

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ....processors import Counts, rows_of
from ....processors.lookups import TableSize
from .histogram import Histogram
from .metrics import Metrics, Timings
from .trace_context import SpanMetrics

_PREFIX = "penstock_worker_"
_LABELS = ("processor",)

Value: TypeAlias = Callable[[Metrics], float | None]
"""Returns the value of a metric; None if it does not apply."""


def _of_spans(value: Callable[[SpanMetrics], float]) -> Value:
    return lambda metrics: None if metrics.spans is None else value(metrics.spans)


def _of_table(value: Callable[[TableSize], float]) -> Value:
    def of(metrics: Metrics) -> float | None:
        table = None if metrics.lookups is None else metrics.lookups.table
        return None if table is None else value(table)

    return of


def _standby_shards(metrics: Metrics) -> float | None:
    return None if metrics.standby_shards is None else metrics.standby_shards()


COUNTERS: dict[str, tuple[str, Value]] = {
    **{row.name: (row.help, row.of) for row in rows_of(Counts)},
    "restored_states": ("states restored from backups", lambda metrics: metrics.restores.states),
    "restored_bytes": ("bytes of the states restored from backups", lambda metrics: metrics.restores.bytes),
    "restoring_seconds": ("seconds of restores; parallel ones each count", lambda metrics: metrics.restores.seconds),
    "idle_seconds": ("seconds without events to process", lambda metrics: metrics.loop.idle_s),
    "blocked_seconds": ("seconds until a checkpoint ended", lambda metrics: metrics.loop.blocked_s),
    "state_cache_hits": ("keys of batches whose state was in memory", lambda metrics: metrics.state_cache.hits),
    "state_cache_misses": (
        "keys of batches whose state was read and decoded",
        lambda metrics: metrics.state_cache.misses,
    ),
    "replaced_clients": ("Kafka clients that were replaced after an outage", lambda metrics: metrics.clients.replaced),
    "spans_ended": ("spans of processed events", _of_spans(lambda spans: spans.ended)),
    "spans_exported": ("spans that the receiver has accepted", _of_spans(lambda spans: spans.exported)),
    "spans_failed": ("spans whose export failed", _of_spans(lambda spans: spans.failed)),
    "spans_dropped": ("spans without a place in the queue", _of_spans(lambda spans: spans.dropped)),
}
"""The counters of a worker: descriptions and values."""

GAUGES: dict[str, tuple[str, Value]] = {
    "state_cache_bytes": ("estimated memory of decoded states", lambda metrics: metrics.state_cache.size_bytes),
    "kafka_clients": ("open Kafka clients of the process", lambda metrics: metrics.clients.open),
    "standby_shards": ("shards of other workers that this machine can take over without a download", _standby_shards),
    "table_rows": ("rows of the lookup table", _of_table(lambda table: table.rows)),
    "table_size_bytes": ("size of the messages with the rows of the table", _of_table(lambda table: table.size_bytes)),
    "table_unread": ("messages that the table has not applied", _of_table(lambda table: table.unread)),
    "last_checkpoint_seconds": ("duration of the last checkpoint in seconds", lambda metrics: metrics.saving_s),
}
"""The gauges of a worker: descriptions and values."""

HISTOGRAMS: dict[str, tuple[str, Callable[[Timings], Histogram]]] = {
    "processing": ("seconds for which the processor worked on a batch", lambda timings: timings.processing),
    "event_age": ("seconds from an event's arrival in Kafka to its processing", lambda timings: timings.event_age),
    "checkpoint": ("seconds for which a checkpoint was saved", lambda timings: timings.checkpoint),
}
"""The histograms of a worker: descriptions and values."""


class WorkerCollector(Collector):
    """Collects the metrics of a worker.

    Args:
        metrics: returns the name of the worker's processor and its metrics; None before its first turn.
    """

    def __init__(self, metrics: Callable[[], tuple[str, Metrics] | None]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield the counters and histograms since the worker's start, and the duration of its last checkpoint."""
        found = self._metrics()
        if found is None:
            return
        processor, metrics = found
        for kind, described in ((CounterMetricFamily, COUNTERS), (GaugeMetricFamily, GAUGES)):
            for name, (description, value_of) in described.items():
                value = value_of(metrics)
                if value is not None:
                    family = kind(_PREFIX + name, description, labels=_LABELS)
                    family.add_metric([processor], value)
                    yield family
        for name, (description, histogram_of) in HISTOGRAMS.items():
            yield _histogram(name, description, processor, histogram_of(metrics.timings))


def _histogram(name: str, description: str, processor: str, histogram: Histogram) -> HistogramMetricFamily:
    """Return a histogram since the start of the worker."""
    family = HistogramMetricFamily(f"{_PREFIX}{name}_seconds", description, labels=_LABELS)
    buckets = [("+Inf" if isinf(bound_s) else str(bound_s), float(count)) for bound_s, count in histogram.cumulative()]
    family.add_metric([processor], buckets, histogram.sum_s)
    return family


class _UserMetrics(Collector):
    """Collects the metrics that the process has registered with `prometheus_client`."""

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        yield from REGISTRY.collect()


class Exposition(NamedTuple):
    """Metrics as text.

    Args:
        content_type: the format of the text.
        text: the metrics.
    """

    content_type: str
    text: bytes


def exposition(worker: WorkerCollector, accept: str = "") -> Exposition:
    """Return the metrics of a worker, and all metrics that its process has registered with `prometheus_client`.

    Args:
        worker: the collector of the worker.
        accept: the formats that the client accepts, as in the header of a request: OpenMetrics or Prometheus' text format.
    """
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry()
    registry.register(worker)
    registry.register(_UserMetrics())
    return Exposition(content_type, encode(registry))
