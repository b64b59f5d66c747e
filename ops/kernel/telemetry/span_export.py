"""Export of spans in the background, by OTLP over HTTP, as OpenTelemetry's environment variables configure it.

SpanTracer --ended spans--> SpanQueue --thread--> CountingExporter --OTLP/HTTP--> receiver
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_TRACES_SAMPLER,
)
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import DEFAULT_OFF, ParentBased

from ....processors import PenstockError, counted
from ....processors.declare import Processor
from .span_tracer import SpanTracer
from .trace_context import SpanMetrics

_LOG = logging.getLogger("penstock.worker")
_SDK_LOGGERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""The loggers of failed exports."""
DEFAULT_ENDPOINT = "http://localhost:4318"
QUEUED_SPANS = 20_000
"""The default limit of the queue. A poll may return 10,000 events, whose spans end together."""
FLUSH_LIMIT_S = 3.0
"""How long an ending worker waits for the export of its last spans."""


class TracesMisconfigured(PenstockError):
    """A variable of OpenTelemetry is invalid: correct it."""


@contextmanager
def exported_spans(
    processor: type[Processor], exporter: SpanExporter | None = None, flush_limit_s: float = FLUSH_LIMIT_S
) -> Iterator[SpanTracer]:
    """Yield the tracer of a worker. Failed exports are counted and logged once; they never reach the worker.

    At the end, this waits up to a limit for the export of the last spans.

    Args:
        processor: names the service where OTEL_SERVICE_NAME is not set.
        exporter: exports the spans. Default: OTLP over HTTP.
        flush_limit_s: the limit.

    Raises:
        TracesMisconfigured: a variable of OpenTelemetry is invalid.
    """
    metrics = SpanMetrics()
    with _export_log() as log:
        try:
            counting = CountingExporter(exporter or OTLPSpanExporter(), metrics, log)
            queue = SpanQueue(counting, metrics, log)
        except ValueError as error:
            raise TracesMisconfigured(
                f"A variable of OpenTelemetry is invalid: {error}. Nothing was read. Correct the variable, whose name begins with OTEL_."
            ) from error
        provider = TracerProvider(_sampler(), _resource(processor), shutdown_on_exit=False)
        provider.add_span_processor(queue)
        try:
            yield SpanTracer(processor, provider, metrics)
        finally:
            _flush(provider, counting, flush_limit_s)
            metrics.dropped += metrics.pending
            if metrics.lost:
                log.report()
                _LOG.warning("Did not export %d of %s.", metrics.lost, counted(metrics.ended, "span"))


def _sampler() -> ParentBased | None:
    """Return the sampler for workers where none is configured; None for the configured one.

    The SDK's default would create a root span for each event without a trace context: more than a receiver accepts.
    """
    return None if os.environ.get(OTEL_TRACES_SAMPLER) else DEFAULT_OFF


def _resource(processor: type[Processor]) -> Resource:
    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return resource.merge(Resource({SERVICE_NAME: processor.name}))
    return resource


def _flush(provider: TracerProvider, exporter: SpanExporter, limit_s: float) -> None:
    """Export the queued spans, and end the export after a limit. The SDK's own limit is 30 s."""
    ending = threading.Thread(target=provider.shutdown, name="span flush", daemon=True)
    ending.start()
    ending.join(limit_s)
    if ending.is_alive():
        exporter.shutdown()


class ExportLog(logging.Filter):
    """Replaces the SDK's log lines about failed exports, which repeat, by one warning."""

    def __init__(self) -> None:
        super().__init__()
        self._reason = ""
        self._is_logged = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the first line of a failure as its reason, and log nothing."""
        self._reason = self._reason or record.getMessage()
        return False

    def record_success(self) -> None:
        """Forget the reason of earlier failures."""
        self._reason = ""

    def report(self, reason: str = "") -> None:
        """Log a failure if it is the first one."""
        if self._is_logged:
            return
        self._is_logged = True
        _LOG.warning(
            "Spans cannot be exported to %s: %s. Events are processed as usual. Further failures are counted (spans in the metrics of the "
            "worker), but not logged. Check OTEL_EXPORTER_OTLP_ENDPOINT and the receiver.",
            os.environ.get(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)
            or os.environ.get(OTEL_EXPORTER_OTLP_ENDPOINT)
            or DEFAULT_ENDPOINT,
            (reason or self._reason or "it did not answer").rstrip("."),
        )


@contextmanager
def _export_log() -> Iterator[ExportLog]:
    log = ExportLog()
    loggers = [logging.getLogger(name) for name in _SDK_LOGGERS]
    for logger in loggers:
        logger.addFilter(log)
    try:
        yield log
    finally:
        for logger in loggers:
            logger.removeFilter(log)


class CountingExporter(SpanExporter):
    """Counts exported spans, and spans whose export failed. Called by the thread of the queue.

    Args:
        exporter: exports the spans.
        metrics: counts them.
        log: reports failures.
    """

    def __init__(self, exporter: SpanExporter, metrics: SpanMetrics, log: ExportLog) -> None:
        self._exporter = exporter
        self._metrics = metrics
        self._log = log
        self._is_shut_down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans. After a shutdown, nothing is counted: the remaining spans count as dropped."""
        result = self._exporter.export(spans)
        if self._is_shut_down:
            return result
        if result is SpanExportResult.SUCCESS:
            self._metrics.exported += len(spans)
            self._log.record_success()
        else:
            self._metrics.failed += len(spans)
            self._log.report()
        return result

    def shutdown(self) -> None:
        """End the export, also a retry in progress. A second call has no effect."""
        if not self._is_shut_down:
            self._is_shut_down = True
            self._exporter.shutdown()


class SpanQueue(BatchSpanProcessor):
    """Queues ended spans for the thread that exports them. A span without a place in the queue is dropped and counted.

    Args:
        exporter: exports the spans.
        metrics: counts them.
        log: reports a full queue.
    """

    def __init__(self, exporter: SpanExporter, metrics: SpanMetrics, log: ExportLog) -> None:
        self._limit = int(os.environ.get(OTEL_BSP_MAX_QUEUE_SIZE) or QUEUED_SPANS)
        super().__init__(exporter, self._limit)
        self._metrics = metrics
        self._log = log

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span if it is sampled."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        is_full = self._metrics.pending >= self._limit
        self._metrics.ended += 1
        if is_full:
            self._metrics.dropped += 1
            self._log.report(f"{self._limit} spans are waiting already (OTEL_BSP_MAX_QUEUE_SIZE)")
        else:
            super().on_end(span)
