"""`penstock scuba deploy` and `penstock scuba delete`: a Scuba server under the supervisor, and its end."""

from __future__ import annotations

from typing import Annotated

import typer

from ...deploy import READY_LIMIT_S, DeployedServer, DeploymentRequest, stand_in_for
from ...shell import DEFAULT_FOLDER, Folder, Kafka, TlsOptions, absolute_location, audited, connect, with_option_groups
from .scuba_options import DEFAULT_PORT, ScubaEndpoint, StorageOptions, WarehouseOptions, parse_size
from .server_deployment import (
    RolloutOptions,
    category_and_app,
    delete_servers,
    deploy_servers,
    deployed_servers,
    options_of,
    resolved,
    server_settings,
)

PROCESS_MIB = 1024
"""The memory of a server beside its rows and queries: of Python, the Kafka client, and the events on their way."""


def deployment_of(table: str) -> str:
    """Return the name of the deployment of a server, by the name of its first table."""
    return f"scuba.{table}"


def pod_memory(memory: str) -> str:
    """Return the memory of a server's pod: of its rows and queries, and of the process around them."""
    return f"{(parse_size(memory) >> 20) + PROCESS_MIB}Mi"


def deploy(
    context: typer.Context,
    category: Annotated[str, typer.Argument(metavar="CATEGORY", help="The category to keep.")],
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="CATEGORY…", help="Further categories of the same app.", show_default=False),
    ] = None,
    *,
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            help="The app that declares the categories; the default is the app of a deployed processor.",
            show_default=False,
        ),
    ] = None,
    storage: StorageOptions,
    warehouse: WarehouseOptions,
    endpoint: ScubaEndpoint,
    tls: TlsOptions,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=1,
            max=65_535,
            help=f"The port; by default, a free one from {DEFAULT_PORT} on.",
            show_default=False,
        ),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            "--patience", metavar="SECONDS", help="The longest time that the server may take to start.", min=1
        ),
    ] = READY_LIMIT_S,
    rollout: RolloutOptions,
) -> None:
    """Keep the newest events of a category as columns, in a file, and answer queries of them. The supervisor keeps the server running.

    After a crash it continues after the last event in its file, so that no event is in two rows.

    Example: penstock scuba deploy views --keep 2h --sample 0.1
    """
    addresses = rollout.addresses(endpoint.host, port)
    access = endpoint.access()  # refuses an address without a token before anything is deployed
    bus, folder, name = rollout.connect(f"scuba deploy {category}"), rollout.folder, deployment_of(category)
    declared, found = category_and_app(app, category, folder)
    others = [category_and_app(str(found), each, folder)[0] for each in more or ()]
    address = addresses.of(name, {"http": DEFAULT_PORT}, tls)
    words = {
        "--keep": storage.keep,
        "--sample": storage.sample,
        "--max-size": storage.max_size,
        "--memory": storage.memory,
        "--file": folder.absolute() / "state" / name / "rows.duckdb",
        "--warehouse": absolute_location(warehouse.warehouse),
        "--webhdfs": warehouse.webhdfs,
        "--host": address.host,
        "--port": address.ports["http"],
        "--timeout": endpoint.timeout,
    }
    names = (category, *(each.name for each in others))
    server = DeployedServer(
        ("scuba", "serve"),
        (*names, *options_of(words)),
        address.urls,
        has_worker=False,
        certificate=tls.paths(),
    )
    request = DeploymentRequest(
        resolved(found),
        stand_in_for(name, [declared, *others]),
        server_settings(context, bus, rollout, pod_memory(storage.memory), access),
        1,
        take_over=True,
        server=server,
    )
    deploy_servers([request], bus, rollout, patience, access)


def delete(
    category: Annotated[str, typer.Argument(metavar="CATEGORY", help="The category that was deployed first.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Stop a server, and remove its rows and logs. The category stays.

    Example: penstock scuba delete views
    """
    bus, name = connect(kafka, folder), deployment_of(category)
    servers = deployed_servers(folder, lambda each: each == name)
    delete_servers(servers, f"Scuba of {category}", bus, folder, lambda question: yes or typer.confirm(question))


deploy_command = audited("scuba deploy")(with_option_groups(deploy))
delete_command = audited("scuba delete")(delete)
