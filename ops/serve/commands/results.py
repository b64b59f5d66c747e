"""`penstock serve results`: answers queries for results of processors over HTTP."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import Annotated

import typer

from ....processors import PenstockError, counted
from ....processors.apps import AppName
from ...deploy import deployed_processors
from ...http import listening_at, url_of
from ...kernel import node_of
from ...shell import (
    Connection,
    ProtectedHost,
    TlsOptions,
    note,
    parse_span,
    stop_on_signals,
    with_option_groups,
)
from ...status import Observer
from ..results import FreshnessReader, ReadCounter, ResultFollower, served_processors
from .server_options import RESULTS, ResultsToken, access_to, port_option

DEFAULT_PORT = 8730


class ServerMissing(PenstockError):
    """The web server is not installed: install the extra."""


@with_option_groups
def results(
    target: Annotated[str, typer.Argument(metavar="APP[:PROCESSOR]", help="An app: a .py or .sql file, or a module.")],
    processors: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROCESSOR…",
            help="Processors of the app; the default is all aggregators, and the stateless processors after them.",
            show_default=False,
        ),
    ] = None,
    host: ProtectedHost = "127.0.0.1",
    port: Annotated[int, port_option(DEFAULT_PORT)] = DEFAULT_PORT,
    token_file: ResultsToken = None,
    *,
    tls: TlsOptions,
    keep: Annotated[
        str, typer.Option(help="How long a window is kept in memory after its last change, if Kafka keeps it as long.")
    ] = "7d",
    connection: Connection,
) -> None:
    """Answer queries for results by key, window and rank over HTTP with JSON, until Ctrl-C.

    It reads the categories that the processors write, into memory. So it needs no worker, and answers with the lag when workers stop. Start
    several on different ports for more queries. /openapi.json describes the requests; `penstock query` and Grafana send them.

    Example: penstock serve results shop.sql views_per_page
    """
    try:
        # Only this command needs the server, which is an extra.
        from ..results import create_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ServerMissing(
            f"The query server needs the package {error.name}, which is not installed. Nothing was started. Install it with `pip install "
            "'penstock[serve]'`."
        ) from error
    certificate = tls.certificate()
    access = access_to(RESULTS, token_file, host)
    name = AppName.parse(target)
    app = name.whole.load()
    served = served_processors(app, [*([] if name.processor is None else [name.processor]), *(processors or ())])
    bus, folder = connection.open(), connection.folder
    follower = ResultFollower(served, bus, parse_span(keep))
    nodes = [node_of(processor) for processor in app.processors]
    freshness = FreshnessReader(
        follower,
        bus,
        lambda: Observer.open(bus, nodes, include_others=False, deployed=lambda: deployed_processors(folder)),
    )
    with (
        listening_at(host, port, "The query server") as listener,
        closing(follower),
        closing(freshness),
        closing(
            ReadCounter(bus, f"{socket.gethostname()}:{listener.getsockname()[1]}", list(follower.served))
        ) as reads,
    ):
        server = create_server(follower, freshness, reads, access, certificate)

        def stop() -> None:
            server.should_exit = True

        with stop_on_signals(stop):
            follower.start()
            freshness.start()
            reads.start()
            url = url_of(listener, "http" if certificate is None else "https")
            note(
                f"{counted(len(served), 'processor')} at {url} (Ctrl-C ends it): {', '.join(each.name for each in served)}"
            )
            server.run(sockets=[listener])
