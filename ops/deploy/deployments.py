"""What a user does with deployments: deploy, roll back, change the number of workers, remove.

app file --> checked against the bus, the state and what is deployed --> a version with its code --> workers, one after the other

Everything that can be refused is refused before anything is changed. Each call can be repeated, also after one that died.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...processors.declare.app_files import Contents, code_beside
from ...processors.declare.apps import AppName
from ...processors.declare.processor import Processor
from ...processors.lookups import LookupJoin
from ...state.files.file_store import open_file_store
from ...state.lookup_sources.file_tables import FileTable
from ...transport.bus import Bus
from ...transport.tables.maintenance_log import newest_maintenance
from ..worker.preflight import prepare
from .compatibility import expect_compatible
from .environment import load_variables, required_variables, save_variables, variable_values
from .errors import DeployError, NameTaken
from .kubernetes_rollout import KubernetesRollout, expect_reachable
from .manifests import manifests_of
from .readiness import READY_LIMIT_S, LocalWorkers
from .registry import Deployment, DeploymentFiles, deployment_lock, find_deployment
from .supervised_rollout import Say, SupervisedRollout
from .supervisors import supervisor_of
from .version import DeploymentSettings, Shape, Target, Version


@dataclass(frozen=True)
class DeploymentRequest:
    """A processor that is to be deployed.

    Args:
        app: the app file, whole path.
        processor: which of its processors.
        settings: how it is to be run.
        workers: how many workers; None for as many as there are, or one.
        takes_over: whether it may take the place of another app's deployment of its name.
    """

    app: Path
    processor: type[Processor]
    settings: DeploymentSettings
    workers: int | None
    takes_over: bool

    @property
    def name(self) -> str:
        """The processor's name, which is the deployment's."""
        return self.processor.name


@dataclass(frozen=True)
class DeploymentPlan:
    """What a deployment comes to.

    Args:
        version: the version that is to count.
        code: its files.
        values: the values of the variables that its workers are given.
        running: what is deployed now; None where nothing is.
        workers: how many workers there are to be.
        is_new: whether the version has to be kept first; False where it counts already.
    """

    version: Version
    code: Contents
    values: Mapping[str, str]
    running: Deployment | None
    workers: int
    is_new: bool

    @property
    def says(self) -> str:
        """What will be done, in words."""
        label, running = self.version.label, self.running
        if running is None:
            return f"{label}: start {_count(self.workers)}"
        if self.is_new:
            return f"{label}: take the place of {running.version.label}, one worker after the other{self._resized}"
        if not running.standing.is_settled:
            return f"{label}: go on where an earlier command was broken off{self._resized}"
        return f"{label} is deployed already, with this code and these settings{self._resized}"

    @property
    def _resized(self) -> str:
        if self.running is None or self.running.workers == self.workers:
            return ""
        return f"; {self.workers} workers instead of {self.running.workers}"


def plan_deployment(wanted: DeploymentRequest, bus: Bus, environment: Mapping[str, str], say: Say) -> DeploymentPlan:
    """Check what is to be deployed, against the bus and against what is there, and return what that comes to. Changes nothing.

    Raises:
        NameTaken: another app's processor of that name is deployed.
        IncompatibleState: saved state does not fit it.
        DeployError: a variable that it needs is not set.
        BusError: no broker answers, or a category is missing or has another number of buckets.
    """
    processor, settings = wanted.processor, wanted.settings
    records = DeploymentFiles(Path(settings.folder), wanted.name)
    standing, running = records.standing(), records.deployment()
    _expect_own_name(wanted, running)
    _expect_same_target(settings, running)
    given = {*required_variables(processor), *settings.variables}
    if settings.target is Target.KUBERNETES:
        given = set()  # there, Secrets have them
    values = variable_values(sorted(given), environment, processor.__name__)
    with closing(prepare(processor, bus)):
        pass
    last = None if standing is None else records.version(standing.version)
    place = open_file_store(settings.backup, settings.webhdfs) if settings.backup else None
    target, states = f"{wanted.app}:{processor.__name__}", Path(settings.folder, "state")
    expect_compatible(processor, target, last, states, place, say=say, move=newest_maintenance(bus, wanted.name))
    version, code = _version_of(wanted, records)
    if settings.target is Target.KUBERNETES:
        expect_reachable(version)
        manifests_of(version, code, 1)  # what a cluster would not take is told before anything is kept
    is_new = last is None or not version.is_run_like(last) or dict(values) != load_variables(records.environment)
    if last is not None and not is_new:
        version = last
    workers = wanted.workers or (running.workers if running else 1)
    return DeploymentPlan(version, code, values, running, workers, is_new)


def apply_plan(plan: DeploymentPlan, say: Say, limit_s: float = READY_LIMIT_S) -> None:
    """Do what was planned.

    Raises:
        UpdateFailed: the version did not come up; what ran before runs again.
        SupervisorUnavailable: what keeps workers alive cannot be had.
    """
    records = DeploymentFiles(Path(plan.version.settings.folder), plan.version.name)
    if plan.is_new:
        records.add(plan.version, plan.code)
        save_variables(records.environment, plan.values)
    changes = rollout_of(records, plan.version.settings, say, limit_s)
    if plan.running is None:
        changes.begin(plan.version, plan.workers)
        return
    if plan.is_new or not plan.running.standing.is_settled:
        roll(changes, plan.running, plan.version)
    else:
        changes.revive()
    if plan.workers != plan.running.workers:
        changes.resize(plan.workers)


def roll(changes: Rollout, running: Deployment, version: Version) -> None:
    """Have a deployment run a version, in the way in which the two can follow on one another."""
    if set(running.version.shape.inputs) == set(version.shape.inputs):
        changes.update(version)
    else:
        changes.replace_all(version)


def roll_back(folder: Path, name: str, to: int | None, say: Say, limit_s: float = READY_LIMIT_S) -> Version:
    """Have a deployment run an earlier version again, with its code of then; return it.

    Args:
        folder: `--dir`.
        name: the deployment.
        to: the number of the version; None for the last one before that came up.
        say: tells what is going on.
        limit_s: how long a worker may take to come up.

    Raises:
        NotDeployed: there is no such deployment.
        DeployError: there is no such version.
        IncompatibleState: saved state does not fit it.
        UpdateFailed: it did not come up; what ran before runs again.
    """
    running = find_deployment(folder, name)
    records = DeploymentFiles(folder, name)
    version = records.version(_earlier(records, running) if to is None else to)
    _expect_same_target(version.settings, running)
    _expect_state_fits(version, running, records, say)
    roll(rollout_of(records, running.version.settings, say, limit_s), running, version)
    return version


def scale_deployment(
    folder: Path, name: str, workers: int, say: Say = lambda _: None, limit_s: float = READY_LIMIT_S
) -> Deployment:
    """Have a deployment run with so many workers, and return it; those that leave save a last checkpoint and hand their buckets on.

    Waits for whoever else is changing deployments: not for a caller who is in `deployment_lock`.

    Raises:
        NotDeployed: there is no such deployment.
        DeployError: a number below one.
        WorkerFailed: a new worker did not come up; its keeper goes on trying.
    """
    if workers < 1:
        raise DeployError(
            f"{name} with {workers} workers would do nothing: `penstock undeploy {name}` stops it and keeps its state."
        )
    with deployment_lock(folder, say):
        running = find_deployment(folder, name)
        rollout_of(DeploymentFiles(folder, name), running.version.settings, say, limit_s).resize(workers)
        return find_deployment(folder, name)


def stop_deployment(folder: Path, name: str, say: Say) -> None:
    """Stop a deployment's workers after a last checkpoint; state and versions stay.

    Raises:
        NotDeployed: there is no such deployment.
    """
    running = find_deployment(folder, name)
    rollout_of(DeploymentFiles(folder, name), running.version.settings, say, READY_LIMIT_S).take_down()


class Rollout(Protocol):
    """Changes the workers of a deployment, wherever they are. Each call can be repeated, also after one that was broken off."""

    def begin(self, version: Version, workers: int) -> None:
        """Start a deployment that has no workers; UpdateFailed where they do not come up, and then none is left."""
        ...

    def update(self, version: Version) -> None:
        """Have every worker run a version, one by one; UpdateFailed where it does not come up, and then the old one is put back."""
        ...

    def replace_all(self, version: Version) -> None:
        """The same, all of them at once."""
        ...

    def resize(self, workers: int) -> None:
        """Have so many workers."""
        ...

    def revive(self) -> None:
        """Have those kept alive that there are to be."""
        ...

    def take_down(self) -> None:
        """Stop them after a last checkpoint."""
        ...


def rollout_of(records: DeploymentFiles, settings: DeploymentSettings, say: Say, limit_s: float) -> Rollout:
    """Return what changes a deployment's workers."""
    if settings.target is Target.KUBERNETES:
        return KubernetesRollout(records, limit_s, say)
    keeper = supervisor_of(settings)
    return SupervisedRollout(records, keeper, local_workers(records, settings), limit_s, say)


