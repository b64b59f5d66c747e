"""`penstock serve scuba --deploy`: a Scuba server under the supervisor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import typer

from ....processors.apps import AppName
from ....processors.declare import AnyCategory
from ...deploy import DeployedServer, DeploymentRequest, RolloutOptions, stand_in_for
from ...http import Access
from ...shell import Connection, TlsOptions, absolute_location
from .scuba_options import DEFAULT_PORT, StorageOptions, WarehouseOptions, parse_size
from .server_addresses import Addresses
from .server_deployment import deploy_servers, options_of, resolved, server_settings

PROCESS_MIB = 1024
"""The memory of a server beside its rows and queries: of Python, the Kafka client, and the events on their way."""


def deployment_of(table: str) -> str:
    """Return the name of the deployment of a server, by the name of its first table."""
    return f"scuba.{table}"


def pod_memory(memory: str) -> str:
    """Return the memory of a server's pod: of its rows and queries, and of the process around them."""
    return f"{(parse_size(memory) >> 20) + PROCESS_MIB}Mi"


@dataclass(frozen=True)
class ScubaServer:
    """A server to deploy.

    Args:
        storage: what it keeps.
        warehouse: the warehouse that it also answers for.
        timeout: the longest time of a query.
        addresses: where it listens.
        access: its access rules.
        tls: its certificate.
    """

    storage: StorageOptions
    warehouse: WarehouseOptions
    timeout: str
    addresses: Addresses
    access: Access
    tls: TlsOptions


def deploy_server(
    context: typer.Context,
    categories: Sequence[AnyCategory],
    app: AppName,
    server: ScubaServer,
    rollout: RolloutOptions,
    connection: Connection,
) -> None:
    """Deploy a server of categories. After a crash it continues after the last event in its file, so that no event is in two rows.

    Args:
        context: the context of the command.
        categories: its categories; the first one names it.
        app: the app that declares them.
        server: its options.
        rollout: how it is deployed.
        connection: the Kafka cluster and the folder.
    """
    names, folder, storage = [each.name for each in categories], connection.folder, server.storage
    name = deployment_of(names[0])
    address = server.addresses.of(name, {"http": DEFAULT_PORT}, server.tls)
    bus = connection.open()
    words = {
        "--keep": storage.keep,
        "--sample": storage.sample,
        "--max-size": storage.max_size,
        "--memory": storage.memory,
        "--file": folder.absolute() / "state" / name / "rows.duckdb",
        "--warehouse": absolute_location(server.warehouse.warehouse),
        "--webhdfs": server.warehouse.webhdfs,
        "--host": address.host,
        "--port": address.ports["http"],
        "--timeout": server.timeout,
    }
    request = DeploymentRequest(
        resolved(app),
        stand_in_for(name, list(categories)),
        server_settings(context, bus, folder, rollout, pod_memory(storage.memory), server.access),
        1,
        take_over=True,
        server=DeployedServer(
            ("serve", "scuba", *names, "--app"),
            options_of(words),
            address.urls,
            has_worker=False,
            certificate=server.tls.paths(),
        ),
    )
    deploy_servers([request], bus, folder, rollout, server.access)
