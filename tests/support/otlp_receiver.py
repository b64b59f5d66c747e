"""A receiver of spans and metrics, as a collector of OpenTelemetry: OTLP over HTTP, with its Protobuf messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Sample = tuple[str, tuple[str, ...]]
"""The name of a metric, and the values of its labels in the order of their names."""


class OtlpReceiver(ThreadingHTTPServer):
    """Keeps the spans that it receives at /v1/traces, and the last values of gauges at /v1/metrics, by the names of their services.

    While `refuses` is True, it answers with an error.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: dict[str, list[Span]] = {}
        self.gauges: dict[str, dict[Sample, float]] = {}
        self.exports = 0
        self.refuses = False

    @property
    def endpoint(self) -> str:
        """The value of OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str, body: bytes) -> bytes | None:
        """Keep the content of a request and return the answer; None for an unknown path."""
        if path == "/v1/traces":
            self._keep_spans(ExportTraceServiceRequest.FromString(body))
            return ExportTraceServiceResponse().SerializeToString()
        if path == "/v1/metrics":
            self._keep_gauges(ExportMetricsServiceRequest.FromString(body))
            return ExportMetricsServiceResponse().SerializeToString()
        return None

    def _keep_spans(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans.setdefault(_service(resource.resource.attributes), []).extend(scope.spans)

    def _keep_gauges(self, request: ExportMetricsServiceRequest) -> None:
        for resource in request.resource_metrics:
            self.gauges[_service(resource.resource.attributes)] = {
                (metric.name, _labels(point.attributes)): point.as_double
                for scope in resource.scope_metrics
                for metric in scope.metrics
                for point in metric.gauge.data_points
            }
        self.exports += 1


def _service(attributes: Iterable[KeyValue]) -> str:
    return next(each.value.string_value for each in attributes if each.key == "service.name")


def _labels(attributes: Iterable[KeyValue]) -> tuple[str, ...]:
    return tuple(each.value.string_value for each in sorted(attributes, key=lambda each: each.key))


class _Handler(BaseHTTPRequestHandler):
    server: OtlpReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = None if self.server.refuses else self.server.answer(self.path, body)
        if answer is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Yield a receiver on a free port of this machine."""
    with OtlpReceiver() as receiver:
        thread = Thread(target=receiver.serve_forever, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()
