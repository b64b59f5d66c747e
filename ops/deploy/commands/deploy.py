"""`penstock deploy`, `undeploy`, `rollback` and `scale`: manage deployed processors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ....processors import counted
from ....processors.apps import AppName, names_app
from ....processors.declare import Processor
from ....transport.kafka import KafkaBus
from ...kernel import create_missing, expect_traces_installed
from ...shell import (
    DEFAULT_FOLDER,
    TABLE,
    AsJson,
    Backup,
    BackupEvery,
    BackupHistory,
    Folder,
    Kafka,
    Standby,
    StateCacheMib,
    Store,
    Traces,
    WebHdfs,
    Yes,
    absolute_location,
    audited,
    configuration_of,
    connect,
    expect_backups,
    interruptible,
    note,
    out,
    processor_name,
    retention_of,
    variables_in,
    with_clusters,
    with_option_groups,
    write_files,
)
from ...shell import Target as AppTarget
from ..deployment_status import deployment_status
from ..deployments import (
    DeploymentPlan,
    DeploymentRequest,
    roll_back,
    scale_deployment,
    stop_deployment,
)
from ..environment import STORE, opentelemetry_variables, required_variables
from ..purge import PurgePlan, plan_purge, purge
from ..readiness import READY_LIMIT_S
from ..registry import DeploymentFiles, deployment_lock, deployments_of, find_deployment, servers_named
from ..targets import (
    DeployedVersion,
    base_prerequisites,
    kustomize_base,
)
from ..version import DeploymentSettings, Target
from .deployment_list import show_deployments
from .rollout import INTERRUPTED, Patience, PodMemory, RolloutOptions, note_standbys, print_plans, roll_out

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The processor's name in `penstock deployments`, or APP:PROCESSOR.",
        callback=processor_name,
    ),
]
MAX_WORKERS = 10_000
"""More workers than any machine runs. Every command about a deployment goes over all of them, so a slip of the finger would block it."""


@audited("deploy")
@with_option_groups
def deploy(
    context: typer.Context,
    target: AppTarget,
    *,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            max=MAX_WORKERS,
            help="The number of workers of each processor; the default is the current number, or one.",
            show_default=False,
        ),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Replace a deployment of the same name from another app file.")
    ] = False,
    create: Annotated[bool, typer.Option("--create", help="Create the app's missing categories.")] = False,
    rollout: RolloutOptions,
    memory: PodMemory = "1Gi",
    kustomize: Annotated[
        Path | None,
        typer.Option(
            "--kustomize",
            metavar="FOLDER",
            help="For Kubernetes, with --dry-run: write a kustomize base with the workers, alerts, metrics and dashboard of the app.",
            show_default=False,
        ),
    ] = None,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    backup_every: BackupEvery = 60.0,
    state_cache: StateCacheMib = None,
    backup_history: BackupHistory = None,
    standby: Standby = False,
    store: Store = None,
    traces: Traces = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Deploy the current version of a processor, or of all processors of an app, and keep it running.

    The workers of an existing deployment are replaced one by one. If the new version does not become ready, the old version is restored.

    Example: penstock deploy examples/flights/app.py:Scorer --workers 2
    """
    if kustomize is not None and not (rollout.dry_run and rollout.where is Target.KUBERNETES):
        raise typer.BadParameter("--kustomize writes files only: add --target kubernetes --dry-run.")
    rollout.check(f"deploy {target}")
    expect_traces_installed(traces=traces and rollout.where is not Target.KUBERNETES)  # pods have packages of their own
    expect_backups(backup, standby=standby)
    retention_of(backup_history)  # an invalid span fails here, and not in the workers
    name = AppName.parse(target)
    app, bus = name.load(), connect(kafka, folder)
    everywhere = with_clusters(bus, kafka, app.categories())  # before anything is deployed that could not start
    file = configuration_of(context).file
    if create and not rollout.writes_only:
        create_missing(everywhere, name)
    settings = DeploymentSettings(
        kafka=bus.settings.bootstrap,
        config=None if file.path is None else str(file.path.absolute()),
        secured=TABLE in file.values,
        folder=str(folder.absolute()),
        working_folder=str(Path.cwd()),
        backup=absolute_location(backup),
        webhdfs=webhdfs,
        backup_every_s=backup_every,
        state_cache_mib=state_cache,
        backup_history=backup_history,
        standby=standby,
        target=rollout.where,
        pods=rollout.pods(memory),
        traces=traces,
    )
    environment = {**os.environ, **({STORE: store} if store else {})}
    names = {variable for variable in variables_in(file.values) if variable in environment}
    if traces:
        names |= opentelemetry_variables(environment)
    requests = [
        DeploymentRequest(
            replace(name.whole, path=name.path.resolve()),
            processor,
            _with_variables(settings, processor, names),
            workers,
            take_over,
        )
        for processor in app.processors
    ]
    roll_out(
        requests,
        bus,
        rollout,
        folder,
        environment,
        print_plans if kustomize is None else partial(_write_base, kustomize),
    )


