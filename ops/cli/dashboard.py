"""`penstock dashboard`: serves a web page for monitoring."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from ...processors.apps.apps import AppName
from ...processors.errors import PenstockError
from ..listening import listening_at
from .options import DEFAULT_FOLDER, Folder, Kafka, connect
from .output import note
from .signals import stop_on_signals
from .status import Watched, observer_factory
from .waiting import BrokerWait, FailFast

DEFAULT_PORT = 8710


class DashboardMissing(PenstockError):
    """The web server is not installed: install the extra."""


def dashboard(
    target: Watched = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on. An address that other machines can reach requires a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for a free one.", min=0, max=65_535)] = DEFAULT_PORT,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_DASHBOARD_TOKEN",
            help="A token that visitors must enter. Set it with the environment variable: other users can read command lines.",
            show_default=False,
        ),
    ] = None,
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Serve a page with the graph, plots, findings, and each processor's state and dead letters, until Ctrl-C.

    It only reads. With an app file it also shows the content of states, and tries dead letters again without writing anything.
    Without a broker, it waits, and serves the page when one answers.

    Example: penstock dashboard examples/flights/app.py
    """
    try:
        # Only this command needs them: the server is an extra.
        from ..dashboard.access import Access  # noqa: PLC0415
        from ..dashboard.broadcast import Broadcaster  # noqa: PLC0415
        from ..dashboard.poller import Poller  # noqa: PLC0415
        from ..dashboard.serving import create_server, url_of  # noqa: PLC0415
        from ..dashboard.site import SiteContent  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise DashboardMissing(
            f"The dashboard needs the package {error.name}, which is not installed. Nothing was started. Install it with `pip install "
            "'penstock[dashboard]'`."
        ) from error
    access = Access.at(host, token)
    app = None if target is None else AppName.parse(target)
    bus = connect(kafka, folder)
    open_observer = observer_factory(target, folder)
    content = SiteContent(bus, app, folder / "state", title=target or bus.settings.bootstrap)
    with (
        listening_at(host, port, "The dashboard") as listener,
        closing(
            Broadcaster(BrokerWait(fail_fast=fail_fast)(lambda: Poller.open(bus, open_observer(bus))))
        ) as broadcaster,
    ):
        server = create_server(content, broadcaster, access)
        with stop_on_signals(server.stop):
            broadcaster.start()
            login = "it requires the token; " if token is not None else ""
            note(f"The dashboard is at {url_of(listener)} ({login}Ctrl-C ends it)")
            server.run(sockets=[listener])
