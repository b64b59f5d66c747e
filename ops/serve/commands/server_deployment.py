"""Deployments of servers: tiers of Laser tables, and Scuba's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from ....processors.apps import AppName
from ....processors.declare import AnyCategory
from ....transport.kafka import KafkaBus
from ...deploy import (
    DeploymentRequest,
    DeploymentSettings,
    RolloutOptions,
    Target,
    all_deployments,
    roll_out,
)
from ...http import Access, is_loopback
from ...shell import (
    TABLE,
    configuration_of,
    expect_main_cluster,
    note,
    variables_in,
)
from .server_addresses import Addresses, MachineAddresses, ServerRefused, ServiceAddresses


def addresses_for(options: RolloutOptions, folder: Path, host: str, chosen: Mapping[str, int | None]) -> Addresses:
    """Return the addresses for servers.

    Args:
        options: how they are deployed.
        folder: the value of `--dir`.
        host: the value of `--host`.
        chosen: the ports that the user named, by the scheme of their URLs without TLS; None or 0 for free ones.
    """
    if options.where is not Target.KUBERNETES:
        return MachineAddresses(folder, host, chosen)
    if any(chosen.values()) or not is_loopback(host):
        raise typer.BadParameter(
            "--host and --port are for servers on this machine; in a cluster, servers listen at fixed ports of their pods, behind a Service. Nothing "
            "was deployed. Leave them out."
        )
    return ServiceAddresses(options.namespace)


def server_settings(
    context: typer.Context, bus: KafkaBus, folder: Path, options: RolloutOptions, memory: str, access: Access
) -> DeploymentSettings:
    """Return the settings of servers without backups.

    Args:
        context: the context of the command.
        bus: the bus of their categories.
        folder: the value of `--dir`.
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
        folder=str(folder.absolute()),
        working_folder=str(Path.cwd()),
        target=options.where,
        pods=options.pods(memory),
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


def categories_and_app(app: str | None, names: Sequence[str], folder: Path) -> tuple[list[AnyCategory], AppName]:
    """Return categories, all by default, and the app that declares them; see `category_and_app`."""
    if names:
        first, found = category_and_app(app, names[0], folder)
        return [first, *(category_and_app(str(found), name, folder)[0] for name in names[1:])], found
    if app is None:
        raise typer.BadParameter(
            "no category is named. Nothing was started. Name one, or an app with --app for all of its categories."
        )
    found = AppName.parse(app)
    return found.load_declarations().categories(), found


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
    requests: Sequence[DeploymentRequest], bus: KafkaBus, folder: Path, options: RolloutOptions, access: Access
) -> None:
    """Deploy servers one after the other, so that with several of a table, one always answers.

    Args:
        requests: the servers.
        bus: the bus of their categories.
        folder: the value of `--dir`.
        options: how they are deployed.
        access: their access rules. They read the token from the environment variable.
    """
    environment = {**os.environ, **({} if access.token is None else {access.server.variable: access.token})}
    roll_out(requests, bus, options, folder, environment)
    for request in requests:
        if request.server is not None and not options.json and not options.writes_only:
            note(f"{request.name} is at {' and '.join(request.server.urls)}")


def options_of(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return options as words of a command line, without the ones whose value is None."""
    return tuple(word for name, value in values.items() if value is not None for word in (name, str(value)))
