"""How workers and servers are rolled out: the options of `penstock deploy` and of `penstock serve … --deploy`, and their effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ....processors import counted
from ....transport import BusRefuses, BusUnreachable
from ....transport.kafka import KafkaBus
from ...shell import AsJson, OptionGroup, interruptible, note, out, write_files
from ..deployment_status import deployment_status
from ..deployments import DeploymentPlan, DeploymentRequest, apply_plan, plan_deployments
from ..dry_run import dry_run_text
from ..readiness import READY_LIMIT_S
from ..registry import deployment_lock, find_deployment
from ..targets import expect_visible, prerequisites, system_units, unit_prerequisites
from ..version import PodSettings, Target, Version
from .deployment_list import show_deployments

INTERRUPTED = "Running workers continue. Repeat the command to finish."
PodMemory = Annotated[str, typer.Option("--memory", help="For Kubernetes: the memory of a pod.")]
Patience = Annotated[
    float | None,
    typer.Option(
        "--patience",
        metavar="SECONDS",
        help=f"The longest time that a worker or server may take to start: {READY_LIMIT_S:.0f} by default, and 600 for Laser, which reads its category first.",
        min=1,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class RolloutOptions(OptionGroup):
    """How workers and servers are deployed. The memory of pods is an option of its own, or follows from others."""

    where: Annotated[
        Target,
        typer.Option(
            "--target", help="The supervisor: supervisord on this machine, Kubernetes, or systemd, with --units."
        ),
    ] = Target.LOCAL
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the files and steps, and change nothing.")
    ] = False
    units: Annotated[
        Path | None,
        typer.Option(
            "--units",
            metavar="FOLDER",
            help="For systemd: write hardened units of the system to this folder, and start nothing.",
            show_default=False,
        ),
    ] = None
    patience: Patience = None
    image: Annotated[
        str | None,
        typer.Option(
            "--image", help="For Kubernetes: an image with Penstock and the app's dependencies.", show_default=False
        ),
    ] = None
    namespace: Annotated[
        str | None, typer.Option("--namespace", help="For Kubernetes: the namespace.", show_default=False)
    ] = None
    cpu: Annotated[str, typer.Option("--cpu", help="For Kubernetes: the CPU request of a pod.")] = "500m"
    disk: Annotated[str, typer.Option("--disk", help="For Kubernetes: the size of a pod's volume.")] = "10Gi"
    storage_class: Annotated[
        str | None,
        typer.Option("--storage-class", help="For Kubernetes: the class of these volumes.", show_default=False),
    ] = None
    json: AsJson = False

    @property
    def writes_only(self) -> bool:
        """Whether the command prints or writes files, and changes no deployment."""
        return self.dry_run or self.units is not None

    def check(self, command: str) -> None:
        """Raise BadParameter unless `--target systemd` and `--units` are used together, and without `--dry-run`.

        Args:
            command: the words of the command, for the message.
        """
        if (self.where is Target.SYSTEMD) != (self.units is not None):
            raise typer.BadParameter(
                "--target systemd writes units and starts nothing, and --units names the folder for them. Nothing was written. Use both: "
                f"`penstock {command} --target systemd --units units`."
            )
        if self.units is not None and self.dry_run:
            raise typer.BadParameter(
                "--units only writes files, and starts nothing. Nothing was written. Leave --dry-run out."
            )

    def pods(self, memory: str) -> PodSettings | None:
        """Return the settings of pods; None elsewhere than on Kubernetes.

        Args:
            memory: the memory of a pod, in Kubernetes' notation.
        """
        if self.where is not Target.KUBERNETES:
            return None
        if self.image is None:
            raise typer.BadParameter(
                "--target kubernetes needs --image: an image with Python, Penstock, and the app's dependencies."
            )
        return PodSettings(self.image, self.namespace, self.cpu, memory, self.disk, self.storage_class)


def print_plans(plans: Sequence[DeploymentPlan]) -> None:
    """Print the files and steps of plans."""
    out.out(dry_run_text(plans), highlight=False)


def roll_out(
    requests: Sequence[DeploymentRequest],
    bus: KafkaBus,
    options: RolloutOptions,
    folder: Path,
    environment: Mapping[str, str],
    show: Callable[[Sequence[DeploymentPlan]], None] = print_plans,
) -> None:
    """Deploy processors and servers one after the other, and list them; or print or write their files only.

    Args:
        requests: what to deploy.
        bus: the bus of their categories.
        options: how they are deployed.
        folder: the value of `--dir`.
        environment: the values of the environment variables that they need.
        show: what `--dry-run` does with their plans.

    Raises:
        DeployError: one cannot be deployed; the ones before it were.
    """
    with interruptible(INTERRUPTED), deployment_lock(folder, note):
        plans = plan_deployments(requests, _checked_bus(bus, writes_only=options.writes_only), environment, note)
        if options.units is not None:
            _write_units(options.units, plans)
            return
        _note_plans(plans)
        if options.dry_run:
            show(plans)
            return
        for plan in plans:
            apply_plan(plan, note, options.patience or READY_LIMIT_S)
    names = [plan.version.name for plan in plans]
    show_deployments([deployment_status(folder, find_deployment(folder, name)) for name in names], json=options.json)


def _write_units(folder: Path, plans: Sequence[DeploymentPlan]) -> None:
    """Write units of the system for planned versions, and print how to install them."""
    versions = [plan.version for plan in plans]
    expect_visible(versions)
    for plan in plans:
        note_standbys(plan.version, plan.workers)
    for path in write_files(folder, system_units(versions)):
        out.print(str(path), markup=False, highlight=False)
    for step in unit_prerequisites(versions, [plan.workers for plan in plans]):
        note(f"As root, in {folder}: {step}")


def _checked_bus(bus: KafkaBus, *, writes_only: bool) -> KafkaBus | None:
    """Return the bus that plans are checked against; None, with a note, if no broker answers and the command starts nothing."""
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


def _note_plans(plans: Sequence[DeploymentPlan]) -> None:
    """Print the changes of plans, and what they need on Kubernetes."""
    for plan in plans:
        note(f"{plan.summary}.")
        note_standbys(plan.version, plan.workers)
    in_cluster = [plan.version for plan in plans if plan.version.settings.target is Target.KUBERNETES]
    for kafka in {version.settings.kafka for version in in_cluster}:
        if kafka.startswith(("127.", "localhost")):
            note(
                f"{kafka} is a local address, which pods in the cluster cannot reach. Use an address that they can reach."
            )
    for prerequisite in dict.fromkeys(each for version in in_cluster for each in prerequisites(version)):
        note(f"Create in the cluster once: {prerequisite}")


def note_standbys(version: Version, workers: int) -> None:
    """Report workers that have nothing to read."""
    buckets = version.shape.buckets
    if version.server is None and workers > buckets:
        note(
            f"Its inputs have {counted(buckets, 'bucket')}, so {workers - buckets} of {counted(workers, 'worker')} will stand by, to take over when "
            "another worker ends."
        )
