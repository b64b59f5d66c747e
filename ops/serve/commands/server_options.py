"""Options of servers: their address, their tokens, which their clients take alike, and whether they run here or are deployed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ...deploy import RolloutOptions
from ...http import Access, ProtectedServer, read_secret
from ...kernel import SupervisedOptions
from ...shell import is_given

RESULTS = ProtectedServer("query server", "results", "penstock serve results", "PENSTOCK_SERVER_TOKEN")
LASER = ProtectedServer("Laser server", "the content of events", "penstock serve laser", "PENSTOCK_LASER_TOKEN")
SCUBA = ProtectedServer("Scuba server", "the content of events", "penstock serve scuba", "PENSTOCK_SCUBA_TOKEN")
DASHBOARD = ProtectedServer(
    "dashboard", "the content of events and states", "penstock serve dashboard", "PENSTOCK_DASHBOARD_TOKEN"
)
VIEWER_TOKEN, PROXY_SECRET = "PENSTOCK_DASHBOARD_VIEWER_TOKEN", "PENSTOCK_DASHBOARD_PROXY_SECRET"
_HERE = frozenset({"fail_fast", *(field.name for field in fields(SupervisedOptions))})
"""The parameters of a server that runs in this process."""
_DEPLOYED = frozenset(field.name for field in fields(RolloutOptions))
"""The parameters of a server that is deployed."""


def secret_file(variable: str, content: str, name: str = "token") -> Any:
    """Return the option with the file of a secret.

    Args:
        variable: the environment variable that contains the secret without the option.
        content: what the file contains, for the help.
        name: the name of the secret.
    """
    text = f"A file with {content}; without it, the variable {variable} contains it."
    return typer.Option(f"--{name}-file", metavar="FILE", help=text, show_default=False)


def port_option(first: int, *, deployed: bool = False) -> Any:
    """Return the option with the port of a server.

    Args:
        first: the port without the option.
        deployed: whether the server can be deployed.
    """
    also = f" Deployed servers use the first free one from {first} on." if deployed else ""
    return typer.Option("--port", help=f"The port; 0 for a free one.{also}", min=0, max=65_535, show_default=str(first))


ResultsToken = Annotated[Path | None, secret_file(RESULTS.variable, "the token of the query server")]
LaserToken = Annotated[Path | None, secret_file(LASER.variable, "the token, the password of AUTH")]
ScubaToken = Annotated[Path | None, secret_file(SCUBA.variable, "the token of the Scuba server")]
Deploy = Annotated[
    bool,
    typer.Option("--deploy", help="Start it under a supervisor, which keeps it running. `penstock undeploy` stops it."),
]


def access_to(server: ProtectedServer, token_file: Path | None, host: str) -> Access:
    """Return the access rules of a server with a token.

    Args:
        server: the server.
        token_file: the value of `--token-file`.
        host: the value of `--host`.

    Raises:
        AccessRefused: other machines can reach it without a token, or the token is unusable.
    """
    return Access(server, read_secret(token_file, server.variable)).for_host(host)


def expect_options_for(
    context: typer.Context, *, deploy: bool, here: Collection[str], deployed: Collection[str]
) -> None:
    """Refuse options of the command line that have no effect with `--deploy`, or without it.

    Args:
        context: the context of the command.
        deploy: the value of `--deploy`.
        here: its parameters for a server in this process, beside the ones of all servers.
        deployed: its parameters for deployed servers, beside the ones of all servers.
    """
    without_effect = {*here, *_HERE} if deploy else {*deployed, *_DEPLOYED}
    for option in context.command.params:
        if option.name in without_effect and is_given(context, option.name):
            raise typer.BadParameter(
                f"{option.opts[0]} is for a server in this process, so it excludes --deploy. Nothing was deployed. Leave one of the two out."
                if deploy
                else f"{option.opts[0]} is for deployed servers. Nothing was started. Add --deploy, or leave it out."
            )
