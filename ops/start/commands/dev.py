"""`penstock dev`: local services for development and tests."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from ...shell import DEFAULT_FOLDER, AsJson, Folder, note, print_json, print_table, progress_steps
from ..dev_services import LocalServices, ServiceStatus

app = typer.Typer(help="Start and stop local services.", no_args_is_help=True)


class ServiceName(StrEnum):
    """A local service."""

    KAFKA = "kafka"
    HDFS = "hdfs"


Services = Annotated[
    list[ServiceName] | None, typer.Argument(help="kafka, hdfs or both; the default is both.", show_default=False)
]


@app.command()
def up(services: Services = None, folder: Folder = DEFAULT_FOLDER, json: AsJson = False) -> None:
    """Start services, and return when they answer.

    Example: penstock dev up kafka
    """
    with progress_steps() as show:
        states = LocalServices(folder).up(_names(services), progress=show)
    _show(list(states.values()), json)


@app.command()
def status(folder: Folder = DEFAULT_FOLDER, json: AsJson = False) -> None:
    """Show the services and their addresses.

    Example: penstock dev status --json
    """
    _show(LocalServices(folder).status(), json)


@app.command()
def down(services: Services = None, folder: Folder = DEFAULT_FOLDER, json: AsJson = False) -> None:
    """Stop services; their data stays.

    Example: penstock dev down
    """
    local = LocalServices(folder)
    local.down(_names(services), progress=note)
    _show(local.status(), json)


def _names(services: list[ServiceName] | None) -> list[str]:
    return [service.value for service in services or list(ServiceName)]


def _show(states: list[ServiceStatus], json: bool) -> None:
    if json:
        print_json([asdict(state) for state in states])
        return
    rows = [
        (state.name, state.state, str(state.pid or ""), "  ".join(f"{k} {v}" for k, v in state.endpoints.items()))
        for state in states
    ]
    print_table(("service", "state", "pid", "endpoints"), rows)
