"""`penstock laser deploy` and `penstock laser delete`: tiers of a Laser table under the supervisor, and their end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ....processors import DeclarationChanged, counted
from ....processors.apps import AppName
from ...deploy import (
    DAY_TABLE_OPTION,
    DeployedServer,
    DeploymentRequest,
    DeploymentSettings,
    IncompatibleState,
    PodMemory,
    stand_in_for,
)
from ...shell import (
    DEFAULT_FOLDER,
    Backup,
    BackupEvery,
    Folder,
    Kafka,
    TlsOptions,
    WebHdfs,
    absolute_location,
    audited,
    configuration_of,
    connect,
    note,
    with_option_groups,
)
from ..latest import MAX_REPLICAS, DeclaredTable
from .laser_options import LaserEndpoint, TableOptions
from .server_addresses import ServerAddress
from .server_deployment import (
    RolloutOptions,
    delete_servers,
    deploy_servers,
    deployed_servers,
    options_of,
    resolved,
    server_settings,
)

FIRST_PORT, FIRST_HTTP_PORT = 8720, 8780
PATIENCE_S = 600.0
"""The longest time that a new tier may take by default: it reads the whole category first."""


def deploy(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The name of the table.", show_default=False)] = None,
    *,
    all_tables: Annotated[
        bool, typer.Option("--all", help="Deploy all tables that the configuration declares.")
    ] = False,
    table: TableOptions,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            min=1,
            max=MAX_REPLICAS,
            help="The number of servers, 1 by default. Each has all pairs and its own port.",
            show_default=False,
        ),
    ] = None,
    endpoint: LaserEndpoint,
    tls: TlsOptions,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=1,
            max=65_535,
            help=f"The port of the first server, which later ones continue; by default, free ports from {FIRST_PORT} on.",
            show_default=False,
        ),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Also answer HTTP requests, on ports of their own.")] = False,
    patience: Annotated[
        float,
        typer.Option("--patience", metavar="SECONDS", help="The longest time that a server may take to start.", min=1),
    ] = PATIENCE_S,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    backup_every: BackupEvery = 60.0,
    memory: PodMemory = "1Gi",
    rollout: RolloutOptions,
) -> None:
    r"""Serve a table of a category's latest values to Redis clients, on one or several servers, and keep them running.

    Each server reads the category for itself, so any of them can be lost. Later calls change them one after the other. A table that the
    configuration declares as \[laser-tables.NAME] needs no options, and `--all` deploys all of these.

    Example: penstock laser deploy rankings --key carrier --value top --lifetime 7d --replicas 2
    """
    addresses = rollout.addresses(endpoint.host, port)
    access = endpoint.access()  # a server that refuses to start would be restarted forever
    configuration, folder = configuration_of(context), rollout.folder
    if all_tables:
        _report_undeclared(configuration.names(DeclaredTable), folder)
    names = names_to_deploy(name, configuration.names(DeclaredTable), all_tables=all_tables)
    if all_tables:
        table.expect_for_all()
        if port is not None:
            raise typer.BadParameter(
                "--port is for one table, and --all deploys several. Nothing was deployed. Leave it out: servers use free ports and keep them; or name "
                "one table."
            )
    bus = rollout.connect(f"laser deploy {name or '--all'}")
    settings = msgspec.structs.replace(
        server_settings(context, bus, rollout, memory, access),
        backup=absolute_location(backup),
        webhdfs=webhdfs,
        backup_every_s=backup_every,
    )
    ports = {"redis": FIRST_PORT} | ({"http": FIRST_HTTP_PORT} if http else {})
    requests = []
    for each in names:
        declared = configuration.named_section(DeclaredTable, each)
        tiers = _Tiers(each, table.or_declared(each, declared), endpoint, tls, folder, settings)
        for number in range(1, (replicas or (1 if declared is None else declared.replicas)) + 1):
            address = addresses.of(tiers.deployment(number), ports, tls, tiers.group)
            requests.append(tiers.request(number, address))
    try:
        deploy_servers(requests, bus, rollout, patience, access)
    except DeclarationChanged as error:
        refused = _table_of(error.processor)
        raise IncompatibleState(
            f"Laser table {refused} was not changed, and its servers continue: its saved pairs have other columns, or come from another category, "
            f"than asked for. Deploy under another name; or delete these pairs first with `penstock laser delete {refused}`, which stops all reads "
            "until the category has been read again.",
            error.processor,
        ) from error
    if rollout.writes_only:
        return
    kept = {request.name for request in requests}
    for each in names:
        superfluous = [server for server in _deployed(folder, each) if server not in kept]
        if superfluous:
            count = sum(_table_of(server) == each for server in kept)
            delete_servers(
                superfluous, f"Laser table {each} beyond {counted(count, 'server')}", bus, folder, lambda _: True
            )


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


class _Tiers:
    """The servers of a table: `laser.NAME.1` and so on, each a processor of its own."""

    def __init__(
        self,
        name: str,
        table: TableOptions,
        endpoint: LaserEndpoint,
        tls: TlsOptions,
        folder: Path,
        settings: DeploymentSettings,
    ) -> None:
        self._name, self._table, self._endpoint, self._tls = name, table, endpoint, tls
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
        options, endpoint, name = self._table, self._endpoint, f"{self._name}.{number}"
        daily = options.daily(name, self._settings.webhdfs)
        words = {
            "--key": options.key,
            "--value": options.value,
            "--lifetime": options.lifetime,
            "--host": address.host,
            "--port": address.ports["redis"],
            "--http": address.ports.get("http"),
            "--connections": endpoint.connections,
        }
        if daily is not None:
            source = options_of({DAY_TABLE_OPTION: daily.files.location, "--webhdfs": self._settings.webhdfs})
            server = self._server(("laser", "serve", name), (*source, *options_of(words)), address, reads_app=False)
            stand_in = stand_in_for(f"laser.{name}", ())
            return DeploymentRequest(
                AppName(Path(daily.files.location)), stand_in, self._settings, 1, take_over=True, server=server
            )
        table, app = options.table(name, self._folder, self._name)
        source = ("--category", table.category.name)
        server = self._server(("laser", "serve", name, "--app"), (*source, *options_of(words)), address, reads_app=True)
        return DeploymentRequest(resolved(app), table.processor(), self._settings, 1, take_over=True, server=server)

    def _server(
        self, command: tuple[str, ...], words: tuple[str, ...], address: ServerAddress, *, reads_app: bool
    ) -> DeployedServer:
        """Return a server, which has a worker if it reads an app."""
        return DeployedServer(command, words, address.urls, reads_app, reads_app, self.group, self._tls.paths())


def _deployed(folder: Path, name: str) -> list[str]:
    return deployed_servers(folder, lambda each: _table_of(each) == name)


def _table_of(deployment: str) -> str | None:
    """Return the name of the table of a server; None for another deployment."""
    match = re.fullmatch(r"laser\.(.+)\.\d+", deployment)
    return None if match is None else match[1]


def _report_undeclared(declared: Sequence[str], folder: Path) -> None:
    """Report tables with servers that the configuration does not declare, or no longer."""
    counts = Counter(map(_table_of, deployed_servers(folder, lambda each: _table_of(each) is not None)))
    for name, servers in sorted((name, count) for name, count in counts.items() if name and name not in declared):
        note(
            f"Laser table {name} is deployed, and the configuration does not declare it. It stays, with {counted(servers, 'server')}. "
            f"`penstock laser delete {name}` removes it."
        )


def delete(
    name: Annotated[str, typer.Argument(help="The name of the table.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Stop all servers of a table, and remove their pairs, backups, positions and logs. The category stays.

    Example: penstock laser delete rankings
    """
    bus = connect(kafka, folder)
    delete_servers(
        _deployed(folder, name), f"Laser table {name}", bus, folder, lambda question: yes or typer.confirm(question)
    )


deploy_command = audited("laser deploy")(with_option_groups(deploy))
delete_command = audited("laser delete")(delete)
