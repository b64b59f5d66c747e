"""The metrics of one worker, and those of its user's code, in OpenMetrics or Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isinf
from typing import NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from .histogram import Histogram
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

RESTORE_COUNTERS = {
    "restored_states": ("states", "states restored from backups"),
    "restored_bytes": ("bytes", "bytes of the states restored from backups"),
    "restoring_seconds": (
        "seconds",
        "seconds for which states were restored from backups; at the same time, each counts",
    ),
}
"""The counters of `Restores` by their names, with attributes and descriptions."""

LOOP_COUNTERS = {
    "idle_seconds": ("idle_s", "seconds without events to process"),
    "blocked_seconds": ("blocked_s", "seconds until a checkpoint ended, because Kafka, a store or a sink was slow"),
}
"""The counters of `LoopTime` by their names, with attributes and descriptions."""

CACHE_COUNTERS = {
    "state_cache_hits": ("hits", "keys of batches whose state was in memory"),
    "state_cache_misses": ("misses", "keys of batches whose state was read from the disk and decoded"),
}
"""The counters of `StateCache` by their names, with attributes and descriptions."""

CLIENT_COUNTERS = {
    "replaced_clients": (
        "replaced",
        "Kafka clients that did not recover from an outage, and were replaced",
    ),
}
"""The counters of `ClientCounts` by their names, with attributes and descriptions."""

HISTOGRAMS = {
    "processing": "seconds for which the processor worked on a batch",
    "event_age": "seconds from the arrival of an event in Kafka to the end of its processing",
    "checkpoint": "seconds for which a checkpoint was saved",
}
"""The histograms of `Timings` by their attributes, with descriptions."""

SPAN_COUNTERS = {
    "ended": "spans of processed events",
    "exported": "spans that the receiver has accepted",
    "failed": "spans whose export failed",
    "dropped": "spans without a place in the queue",
}
"""The counters of `SpanMetrics` by their attributes, with descriptions."""


TABLE_GAUGES = {
    "rows": "rows of the lookup table",
    "size_bytes": "size of the messages with the rows of the lookup table",
    "unread": "messages that the lookup table had not applied at its last check",
}
"""The gauges of `TableSize` by their attributes, with descriptions."""


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
        for name, description in COUNTERS.items():
            yield _counter(name, description, processor, getattr(metrics, name))
        for counters, counts in (
            (RESTORE_COUNTERS, metrics.restores),
            (LOOP_COUNTERS, metrics.loop),
            (CACHE_COUNTERS, metrics.state_cache),
            (CLIENT_COUNTERS, metrics.clients),
        ):
            for name, (attribute, description) in counters.items():
                yield _counter(name, description, processor, getattr(counts, attribute))
        cache = GaugeMetricFamily(
            "penstock_worker_state_cache_bytes", "estimated memory of decoded states", labels=["processor"]
        )
        cache.add_metric([processor], metrics.state_cache.size_bytes)
        yield cache
        if metrics.standby_shards is not None:
            copies = GaugeMetricFamily(
                "penstock_worker_standby_shards",
                "shards of other workers that this machine can take over without a download",
                labels=["processor"],
            )
            copies.add_metric([processor], metrics.standby_shards())
            yield copies
        for name, description in SPAN_COUNTERS.items() if metrics.spans is not None else ():
            yield _counter(f"spans_{name}", description, processor, getattr(metrics.spans, name))
        for name, description in HISTOGRAMS.items():
            yield _histogram(name, description, processor, getattr(metrics.timings, name))
        table = None if metrics.lookups is None else metrics.lookups.table
        for name, description in TABLE_GAUGES.items() if table is not None else ():
            gauge = GaugeMetricFamily(f"penstock_worker_table_{name}", description, labels=["processor"])
            gauge.add_metric([processor], getattr(table, name))
            yield gauge
        saving = GaugeMetricFamily(
            "penstock_worker_last_checkpoint_seconds",
            "duration of the last checkpoint in seconds",
            labels=["processor"],
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


def _histogram(name: str, description: str, processor: str, histogram: Histogram) -> HistogramMetricFamily:
    """Return a histogram since the start of the worker."""
    family = HistogramMetricFamily(
        f"penstock_worker_{name}_seconds", f"{description}, since the start of the worker", labels=["processor"]
    )
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
