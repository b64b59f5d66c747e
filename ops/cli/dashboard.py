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
from .root import configuration_of
from .signals import stop_on_signals
from .status import Watched, observer_factory
from .waiting import BrokerWait, FailFast

DEFAULT_PORT = 8710


class DashboardMissing(PenstockError):
    """The web server is not installed: install the extra."""


def dashboard(
    context: typer.Context,
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
    viewer_token: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_DASHBOARD_VIEWER_TOKEN",
            help="A token of visitors who may only read. Visitors with --token may also operate.",
            show_default=False,
        ),
    ] = None,
    proxy_secret: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_DASHBOARD_PROXY_SECRET",
            help="The secret that a proxy sends, which logs users in: X-Forwarded-User and -Groups count only with it.",
            show_default=False,
        ),
    ] = None,
    operators: Annotated[
        list[str] | None,
        typer.Option(
            "--operators",
            metavar="GROUP",
            help="A group of the proxy's users who may operate; repeatable.",
            show_default=False,
        ),
    ] = None,
    viewers: Annotated[
        list[str] | None,
        typer.Option(
            "--viewers",
            metavar="GROUP",
            help="A group of the proxy's users who may read; the default is all. Repeatable.",
            show_default=False,
        ),
    ] = None,
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Serve a page with the graph, plots, findings, and each processor's state and dead letters, until Ctrl-C.

    With an app file it also shows the content of states, and tries dead letters again without writing anything. With a token or a proxy, operators
    roll deployments back, scale them and silence alerts; all others only read. Without a broker, it waits, and serves the page when one answers.

    Example: penstock dashboard examples/flights/app.py
    """
    try:
        # Only this command needs them: the server is an extra.
        from ..dashboard.access import Access  # noqa: PLC0415
        from ..dashboard.broadcast import Broadcaster  # noqa: PLC0415
        from ..dashboard.history import History  # noqa: PLC0415
        from ..dashboard.history_file import HistoryFile  # noqa: PLC0415
        from ..dashboard.operations import CommandOperator  # noqa: PLC0415
        from ..dashboard.poller import Poller  # noqa: PLC0415
        from ..dashboard.serving import create_server, url_of  # noqa: PLC0415
        from ..dashboard.site import SiteContent  # noqa: PLC0415
        from ..dashboard.visitors import TrustedProxy  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise DashboardMissing(
            f"The dashboard needs the package {error.name}, which is not installed. Nothing was started. Install it with `pip install "
            "'penstock[dashboard]'`."
        ) from error
    if proxy_secret is None and (operators or viewers):
        raise typer.BadParameter(
            "--operators and --viewers name groups of a proxy's users: set PENSTOCK_DASHBOARD_PROXY_SECRET, too."
        )
    proxy = (
        None
        if proxy_secret is None
        else TrustedProxy(proxy_secret, frozenset(operators or ()), frozenset(viewers or ()))
    )
    access = Access.at(host, token, viewer_token=viewer_token, proxy=proxy)
    app = None if target is None else AppName.parse(target)
    bus = connect(kafka, folder)
    open_observer = observer_factory(target, folder)
    content = SiteContent(bus, app, folder, title=target or bus.settings.bootstrap)
    with (
        listening_at(host, port, "The dashboard") as listener,
        closing(
            Broadcaster(
                BrokerWait(fail_fast=fail_fast)(lambda: Poller.open(bus, open_observer(bus))),
                history=History(HistoryFile(folder, bus.settings.bootstrap)),
            )
        ) as broadcaster,
    ):
        operator = CommandOperator(bus.settings.bootstrap, folder.absolute(), configuration_of(context).file.path)
        server = create_server(content, broadcaster, access, operator)
        with stop_on_signals(server.stop):
            broadcaster.start()
            login = "" if access.is_open else "it requires a token; " if proxy is None else "it requires its proxy; "
            note(f"The dashboard is at {url_of(listener)} ({login}Ctrl-C ends it)")
            server.run(sockets=[listener])
