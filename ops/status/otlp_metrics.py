"""Export of the metrics of processors by OTLP over HTTP, as OpenTelemetry's environment variables configure it.

Observer --metric_values--> gauges --each interval, in a thread--> OTLP/HTTP --> receiver
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_METRICS_ENDPOINT,
    OTEL_METRIC_EXPORT_INTERVAL,
)
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from ...processors import BackgroundThread, OutageLog, PenstockError
from ...transport import BusError
from .metrics import metric_values
from .status import ClusterStatus

_LOG = logging.getLogger("penstock.metrics")
_SDK_LOGGER = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
DEFAULT_ENDPOINT = "http://localhost:4318"
INTERVAL_MS = 60_000
"""The default of OTEL_METRIC_EXPORT_INTERVAL, as OpenTelemetry specifies it."""
STOP_LIMIT_S = 3.0
"""How long the end of the context waits for an export in progress."""


class MetricsMisconfigured(PenstockError):
    """A variable of OpenTelemetry is invalid: correct it."""


class _FailureReason(logging.Filter):
    """Keeps the SDK's first log line about a failed export as its reason, and logs none of them: they repeat."""

    def __init__(self) -> None:
        super().__init__()
        self._reason = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the reason."""
        self._reason = self._reason or record.getMessage()
        return False

    def take(self) -> str:
        """Return the reason of the last failure, and forget it."""
        reason, self._reason = self._reason, ""
        return reason or "it did not answer"


class MetricsExport:
    """Observes processors and exports their metrics. For one thread.

    Args:
        observe: returns the status of all processors.
        exporter: exports them.
    """

    def __init__(self, observe: Callable[[], ClusterStatus], exporter: MetricExporter) -> None:
        self._observe = observe
        self._exporter = exporter
        self._resource = _resource()
        self._outage = OutageLog()
        self._reason = _FailureReason()

    def export(self) -> None:
        """Export the current metrics. A failure is logged at most once in an interval, and leaves a gap."""
        logger = logging.getLogger(_SDK_LOGGER)
        logger.addFilter(self._reason)
        try:
            cluster = self._observe()
            failure = self._failure(metrics_data(cluster, self._resource))
        except BusError as error:
            failure = str(error)
        finally:
            logger.removeFilter(self._reason)
        if failure is None:
            duration_s = self._outage.end()
            if duration_s is not None:
                _LOG.warning("Metrics are exported again, after %.0f s without.", duration_s)
        elif self._outage.is_due():
            _LOG.warning(
                "%s The metrics of this interval are missing there. The export is tried again at each interval.",
                failure,
            )

    def _failure(self, data: MetricsData) -> str | None:
        if self._exporter.export(data) is MetricExportResult.SUCCESS:
            return None
        return f"Metrics cannot be exported to {endpoint()}: {self._reason.take().rstrip('.')}. Check OTEL_EXPORTER_OTLP_ENDPOINT and the receiver."


@contextmanager
def exported_metrics(observe: Callable[[], ClusterStatus]) -> Iterator[str]:
    """Export metrics in a thread until the context ends; yield where to, in words.

    Args:
        observe: returns the status of all processors; other threads may call it, too.

    Raises:
        MetricsMisconfigured: a variable of OpenTelemetry is invalid.
    """
    try:
        interval_s, exporter = _interval_s(), OTLPMetricExporter()
    except ValueError as error:
        raise MetricsMisconfigured(
            f"A variable of OpenTelemetry is invalid: {error}. No metrics are exported. Correct the variable, whose name begins with OTEL_."
        ) from error
    export = MetricsExport(observe, exporter)

    def run() -> None:
        export.export()
        while not thread.wait(interval_s):
            export.export()

    thread = BackgroundThread("metrics export", run)
    thread.start()
    try:
        yield f"{endpoint()} every {interval_s:g} s"
    finally:
        thread.close(0.0)
        exporter.shutdown()  # ends a retry in progress
        thread.close(STOP_LIMIT_S)


def metrics_data(cluster: ClusterStatus, resource: Resource) -> MetricsData:
    """Return the metrics of processors and servers as gauges, with the names and the labels that Prometheus gets.

    Args:
        cluster: their status.
        resource: what exports them.
    """
    gauges = [
        Metric(
            metric.name,
            metric.description,
            "",
            Gauge(
                [
                    NumberDataPoint(dict(zip(metric.labels, labels, strict=True)), 0, cluster.at_ms * 1_000_000, value)
                    for labels, value in metric.values
                ]
            ),
        )
        for metric in metric_values(cluster)
        if metric.values
    ]
    scope = ScopeMetrics(InstrumentationScope("penstock"), gauges, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def endpoint() -> str:
    """Return the address of the receiver."""
    return (
        os.environ.get(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT)
        or os.environ.get(OTEL_EXPORTER_OTLP_ENDPOINT)
        or DEFAULT_ENDPOINT
    )


def _interval_s() -> float:
    text = os.environ.get(OTEL_METRIC_EXPORT_INTERVAL) or str(INTERVAL_MS)
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{OTEL_METRIC_EXPORT_INTERVAL}={text} is not a positive number of milliseconds")
    return int(text) / 1_000


def _resource() -> Resource:
    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return resource.merge(Resource({SERVICE_NAME: "penstock"}))
    return resource
