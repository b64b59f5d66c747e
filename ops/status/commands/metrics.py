"""`penstock serve metrics`: serves metrics of processors for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from email.message import Message
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated

import typer

from ....processors import PenstockError
from ...kernel import expect_otel_installed
from ...shell import DEFAULT_FOLDER, BrokerWait, FailFast, Folder, Kafka, connect, note, stop_on_signals
from ..observer import Observer
from .status import observer_factory

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ...http import SmallHttpServer


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

    Example: penstock serve metrics --port 9464
    """
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - of one command

    from ..prometheus import StatusCollector  # noqa: PLC0415 - as above

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
            server = metrics_server(host, port, registry)
        except OSError as error:
            raise PenstockError(
                f"Cannot listen on {host}:{port}: {error.strerror}. No metrics are served. Choose another --port."
            ) from error
        stopped = Event()
        Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        with stop_on_signals(stopped.set), _exported(observer) if otlp else nullcontext():
            note(f"Metrics are at http://{host}:{server.server_port}/metrics. Stop with Ctrl-C.")
            stopped.wait()
        server.shutdown()
        server.server_close()


def metrics_server(host: str, port: int, registry: CollectorRegistry) -> SmallHttpServer:
    """Return a server of the metrics of a registry."""
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - of one command

    from ...http import Answer, SmallHttpServer  # noqa: PLC0415 - as above

    def answer(path: str, headers: Message) -> Answer:  # noqa: ARG001 - every path has the metrics
        encode, content_type = choose_encoder(headers.get("Accept", ""))
        return Answer(200, content_type, encode(registry))

    return SmallHttpServer(host, port, answer)


@contextmanager
def _exported(observer: Observer) -> Iterator[None]:
    """Export the metrics by OTLP within the context."""
    from ..otlp_metrics import exported_metrics  # noqa: PLC0415 - an extra

    with exported_metrics(observer.observe) as target:
        note(f"Metrics are exported to {target}.")
        yield
