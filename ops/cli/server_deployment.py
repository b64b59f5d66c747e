"""Deployments of servers: tiers of Laser tables, and Scuba's. Their commands share how they are deployed, listed and deleted."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

import typer

from ...processors.apps.apps import AppName
from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor
from ...processors.declare.stateless import Stateless
from ...processors.errors import PenstockError
from ...processors.wording import counted
from ...transport.kafka import KafkaBus
from ..config.kafka_settings import TABLE
from ..config.variables import variables_in
from ..deploy.deployment_status import deployment_status
from ..deploy.deployments import DeploymentRequest, apply_plan, plan_deployment, stop_deployment
from ..deploy.dry_run import dry_run_text
from ..deploy.errors import NotDeployed
from ..deploy.purge import plan_purge, purge
from ..deploy.registry import (
    DeploymentFiles,
    all_deployments,
    deployment_lock,
    find_deployment,
    names_of_deployments,
)
from ..deploy.version import DeploymentSettings, Target
from .deploy import INTERRUPTED, Units, expect_dry_run, write_units
from .deployment_list import show_deployments
from .option_groups import OptionGroup
from .options import DEFAULT_FOLDER, AsJson, Folder, Kafka, connect, expect_main_cluster
from .output import note, out
from .root import configuration_of
from .signals import interruptible

PORTS_TRIED = 1_000
_SCHEMES = {"rediss": "redis", "https": "http"}
"""Schemes without TLS by scheme with TLS."""


class ServerRefused(PenstockError):
    """A server cannot be deployed as asked: correct the options."""


@dataclass(frozen=True)
class RolloutOptions(OptionGroup):
    """How servers are deployed."""

    where: Annotated[Target, typer.Option("--target", help="The supervisor of the servers.")] = Target.LOCAL
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the files and steps, and change nothing.")
    ] = False
    units: Units = None
    kafka: Kafka = None
    folder: Folder = DEFAULT_FOLDER
    json: AsJson = False

    def connect(self) -> KafkaBus:
        """Return the bus of the servers, once the options fit together."""
        expect_dry_run(self.units, self.where, dry_run=self.dry_run)
        return connect(self.kafka, self.folder)


def server_settings(
    context: typer.Context, bus: KafkaBus, options: RolloutOptions, secrets: Iterable[str]
) -> DeploymentSettings:
    """Return the settings of servers without backups.

    Args:
        context: the context of the command.
        bus: the bus of their categories.
        options: how they are deployed.
        secrets: environment variables that they receive if set.

    Raises:
        ServerRefused: the supervisor is Kubernetes.
    """
    if options.where is Target.KUBERNETES:
        raise ServerRefused(
            "Servers cannot be deployed to Kubernetes with this command yet: clients would need a Service, and the server a token. Nothing was "
            "deployed. Use --target local or systemd, or run the server's `serve` command in a StatefulSet of your own."
        )
    file = configuration_of(context).file
    names = {*variables_in(file.values), *secrets} & os.environ.keys()
    return DeploymentSettings(
        kafka=bus.settings.bootstrap,
        config=None if file.path is None else str(file.path.absolute()),
        secured=TABLE in file.values,
        folder=str(options.folder.absolute()),
        working_folder=str(Path.cwd()),
        target=options.where,
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


def ports_of(folder: Path, name: str) -> dict[str, int]:
    """Return the ports of a server by scheme of their URLs without TLS, as of its last deployment; empty without one."""
    files = DeploymentFiles(folder, name)
    desired = files.desired_state()
    server = None if desired is None else files.version(desired.version).server
    urls = () if server is None else map(urlsplit, server.urls)
    return {_SCHEMES.get(url.scheme, url.scheme): url.port or 0 for url in urls}


class FreePorts:
    """Ports that neither another server of the folder nor a process on this machine uses.

    Args:
        folder: the value of `--dir`.
    """

    def __init__(self, folder: Path) -> None:
        self._used = {port for name in names_of_deployments(folder) for port in ports_of(folder, name).values()}

    def next_from(self, first: int, host: str) -> int:
        """Return the first free port, at or after another one, and do not return it again.

        Raises:
            ServerRefused: there is none among many.
        """
        for port in range(first, min(first + PORTS_TRIED, 65_536)):
            if port not in self._used and _is_free(host, port):
                self._used.add(port)
                return port
        raise ServerRefused(
            f"No port from {first} on is free on {host}. Nothing was deployed. Name another one with --port."
        )


def _is_free(host: str, port: int) -> bool:
    try:
        with closing(socket.create_server((host, port))):
            return True
    except OSError:
        return False


def deploy_servers(
    requests: Sequence[DeploymentRequest], bus: KafkaBus, options: RolloutOptions, patience_s: float
) -> None:
    """Deploy servers one after the other, so that with several of a table, one always answers.

    Args:
        requests: the servers.
        bus: the bus of their categories.
        options: how they are deployed.
        patience_s: the longest time that a server may take until it answers.
    """
    folder = options.folder
    with interruptible(INTERRUPTED), deployment_lock(folder, note):
        plans = [plan_deployment(request, bus, os.environ, note) for request in requests]
        for plan in plans:
            note(f"{plan.summary}.")
        if options.units is not None:
            write_units(options.units, plans)
            return
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
        if not confirm(f"Stop {counted(len(names), 'server')} of {table} and remove all of this permanently?"):
            note("Nothing was changed.")
            raise typer.Exit(1)
        for plan in plans:
            if plan.files.deployment() is not None:
                stop_deployment(folder, plan.name, note)
            purge(plan, bus)
    note(f"{table} was removed. The events in Kafka are unchanged.")


class _StandIn(Stateless):
    """Stands for a server without a worker in the files of its deployment: its name and its inputs. It never runs."""

    categories: ClassVar[Sequence[AnyCategory]]

    @classmethod
    def sources(cls) -> tuple[AnyCategory, ...]:
        """Return the categories that the server reads."""
        return tuple(cls.categories)

    def process(self, event: object) -> tuple[()]:  # noqa: ARG002 - the signature of a processor
        """Write nothing."""
        return ()


def stand_in_for(deployment: str, categories: Sequence[AnyCategory]) -> type[Processor]:
    """Return a processor that stands for a server without a worker.

    Args:
        deployment: its name.
        categories: the categories that it reads.
    """
    return type("Server", (_StandIn,), {"name": deployment, "categories": categories})


def deployed_servers(folder: Path, matches: Callable[[str], bool]) -> list[str]:
    """Return the names of servers in a folder (`--dir`) that were deployed, also of stopped ones."""
    return [name for name in names_of_deployments(folder) if matches(name) and ports_of(folder, name)]


def options_of(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return options as words of a command line, without the ones whose value is None."""
    return tuple(word for name, value in values.items() if value is not None for word in (name, str(value)))