def _write_base(folder: Path, plans: Sequence[DeploymentPlan]) -> None:
    """Write a kustomize base for the planned versions."""
    base = kustomize_base([DeployedVersion(plan.version, plan.code, plan.workers) for plan in plans])
    for path in write_files(folder, base):
        out.print(str(path), markup=False, highlight=False)
    for prerequisite in base_prerequisites(plans[0].version):
        note(f"Create in the cluster once: {prerequisite}")
    note(f"Next: kubectl apply -k {folder}")


def _with_variables(settings: DeploymentSettings, processor: type[Processor], names: set[str]) -> DeploymentSettings:
    """Return the settings with the variables of a processor and others."""
    variables = tuple(sorted({*required_variables(processor), *names}))
    return msgspec.structs.replace(settings, variables=variables)


@audited("undeploy")
def undeploy(
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The processor's or server's name in `penstock deployments`, APP:PROCESSOR, or an app with all of its processors. laser.TABLE "
            "names all servers of a Laser table.",
        ),
    ],
    purge_: Annotated[
        bool,
        typer.Option(
            "--purge",
            help="Also remove its state, backups, positions, watermarks, versions and logs.",
        ),
    ] = False,
    yes: Yes = False,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Stop a processor's workers, those of a whole app, or servers, after a last checkpoint. State and positions stay, and a later deployment continues from them.

    --purge also removes what a processor has left that only `penstock run` ran; name its backups with --backup.

    Example: penstock undeploy scorer

    Example: penstock undeploy examples/flights/app.py
    """
    with interruptible("Repeat the command to finish."), deployment_lock(folder, note):
        if not purge_:
            for stopped in _names_of(target, folder):
                _stop(folder, stopped)
            return
        bus = connect(kafka, folder)
        names = servers_named(folder, target) or [str(processor_name(target))]
        plans = [plan_purge(folder, name, bus, backup, webhdfs) for name in names]
        for line in (line for plan in plans for line in plan.lines()):
            note(f"To be removed: {line}")
        for item in (item for plan in plans for item in plan.out_of_reach):
            note(f"Not removed: {item}")
        if not yes and not typer.confirm(f"Stop {' and '.join(names)} and remove all of this permanently?"):
            note("Nothing was changed.")
            raise typer.Exit(1)
        for plan in plans:
            stop_and_purge(plan, folder, bus)
        note(f"All of this was removed. The next processor or server named {target} starts from the beginning.")


def _names_of(target: str, folder: Path) -> list[str]:
    """Return the deployments of a whole app, also if it does not load any more, of a group of servers, or of the processor that a user named."""
    app = AppName.parse(target) if names_app(target) else None
    if app is not None and app.processor is None:
        return [each.name for each in deployments_of(folder, app)]
    servers = servers_named(folder, target)
    return [name for name in servers if DeploymentFiles(folder, name).deployment()] or [str(processor_name(target))]


def _stop(folder: Path, name: str) -> None:
    in_cluster = find_deployment(folder, name).target is Target.KUBERNETES
    stop_deployment(folder, name, note)
    place = "on volumes of the cluster" if in_cluster else f"in {folder / 'state' / name}"
    note(f"{name} is stopped after a last checkpoint. Its state stays {place}, and its positions stay in Kafka.")
    note(f"Deploy it again to continue, or remove state and positions with `penstock undeploy {name} --purge`.")


def stop_and_purge(plan: PurgePlan, folder: Path, bus: KafkaBus) -> None:
    """Stop a deployment, if it runs, and delete all that it has stored; see `purge`.

    Args:
        plan: what it has stored.
        folder: the value of `--dir`.
        bus: the bus with its positions.
    """
    if plan.files.deployment() is not None:
        stop_deployment(folder, plan.name, note)
    purge(plan, bus)


@audited("rollback")
def rollback(
    name: Name,
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="VERSION",
            help="The version; the default is the last good version before the current one.",
            show_default=False,
        ),
    ] = None,
    patience: Patience = None,
    kafka: Kafka = None,  # noqa: ARG001 - for the audit log
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Return a deployment to an earlier version, with its code and settings. Workers are replaced one by one.

    Example: penstock rollback scorer --to 2
    """
    with interruptible(INTERRUPTED), deployment_lock(folder, note):
        version = roll_back(folder, name, to, note, patience or READY_LIMIT_S)
    note(f"{version.label} runs again.")
    show_deployments([deployment_status(folder, find_deployment(folder, name))], json=json)


@audited("scale")
def scale(
    name: Name,
    workers: Annotated[int, typer.Option("--workers", min=1, max=MAX_WORKERS, help="The new number of workers.")],
    patience: Patience = None,
    kafka: Kafka = None,  # noqa: ARG001 - for the audit log
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Change the number of workers of a deployment. Buckets move with their state, after a last checkpoint.

    Example: penstock scale scorer --workers 4
    """
    before = find_deployment(folder, name)
    note_standbys(before.version, workers)
    with interruptible(INTERRUPTED):
        after = scale_deployment(folder, name, workers, note, patience or READY_LIMIT_S)
    note(f"{name}: {counted(after.workers, 'worker')}, {before.workers} before.")
    show_deployments([deployment_status(folder, after)], json=json)
