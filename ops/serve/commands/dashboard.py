"""`penstock serve dashboard`: serves a web page for monitoring."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....processors import PenstockError
from ....processors.apps import AppName
from ....transport import BusRefuses, BusUnreachable
from ...http import Access, TrustedProxy, listening_at, read_secret, url_of
from ...shell import (
    DEFAULT_FOLDER,
    BrokerWait,
    FailFast,
    Folder,
    Kafka,
    ProtectedHost,
    configuration_of,
    connect,
    note,
    stop_on_signals,
)
from ...status import Watched, observer_factory
from .server_options import DASHBOARD, PROXY_SECRET, VIEWER_TOKEN, port_option, secret_file

if TYPE_CHECKING:
    from ..dashboard import LazyPoller  # an extra

DEFAULT_PORT = 8710


class DashboardMissing(PenstockError):
    """The web server is not installed: install the extra."""


def dashboard(
    context: typer.Context,
    target: Watched = None,
    host: ProtectedHost = "127.0.0.1",
    port: Annotated[int, port_option(DEFAULT_PORT)] = DEFAULT_PORT,
    token_file: Annotated[Path | None, secret_file(DASHBOARD.variable, "the token of operators")] = None,
    viewer_token_file: Annotated[
        Path | None, secret_file(VIEWER_TOKEN, "the token of visitors who may only read", "viewer-token")
    ] = None,
    proxy_secret_file: Annotated[
        Path | None,
        secret_file(
            PROXY_SECRET,
            "the secret that a proxy sends, which logs users in: X-Forwarded-User and -Groups count only with it",
            "proxy-secret",
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
    roll deployments back, scale them and silence alerts; all others only read. Without a broker, the page shows the last known status with its age.

    Example: penstock serve dashboard examples/flights/app.py
    """
    try:
        # Only this command needs them: the server is an extra.
        from ..dashboard import (  # noqa: PLC0415  # noqa: PLC0415
            Broadcaster,
            CommandOperator,
            History,
            HistoryFile,
            LazyPoller,
            Poller,
            SiteContent,
            create_server,
        )
    except ModuleNotFoundError as error:
        raise DashboardMissing(
            f"The dashboard needs the package {error.name}, which is not installed. Nothing was started. Install it with `pip install "
            "'penstock[dashboard]'`."
        ) from error
    proxy_secret = read_secret(proxy_secret_file, PROXY_SECRET, "secret of the proxy")
    if proxy_secret is None and (operators or viewers):
        raise typer.BadParameter(
            "--operators and --viewers name groups of a proxy's users: pass its secret with --proxy-secret-file, too."
        )
    proxy = (
        None
        if proxy_secret is None
        else TrustedProxy(proxy_secret, frozenset(operators or ()), frozenset(viewers or ()))
    )
    access = Access(
        DASHBOARD,
        read_secret(token_file, DASHBOARD.variable),
        read_secret(viewer_token_file, VIEWER_TOKEN, "token of viewers"),
        proxy,
    ).for_host(host)
    app = None if target is None else AppName.parse(target)
    bus = connect(kafka, folder)
    open_observer = observer_factory(target, folder)
    source = LazyPoller(lambda: Poller.open(bus, open_observer(bus)))
    content = SiteContent(bus, app, folder, title=target or bus.settings.bootstrap)
    with (
        listening_at(host, port, "The dashboard") as listener,
        closing(
            Broadcaster(
                source,
                history=History(HistoryFile(folder, bus.settings.bootstrap, target)),
            )
        ) as broadcaster,
    ):
        _open(source, fail_fast=fail_fast)
        operator = CommandOperator(bus.settings.bootstrap, folder.absolute(), configuration_of(context).file.path)
        server = create_server(content, broadcaster, access, operator)
        with stop_on_signals(server.stop):
            broadcaster.start()
            login = "" if access.is_open else "it requires a token; " if proxy is None else "it requires its proxy; "
            note(f"The dashboard is at {url_of(listener, 'http')}/ ({login}Ctrl-C ends it)")
            server.run(sockets=[listener])


def _open(source: LazyPoller, *, fail_fast: bool) -> None:
    """Read the first status; without a broker, report that the page begins with the last known one."""
    try:
        BrokerWait(fail_fast=True)(source.open)
    except BusUnreachable as error:
        if fail_fast or isinstance(error, BusRefuses):
            raise
        note(f"{error} Until a broker answers, the page shows the last known status.")
