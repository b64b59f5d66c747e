"""Tokens of servers: from a file or an environment variable, for the commands of the server and of its clients alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ...http import ProtectedServer

RESULTS = ProtectedServer("query server", "results", "penstock serve", "PENSTOCK_SERVER_TOKEN")
LASER = ProtectedServer("Laser server", "the content of events", "penstock laser serve", "PENSTOCK_LASER_TOKEN")
SCUBA = ProtectedServer("Scuba server", "the content of events", "penstock scuba serve", "PENSTOCK_SCUBA_TOKEN")
DASHBOARD = ProtectedServer(
    "dashboard", "the content of events and states", "penstock dashboard", "PENSTOCK_DASHBOARD_TOKEN"
)
VIEWER_TOKEN, PROXY_SECRET = "PENSTOCK_DASHBOARD_VIEWER_TOKEN", "PENSTOCK_DASHBOARD_PROXY_SECRET"


def secret_file(variable: str, content: str, name: str = "token") -> Any:
    """Return the option with the file of a secret.

    Args:
        variable: the environment variable that contains the secret without the option.
        content: what the file contains, for the help.
        name: the name of the secret.
    """
    text = f"A file with {content}; without it, the variable {variable} contains it."
    return typer.Option(f"--{name}-file", metavar="FILE", help=text, show_default=False)


ResultsToken = Annotated[Path | None, secret_file(RESULTS.variable, "the token of the query server")]
LaserToken = Annotated[Path | None, secret_file(LASER.variable, "the token, the password of AUTH")]
ScubaToken = Annotated[Path | None, secret_file(SCUBA.variable, "the token of the Scuba server")]
