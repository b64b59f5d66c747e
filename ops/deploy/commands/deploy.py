"""`penstock deploy`, `undeploy`, `all_deployments`, `rollback` and `scale`: manage deployed processors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ....processors import counted
from ....processors.apps import AppName, names_app
from ....processors.declare import Processor
from ....transport import BusRefuses, BusUnreachable
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
    apply_plan,
    plan_deployments,
    roll_back,
    scale_deployment,
    stop_deployment,
)
from ..dry_run import dry_run_text
from ..environment import STORE, opentelemetry_variables, required_variables
from ..purge import PurgePlan, plan_purge, purge
from ..readiness import READY_LIMIT_S
from ..registry import deployment_lock, deployments_of, find_deployment
from ..targets import (
    DeployedVersion,
    base_prerequisites,
    expect_visible,
    kustomize_base,
    prerequisites,
    system_units,
    unit_prerequisites,
)
from ..version import DeploymentSettings, Target, Version
from .deployment_list import show_deployments
from .pod_options import PodMemory, PodOptions

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The processor's name in `penstock deployments`, or APP:PROCESSOR.",
        callback=processor_name,
    ),
]
Patience = Annotated[
    float,
    typer.Option("--patience", metavar="SECONDS", help="The longest time that a worker may take to start.", min=1),
]
Units = Annotated[
    Path | None,
    typer.Option(
        "--units",
        metavar="FOLDER",
        help="For systemd: write hardened units of the system to this folder, and start nothing.",
        show_default=False,
    ),
]
MAX_WORKERS = 10_000
"""More workers than any machine runs. Every command about a deployment goes over all of them, so a slip of the finger would block it."""
INTERRUPTED = "Running workers continue. Repeat the command to finish."


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
    where: Annotated[
        Target,
        typer.Option(
            "--target",
            help="The supervisor of the workers: supervisord on this machine, Kubernetes, or systemd, with --units.",
        ),
    ] = Target.LOCAL,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the files and steps, and change nothing.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Replace a deployment of the same name from another app file.")
    ] = False,
    create: Annotated[bool, typer.Option("--create", help="Create the app's missing categories.")] = False,
    pods: PodOptions,
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
    units: Units = None,
    patience: Patience = READY_LIMIT_S,
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
    json: AsJson = False,
) -> None:
    """Deploy the current version of a processor, or of all processors of an app, and keep it running.

    The workers of an existing deployment are replaced one by one. If the new version does not become ready, the old version is restored.

    Example: penstock deploy examples/flights/app.py:Scorer --workers 2
    """
    if kustomize is not None and not (dry_run and where is Target.KUBERNETES):
        raise typer.BadParameter("--kustomize writes files only: add --target kubernetes --dry-run.")
    expect_units(units, where, f"deploy {target}", dry_run=dry_run)
    writes_only = dry_run or units is not None
    expect_traces_installed(traces=traces and where is not Target.KUBERNETES)  # pods have packages of their own
    expect_backups(backup, standby=standby)
    retention_of(backup_history)  # an invalid span fails here, and not in the workers
    name = AppName.parse(target)
    app, bus = name.load(), connect(kafka, folder)
    everywhere = with_clusters(bus, kafka, app.categories())  # before anything is deployed that could not start
    file = configuration_of(context).file
    if create and not writes_only:
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
        target=where,
        pods=pods.settings(where, memory),
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
    checked = checked_bus(bus, writes_only=writes_only)
    with interruptible(INTERRUPTED), deployment_lock(folder, note):
        plans = plan_deployments(requests, checked, environment, note)
        if units is not None:
            write_units(units, plans)
            return
        note_plans(plans)
        if kustomize is not None:
            _write_base(kustomize, plans)
            return
        if dry_run:
            out.out(dry_run_text(plans), highlight=False)
            return
        for plan in plans:
            apply_plan(plan, note, patience)
    show_deployments(
        [deployment_status(folder, find_deployment(folder, plan.version.name)) for plan in plans], json=json
    )


def _write_base(folder: Path, plans: list[DeploymentPlan]) -> None:
    """Write a kustomize base for the planned versions."""
    base = kustomize_base([DeployedVersion(plan.version, plan.code, plan.workers) for plan in plans])
    for path in write_files(folder, base):
        out.print(str(path), markup=False, highlight=False)
    for prerequisite in base_prerequisites(plans[0].version):
        note(f"Create in the cluster once: {prerequisite}")
    note(f"Next: kubectl apply -k {folder}")


def expect_units(units: Path | None, where: Target, command: str, *, dry_run: bool) -> None:
    """Raise BadParameter unless `--target systemd` and `--units` are used together, and without `--dry-run`.

    Args:
        units: the folder for units.
        where: the supervisor.
        command: the words of the command, for the message.
        dry_run: whether nothing may be changed.
    """
    if (where is Target.SYSTEMD) != (units is not None):
        raise typer.BadParameter(
            "--target systemd writes units and starts nothing, and --units names the folder for them. Nothing was written. Use both: "
            f"`penstock {command} --target systemd --units units`."
        )
    if units is not None and dry_run:
        raise typer.BadParameter(
            "--units only writes files, and starts nothing. Nothing was written. Leave --dry-run out."
        )


def write_units(folder: Path, plans: list[DeploymentPlan]) -> None:
    """Write units of the system for planned versions, and print how to install them."""
    versions = [plan.version for plan in plans]
    expect_visible(versions)
    for plan in plans:
        _note_standbys(plan.version, plan.workers)
    for path in write_files(folder, system_units(versions)):
        out.print(str(path), markup=False, highlight=False)
    for step in unit_prerequisites(versions, [plan.workers for plan in plans]):
        note(f"As root, in {folder}: {step}")


def checked_bus(bus: KafkaBus, *, writes_only: bool) -> KafkaBus | None:
    """Return the bus that plans are checked against; None, with a note, if no broker answers and nothing is to be started."""
    if not writes_only:
        return bus
    try:
        bus.catalog.names()
    except BusRefuses:
        raise
    except BusUnreachable:
        note(
            f"No broker answers at {bus.settings.bootstrap}, so the categories and their numbers of buckets are not checked. Everything else is; "
            "workers check them when they start."
        )
        return None
    return bus


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
            help="The processor's name in `penstock deployments`, APP:PROCESSOR, or an app with all of its processors.",
        ),
    ],
    purge_: Annotated[
        bool,
        typer.Option(
            "--purge",
            help="Also remove its state, backups, positions, watermarks, versions and logs.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Stop a processor's workers, or those of a whole app, after a last checkpoint. State and positions stay, and a later deployment continues from them.

    --purge also removes what a processor has left that only `penstock run` ran; name its backups with --backup.

    Example: penstock undeploy scorer

    Example: penstock undeploy examples/flights/app.py
    """
    with interruptible("Repeat the command to finish."), deployment_lock(folder, note):
        if not purge_:
            for stopped in _names_of(target, folder):
                _stop(folder, stopped)
            return
        bus, name = connect(kafka, folder), str(processor_name(target))
        plan = plan_purge(folder, name, bus, backup, webhdfs)
        for line in plan.lines():
            note(f"To be removed: {line}")
        for item in plan.out_of_reach:
            note(f"Not removed: {item}")
        if not yes and not typer.confirm(f"Stop {name} and remove all of this permanently?"):
            note("Nothing was changed.")
            raise typer.Exit(1)
        _purge(plan, folder, bus)


