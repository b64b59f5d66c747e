"""`penstock metrics`: the figures of processors for Prometheus."""

from __future__ import annotations

from contextlib import closing
from threading import Event
from typing import Annotated

import typer

from ...processors.errors import PenstockError
from ..monitoring.observer import Observer
from .options import DEFAULT_FOLDER, Folder, Kafka, connect
from .output import note
from .signals import stopping_on_signals
from .waiting import FailFast, Waiting


def metrics(
    port: Annotated[int, typer.Option("--port", help="Where to listen.")] = 9464,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen at; by default only this machine's own.")
    ] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="Print the figures and end.")] = False,
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Serve the figures of all processors on a bus at /metrics, for Prometheus. Where no broker answers, it waits; not with --once.

    Example: penstock metrics --port 9464
    """
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server  # noqa: PLC0415 - of one command

    from ..monitoring.prometheus import Scraped  # noqa: PLC0415 - as above

    bus = connect(kafka, folder)
    with closing(Waiting(fail_fast=fail_fast or once)(lambda: Observer(bus))) as observer:
        registry = CollectorRegistry()
        registry.register(Scraped(observer))
        if once:
            typer.echo(generate_latest(registry).decode(), nl=False)
            return
        try:
            server, _ = start_http_server(port, host, registry)
        except OSError as error:
            raise PenstockError(
                f"Nothing can listen at {host}:{port}: {error.strerror}. Give another --port."
            ) from error
        stopped = Event()
        with stopping_on_signals(stopped.set):
            note(f"Figures are at http://{host}:{port}/metrics; Ctrl-C ends this.")
            stopped.wait()
        server.shutdown()
