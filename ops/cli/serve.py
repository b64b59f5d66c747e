"""`penstock serve`: answers queries for results of processors over HTTP."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from ...processors.apps.apps import AppName
from ...processors.errors import PenstockError
from ...processors.wording import counted
from ..deploy.deployed_processors import deployed_processors
from ..listening import listening_at
from ..monitoring.observer import Observer
from ..monitoring.reports import node_of
from ..serving.access import Access
from ..serving.follower import ResultFollower
from ..serving.freshness import FreshnessReader
from ..serving.read_counter import ReadCounter
from ..serving.served import served_processors
from .option_groups import with_option_groups
from .options import DEFAULT_FOLDER, Folder, Kafka, TlsOptions, connect
from .output import note
from .signals import stop_on_signals
from .times import parse_span

DEFAULT_PORT = 8730


class ServerMissing(PenstockError):
    """The web server is not installed: install the extra."""


@with_option_groups
def serve(
    target: Annotated[str, typer.Argument(metavar="APP[:PROCESSOR]", help="An app: a .py or .sql file, or a module.")],
    processors: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROCESSOR…",
            help="Processors of the app; the default is all aggregators, and the stateless processors after them.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on. An address that other machines can reach requires a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for a free one.", min=0, max=65_535)] = DEFAULT_PORT,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="A file with the token that clients send as `Authorization: Bearer TOKEN`.",
            show_default=False,
        ),
    ] = None,
    *,
    tls: TlsOptions,
    keep: Annotated[
        str, typer.Option(help="How long a window is kept in memory after its last change, if Kafka keeps it as long.")
    ] = "7d",
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Answer queries for results by key, window and rank over HTTP with JSON, until Ctrl-C.

    It reads the categories that the processors write, into memory. So it needs no worker, and answers with the lag when workers stop. Start
    several on different ports for more queries. /openapi.json describes the requests; `penstock query` and Grafana send them.

    Example: penstock serve shop.sql views_per_page
    """
    try:
        # Only this command needs the server, which is an extra.
        from ..serving.serving import create_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ServerMissing(
            f"The query server needs the package {error.name}, which is not installed. Nothing was started. Install it with `pip install "
            "'penstock[serve]'`."
        ) from error
    certificate = tls.certificate()
    access = Access.at(host, token_file)
    name = AppName.parse(target)
    app = name.whole.load()
    served = served_processors(app, [*([] if name.processor is None else [name.processor]), *(processors or ())])
    bus = connect(kafka, folder)
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
            bound_host, bound_port = listener.getsockname()[:2]
            address = f"[{bound_host}]" if ":" in bound_host else bound_host
            scheme = "http" if certificate is None else "https"
            note(
                f"{counted(len(served), 'processor')} at {scheme}://{address}:{bound_port} (Ctrl-C ends it): {', '.join(each.name for each in served)}"
            )
            server.run(sockets=[listener])