def local_workers(records: DeploymentFiles, settings: DeploymentSettings) -> LocalWorkers:
    """Return a deployment's workers as they are."""
    return LocalWorkers(records, supervisor_of(settings))


def _expect_own_name(wanted: DeploymentRequest, running: Deployment | None) -> None:
    if running is None or wanted.takes_over or running.app == str(wanted.app):
        return
    raise NameTaken(
        f"{wanted.name} is deployed from {running.app}, and {wanted.app} has a processor of the same name: the two would share positions "
        "and state. Nothing was changed. Give one of them another `name`; or, if the app has moved, deploy it with --take-over."
    )


def _expect_same_target(settings: DeploymentSettings, running: Deployment | None) -> None:
    if running is not None and running.target is not settings.target:
        raise DeployError(
            f"{running.name} is deployed with --target {running.target.value}. Nothing was changed. `penstock undeploy {running.name}` first; "
            f"its state stays where it is, then deploy it with --target {settings.target.value}."
        )


def _version_of(wanted: DeploymentRequest, records: DeploymentFiles) -> tuple[Version, Contents]:
    code = code_of(wanted.app, wanted.processor)
    version = Version(
        number=max(records.numbers(), default=0) + 1,
        name=wanted.name,
        app=str(wanted.app),
        processor=wanted.processor.__name__,
        digest=code.digest,
        settings=wanted.settings,
        shape=Shape.of(wanted.processor),
        time_ms=time.time_ns() // 1_000_000,
        by=getpass.getuser(),
    )
    return version, code


