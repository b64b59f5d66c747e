"""Deployments of servers: tiers of Laser tables, and Scuba's. Their commands share how they are deployed, listed and deleted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from ....processors import counted
from ....processors.apps import AppName
from ....processors.declare import AnyCategory
from ....transport.kafka import KafkaBus
from ...deploy import (
    INTERRUPTED,
    DeploymentRequest,
    DeploymentSettings,
    NotDeployed,
    PodOptions,
    Target,
    Units,
    all_deployments,
    apply_plan,
    checked_bus,
    deployment_lock,
    deployment_status,
    dry_run_text,
    expect_units,
    find_deployment,
    names_of_deployments,
    note_plans,
    plan_deployments,
    plan_purge,
    purge,
    show_deployments,
    stop_deployment,
    write_units,
)
from ...http import Access, is_loopback
from ...shell import (
    DEFAULT_FOLDER,
    TABLE,
    AsJson,
    Folder,
    Kafka,
    configuration_of,
    connect,
    expect_main_cluster,
    interruptible,
    note,
    out,
    variables_in,
)
from .server_addresses import Addresses, MachineAddresses, ServerRefused, ServiceAddresses, server_of


@dataclass(frozen=True)
class RolloutOptions(PodOptions):
    """How servers are deployed."""

    where: Annotated[
        Target,
        typer.Option(
            "--target",
            help="The supervisor of the servers: supervisord on this machine, Kubernetes, or systemd, with --units.",
        ),
    ] = Target.LOCAL
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the files and steps, and change nothing.")
    ] = False
    units: Units = None
    kafka: Kafka = None
    folder: Folder = DEFAULT_FOLDER
    json: AsJson = False

    @property
    def writes_only(self) -> bool:
        """Whether the command prints or writes files, and changes no server."""
        return self.dry_run or self.units is not None

    def connect(self, command: str) -> KafkaBus:
        """Return the bus of the servers, once the options fit together.

        Args:
            command: the words of the command, for messages.
        """
        expect_units(self.units, self.where, command, dry_run=self.dry_run)
        return connect(self.kafka, self.folder)

    def addresses(self, host: str, port: int | None) -> Addresses:
        """Return the addresses for servers.

        Args:
            host: the value of `--host`.
            port: the value of `--port`.
        """
        if self.where is not Target.KUBERNETES:
            return MachineAddresses(self.folder, host, port)
        if port is not None or not is_loopback(host):
            raise typer.BadParameter(
                "--host and --port are for servers on this machine; in a cluster, servers listen at fixed ports of their pods, behind a Service. Nothing "
                "was deployed. Leave them out."
            )
        return ServiceAddresses(self.namespace)


def server_settings(
    context: typer.Context, bus: KafkaBus, options: RolloutOptions, memory: str, access: Access
) -> DeploymentSettings:
    """Return the settings of servers without backups.

    Args:
        context: the context of the command.
        bus: the bus of their categories.
        options: how they are deployed.
        memory: the memory of a pod, in Kubernetes' notation.
        access: their access rules. In a cluster, where other pods reach the servers, a token is required, and comes from a Secret.
    """
    file = configuration_of(context).file
    names = variables_in(file.values) & os.environ.keys()
    if access.token is not None or options.where is Target.KUBERNETES:
        names.add(access.server.variable)
    return DeploymentSettings(
        kafka=bus.settings.bootstrap,
        config=None if file.path is None else str(file.path.absolute()),
        secured=TABLE in file.values,
        folder=str(options.folder.absolute()),
        working_folder=str(Path.cwd()),
        target=options.where,
        pods=options.settings(options.where, memory),
        variables=tuple(sorted(names)),
    )


def category_and_app(app: str | None, name: str, folder: Path) -> tuple[AnyCategory, AppName]:
    """Return a category, and the app that declares it: a named app, or the app of a deployment in the folder.

    Raises:
        ServerRefused: no app declares it.
        ClusterRefused: it is on another cluster.
    """
    for found in [AppName.parse(app)] if app is not None else _deployed_apps(folder):
        declared = found.load_declarations().declared_categories()
        if name in declared:
            advice = "Serve it where --kafka is its cluster, with a declaration without `cluster`."
            expect_main_cluster([declared[name]], "served", advice)
            return declared[name], found
        if app is not None:
            raise typer.BadParameter(f"{app} declares no category {name!r}; it has {', '.join(declared)}.")
    raise ServerRefused(
        f"No deployment in {folder} has an app that declares category {name!r}. Nothing was started. Name the app with --app, or the category "
        "with --category."
    )


def _deployed_apps(folder: Path) -> list[AppName]:
    versions = [each.version for each in all_deployments(folder)]
    apps = {
        AppName(Path(version.app), None, version.clone or None)
        for version in versions
        if version.server is None or version.server.reads_app
    }
    return sorted(apps, key=str)


def resolved(app: AppName) -> AppName:
    """Return the name of a whole app with its absolute path."""
    return replace(app.whole, path=app.path.resolve())


def deploy_servers(
    requests: Sequence[DeploymentRequest],
    bus: KafkaBus,
    options: RolloutOptions,
    patience_s: float,
    access: Access,
) -> None:
    """Deploy servers one after the other, so that with several of a table, one always answers.

    Args:
        requests: the servers.
        bus: the bus of their categories.
        options: how they are deployed.
        patience_s: the longest time that a server may take until it answers.
        access: their access rules. They read the token from the environment variable.
    """
    environment = {**os.environ, **({} if access.token is None else {access.server.variable: access.token})}
    folder, checked = options.folder, checked_bus(bus, writes_only=options.writes_only)
    with interruptible(INTERRUPTED), deployment_lock(folder, note):
        plans = plan_deployments(requests, checked, environment, note)
        if options.units is not None:
            write_units(options.units, plans)
            return
        note_plans(plans)
        if options.dry_run:
            out.out(dry_run_text(plans), highlight=False)
            return
        for plan in plans:
            apply_plan(plan, note, patience_s)
    names = [plan.version.name for plan in plans]
    show_deployments([deployment_status(folder, find_deployment(folder, name)) for name in names], json=options.json)
    for request in requests:
        if request.server is not None and not options.json:
            note(f"{request.name} is at {' and '.join(request.server.urls)}")


def delete_servers(
    names: Sequence[str], table: str, bus: KafkaBus, folder: Path, confirm: Callable[[str], bool]
) -> None:
    """Stop servers, and remove all that they have stored.

    Args:
        names: their deployments.
        table: what they serve, for messages.
        bus: the bus with their positions.
        folder: the value of `--dir`.
        confirm: asks the user a question.

    Raises:
        NotDeployed: there is no such server.
    """
    if not names:
        raise NotDeployed(
            f"{table} is not deployed from {folder}. Nothing was changed. `penstock deployments` lists what is."
        )
    with interruptible("Repeat the command to finish."), deployment_lock(folder, note):
        plans = [plan_purge(folder, name, bus) for name in names]
        for line in (line for plan in plans for line in plan.lines()):
            note(f"To be removed: {line}")
        for item in (item for plan in plans for item in plan.out_of_reach):
            note(f"Not removed: {item}")
        if not confirm(f"Stop {counted(len(names), 'server')} of {table} and remove all of this permanently?"):
            note("Nothing was changed.")
            raise typer.Exit(1)
        for plan in plans:
            if plan.files.deployment() is not None:
                stop_deployment(folder, plan.name, note)
            purge(plan, bus)
    note(f"{table} was removed. The events in Kafka are unchanged.")


def deployed_servers(folder: Path, matches: Callable[[str], bool]) -> list[str]:
    """Return the names of servers in a folder (`--dir`) that were deployed, also of stopped ones."""
    return [name for name in names_of_deployments(folder) if matches(name) and server_of(folder, name) is not None]


def options_of(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return options as words of a command line, without the ones whose value is None."""
    return tuple(word for name, value in values.items() if value is not None for word in (name, str(value)))