def _names_of(target: str, folder: Path) -> list[str]:
    """Return the deployments of a whole app, also if it does not load any more, or the processor that a user named."""
    app = AppName.parse(target) if names_app(target) else None
    if app is None or app.processor is not None:
        return [str(processor_name(target))]
    return [each.name for each in deployments_of(folder, app)]


def _stop(folder: Path, name: str) -> None:
    in_cluster = find_deployment(folder, name).target is Target.KUBERNETES
    stop_deployment(folder, name, note)
    place = "on volumes of the cluster" if in_cluster else f"in {folder / 'state' / name}"
    note(f"{name} is stopped after a last checkpoint. Its state stays {place}, and its positions stay in Kafka.")
    note(f"Deploy it again to continue, or remove state and positions with `penstock undeploy {name} --purge`.")


def _purge(plan: PurgePlan, folder: Path, bus: KafkaBus) -> None:
    if plan.files.deployment() is not None:
        stop_deployment(folder, plan.name, note)
    purge(plan, bus)
    note(f"All of this was removed. The next processor named {plan.name} starts from the beginning.")


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
    patience: Patience = READY_LIMIT_S,
    kafka: Kafka = None,  # noqa: ARG001 - for the audit log
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Return a deployment to an earlier version, with its code and settings. Workers are replaced one by one.

    Example: penstock rollback scorer --to 2
    """
    with interruptible(INTERRUPTED), deployment_lock(folder, note):
        version = roll_back(folder, name, to, note, patience)
    note(f"{version.label} runs again.")
    show_deployments([deployment_status(folder, find_deployment(folder, name))], json=json)


@audited("scale")
def scale(
    name: Name,
    workers: Annotated[int, typer.Option("--workers", min=1, max=MAX_WORKERS, help="The new number of workers.")],
    patience: Patience = READY_LIMIT_S,
    kafka: Kafka = None,  # noqa: ARG001 - for the audit log
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Change the number of workers of a deployment. Buckets move with their state, after a last checkpoint.

    Example: penstock scale scorer --workers 4
    """
    before = find_deployment(folder, name)
    _note_standbys(before.version, workers)
    with interruptible(INTERRUPTED):
        after = scale_deployment(folder, name, workers, note, patience)
    note(f"{name}: {counted(after.workers, 'worker')}, {before.workers} before.")
    show_deployments([deployment_status(folder, after)], json=json)


def note_plans(plans: Sequence[DeploymentPlan]) -> None:
    """Print the changes of plans, and what they need on Kubernetes."""
    for plan in plans:
        note(f"{plan.summary}.")
        _note_standbys(plan.version, plan.workers)
    in_cluster = [plan.version for plan in plans if plan.version.settings.target is Target.KUBERNETES]
    for kafka in {version.settings.kafka for version in in_cluster}:
        if kafka.startswith(("127.", "localhost")):
            note(
                f"{kafka} is a local address, which pods in the cluster cannot reach. Use an address that they can reach."
            )
    for prerequisite in dict.fromkeys(each for version in in_cluster for each in prerequisites(version)):
        note(f"Create in the cluster once: {prerequisite}")


def _note_standbys(version: Version, workers: int) -> None:
    buckets = version.shape.buckets
    if version.server is None and workers > buckets:
        note(
            f"Its inputs have {counted(buckets, 'bucket')}, so {workers - buckets} of {counted(workers, 'worker')} will stand by, to take over when "
            "another worker ends."
        )