def code_of(app: Path, processor: type[Processor]) -> Contents:
    """Return the files that an app's code is made of, with that of a lookup where it lies beside the code."""
    files = code_beside(app)
    if issubclass(processor, LookupJoin) and isinstance(processor.source, FileTable):
        table = Path(processor.source.path).absolute()
        if table.is_relative_to(app.parent):
            files[table.relative_to(app.parent).as_posix()] = table
    return Contents(files)


def _earlier(records: DeploymentFiles, running: Deployment) -> int:
    standing = running.standing
    good = [number for number in records.numbers() if number < standing.version and number not in standing.failed]
    if standing.is_settled and not good:
        raise DeployError(
            f"{running.version.label} has no version before it that came up, so there is nothing to go back to."
        )
    # A version that was about to take its place is not there yet: going back from it is to stay.
    return good[-1] if standing.is_settled else standing.version


def _expect_state_fits(version: Version, running: Deployment, records: DeploymentFiles, say: Say) -> None:
    app = AppName(records.code(version.number) / version.app_file, version.processor)
    settings = version.settings
    place = open_file_store(settings.backup, settings.webhdfs) if settings.backup else None
    [processor] = app.load().processors
    expect_compatible(processor, str(app), running.version, Path(settings.folder, "state"), place, say=say)


def _count(workers: int) -> str:
    return "a worker" if workers == 1 else f"{workers} workers"
