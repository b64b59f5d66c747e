"""`penstock serve laser --deploy`: tiers of Laser tables under the supervisor."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import typer

from ....processors import DeclarationChanged, counted
from ....processors.apps import AppName
from ....transport.kafka import KafkaBus
from ...deploy import (
    DAY_TABLE_OPTION,
    DeployedServer,
    DeploymentRequest,
    DeploymentSettings,
    IncompatibleState,
    RolloutOptions,
    deployment_lock,
    names_of_deployments,
    plan_purge,
    server_of,
    servers_named,
    stand_in_for,
    stop_and_purge,
)
from ...http import Access
from ...shell import Connection, TlsOptions, absolute_location, configuration_of, note
from ..latest import DeclaredTable
from .laser_options import TableOptions
from .server_addresses import Addresses, ServerAddress
from .server_deployment import deploy_servers, options_of, resolved, server_settings

FIRST_PORT, FIRST_HTTP_PORT = 8720, 8780
PATIENCE_S = 600.0
"""The longest time that a new tier may take by default: it reads the whole category first."""


@dataclass(frozen=True)
class TierOptions:
    """The options of servers of tables.

    Args:
        addresses: where they listen.
        access: their access rules.
        tls: their certificate.
        connections: the most connections at a time.
        port: the port of the first server; None or 0 for a free one.
        http: the port of the first server for HTTP requests, 0 for a free one; None for none.
        replicas: the number of servers of a table; None for the declared one, or one.
        backup: the location of their backups; None without.
        webhdfs: the address of WebHDFS.
        backup_every_s: the interval between backups.
        memory: the memory of a pod, in Kubernetes' notation.
    """

    addresses: Addresses
    access: Access
    tls: TlsOptions
    connections: int
    port: int | None
    http: int | None
    replicas: int | None
    backup: str | None
    webhdfs: str | None
    backup_every_s: float
    memory: str


def deploy_tables(
    context: typer.Context,
    name: str | None,
    table: TableOptions,
    tiers: TierOptions,
    rollout: RolloutOptions,
    connection: Connection,
    *,
    all_tables: bool,
) -> None:
    """Deploy the servers of a table, or of all tables that the configuration declares, and remove those beyond the number asked for.

    Args:
        context: the context of the command.
        name: the name of the table; None with `all_tables`.
        table: its pairs.
        tiers: its servers.
        rollout: how they are deployed.
        connection: the Kafka cluster and the folder.
        all_tables: whether to deploy all declared tables.
    """
    configuration, folder = configuration_of(context), connection.folder
    declared_names = configuration.names(DeclaredTable)
    if all_tables:
        _report_undeclared(declared_names, folder)
    names = names_to_deploy(name, declared_names, all_tables=all_tables)
    if all_tables:
        table.expect_for_all()
        if tiers.port:
            raise typer.BadParameter(
                "--port is for one table, and --all deploys several. Nothing was deployed. Leave it out: servers use free ports and keep them; or name "
                "one table."
            )
    bus = connection.open()
    settings = msgspec.structs.replace(
        server_settings(context, bus, folder, rollout, tiers.memory, tiers.access),
        backup=absolute_location(tiers.backup),
        webhdfs=tiers.webhdfs,
        backup_every_s=tiers.backup_every_s,
    )
    ports = {"redis": FIRST_PORT} | ({} if tiers.http is None else {"http": FIRST_HTTP_PORT})
    requests = []
    for each in names:
        declared = configuration.named_section(DeclaredTable, each)
        servers = _Tiers(each, table.or_declared(each, declared), tiers, folder, settings)
        for number in range(1, (tiers.replicas or (1 if declared is None else declared.replicas)) + 1):
            address = tiers.addresses.of(servers.deployment(number), ports, tiers.tls, servers.group)
            requests.append(servers.request(number, address))
    patient = replace(rollout, patience=rollout.patience or PATIENCE_S)
    try:
        deploy_servers(requests, bus, folder, patient, tiers.access)
    except DeclarationChanged as error:
        refused = _table_of(error.processor)
        raise IncompatibleState(
            f"Laser table {refused} was not changed, and its servers continue: its saved pairs have other columns, or come from another category, "
            f"than asked for. Deploy under another name; or delete these pairs first with `penstock undeploy laser.{refused} --purge`, which stops "
            "all reads until the category has been read again.",
            error.processor,
        ) from error
    if not rollout.writes_only:
        _remove_superfluous(names, {request.name for request in requests}, folder, bus)


def names_to_deploy(name: str | None, declared: Sequence[str], *, all_tables: bool) -> Sequence[str]:
    """Return the names of the tables to deploy."""
    if name is not None and all_tables:
        raise typer.BadParameter(
            f"--all deploys every declared table, and {name} is one. Nothing was deployed. Leave one of the two out."
        )
    if name is not None:
        return [name]
    if not declared:
        raise typer.BadParameter(
            "no table is named, and the configuration declares none. Nothing was deployed. Name a table, with --key and --value, or declare it as "
            "[laser-tables.NAME] in the configuration."
        )
    if not all_tables:
        raise typer.BadParameter(
            f"no table is named. Nothing was deployed. Name one, or add --all for all that the configuration declares: {', '.join(declared)}."
        )
    return declared


def _remove_superfluous(names: Sequence[str], kept: Collection[str], folder: Path, bus: KafkaBus) -> None:
    """Remove the servers of tables beyond the deployed ones."""
    with deployment_lock(folder, note):
        for server in (each for name in names for each in servers_named(folder, f"laser.{name}") if each not in kept):
            stop_and_purge(plan_purge(folder, server, bus), folder, bus)
            note(f"{server} was removed: its table has fewer servers now.")


class _Tiers:
    """The servers of a table: `laser.NAME.1` and so on, each a processor of its own."""

    def __init__(
        self,
        name: str,
        table: TableOptions,
        tiers: TierOptions,
        folder: Path,
        settings: DeploymentSettings,
    ) -> None:
        self._name, self._table, self._options = name, table, tiers
        self._folder, self._settings = folder, settings

    @property
    def group(self) -> str:
        """The name that all of them share."""
        return f"laser.{self._name}"

    def deployment(self, number: int) -> str:
        """Return the name of a server's deployment and processor."""
        return f"{self.group}.{number}"

    def request(self, number: int, address: ServerAddress) -> DeploymentRequest:
        """Return the request for a server."""
        options, name = self._table, f"{self._name}.{number}"
        daily = options.daily(name, self._settings.webhdfs)
        words = {
            "--key": options.key,
            "--value": options.value,
            "--keep": options.keep,
            "--host": address.host,
            "--port": address.ports["redis"],
            "--http": address.ports.get("http"),
            "--connections": self._options.connections,
        }
        if daily is not None:
            source = options_of({DAY_TABLE_OPTION: daily.files.location, "--webhdfs": self._settings.webhdfs})
            server = self._server(("serve", "laser", name), (*source, *options_of(words)), address, reads_app=False)
            stand_in = stand_in_for(f"laser.{name}", ())
            return DeploymentRequest(
                AppName(Path(daily.files.location)), stand_in, self._settings, 1, take_over=True, server=server
            )
        table, app = options.table(name, self._folder, self._name)
        source = ("--category", table.category.name)
        server = self._server(("serve", "laser", name, "--app"), (*source, *options_of(words)), address, reads_app=True)
        return DeploymentRequest(resolved(app), table.processor(), self._settings, 1, take_over=True, server=server)

    def _server(
        self, command: tuple[str, ...], words: tuple[str, ...], address: ServerAddress, *, reads_app: bool
    ) -> DeployedServer:
        """Return a server, which has a worker if it reads an app."""
        return DeployedServer(command, words, address.urls, reads_app, reads_app, self.group, self._options.tls.paths())


def _table_of(deployment: str) -> str | None:
    """Return the name of the table of a server; None for another deployment."""
    match = re.fullmatch(r"laser\.(.+)\.\d+", deployment)
    return None if match is None else match[1]


def _report_undeclared(declared: Sequence[str], folder: Path) -> None:
    """Report tables with servers that the configuration does not declare, or no longer."""
    counts = Counter(_table_of(name) for name in names_of_deployments(folder) if server_of(folder, name) is not None)
    for name, servers in sorted((name, count) for name, count in counts.items() if name and name not in declared):
        note(
            f"Laser table {name} is deployed, and the configuration does not declare it. It stays, with {counted(servers, 'server')}. "
            f"`penstock undeploy laser.{name} --purge` removes it."
        )
