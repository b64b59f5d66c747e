"""`penstock metrics`: serves metrics of processors for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from threading import Event
from typing import Annotated

import typer

from ...processors.errors import PenstockError
from ..monitoring.observer import Observer
from .options import DEFAULT_FOLDER, Folder, Kafka, connect
from .output import note
from .signals import stop_on_signals
from .status import observer_factory
from .traces import expect_otel_installed
from .waiting import BrokerWait, FailFast


def metrics(
    port: Annotated[int, typer.Option("--port", help="The port; 0 for a free one.", min=0, max=65_535)] = 9464,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; the default is for this machine only.")
    ] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="Print the metrics and exit.")] = False,
    otlp: Annotated[
        bool,
        typer.Option(
            "--otlp",
            help="Also export the metrics to OpenTelemetry (OTLP over HTTP), as OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_METRIC_EXPORT_INTERVAL and its other "
            "variables say.",
        ),
    ] = False,
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Serve the metrics of all processors at /metrics, for Prometheus. Without a broker, it waits, except with --once.

    Example: penstock metrics --port 9464
    """
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server  # noqa: PLC0415 - of one command

    from ..monitoring.prometheus import StatusCollector  # noqa: PLC0415 - as above

    if otlp and once:
        raise typer.BadParameter("--once prints the metrics and exports nothing: leave out --once or --otlp.")
    if otlp:
        expect_otel_installed("--otlp")
    bus, open_observer = connect(kafka, folder), observer_factory(None, folder)
    with closing(BrokerWait(fail_fast=fail_fast or once)(lambda: open_observer(bus))) as observer:
        registry = CollectorRegistry()
        registry.register(StatusCollector(observer))
        if once:
            typer.echo(generate_latest(registry).decode(), nl=False)
            return
        try:
            server, _ = start_http_server(port, host, registry)
        except OSError as error:
            raise PenstockError(
                f"Cannot listen on {host}:{port}: {error.strerror}. No metrics are served. Choose another --port."
            ) from error
        stopped = Event()
        with stop_on_signals(stopped.set), _exported(observer) if otlp else nullcontext():
            note(f"Metrics are at http://{host}:{server.server_port}/metrics. Stop with Ctrl-C.")
            stopped.wait()
        server.shutdown()


@contextmanager
def _exported(observer: Observer) -> Iterator[None]:
    """Export the metrics by OTLP within the context."""
    from ..monitoring.otlp_metrics import exported_metrics  # noqa: PLC0415 - an extra

    with exported_metrics(observer.observe) as target:
        note(f"Metrics are exported to {target}.")
        yield
