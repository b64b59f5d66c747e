"""Operations on deployments: deploy, roll back, scale and stop.

app file --> checked against Kafka, the saved state and existing deployments --> a version with its code --> a rollout

Every check precedes the first change. Every operation is idempotent and continues after an interruption.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...processors import counted, ending, user_name
from ...processors.apps import AppName, Contents, code_beside, import_root, path_in_bundle
from ...processors.declare import Processor, plan_of
from ...processors.lookups import LookupJoin
from ...processors.pipes import Pipe
from ...state.files import FileStore, open_file_store
from ...state.lookup_sources import FileTable
from ...transport import Bus
from ...transport.tables import newest_maintenance
from ..kernel import expect_categories, prepare
from ..shell import ReportStep
from .compatibility import expect_compatible
from .environment import load_variables, required_variables, save_variables, variable_values
from .errors import DeployError, IncompatibleState, NameTaken
from .readiness import READY_LIMIT_S
from .registry import Deployment, DeploymentFiles, all_deployments, deployment_lock, find_deployment
from .targets import expect_own_objects, expect_reachable, manifests_of, roll_out, rollout_of
from .version import DeployedServer, DeploymentSettings, Target, Version, VersionShape


@dataclass(frozen=True)
class DeploymentRequest:
    """A processor to deploy.

    Args:
        app: the app, with the absolute path of its file.
        processor: one of its processors.
        settings: the settings of the workers.
        workers: the number of workers; None for the current number, for the number before the deployment was stopped, or one.
        take_over: whether it may replace another app's deployment of the same name.
        server: the server that reads the processor's inputs, or contains its worker; None for workers.
    """

    app: AppName
    processor: type[Processor]
    settings: DeploymentSettings
    workers: int | None
    take_over: bool
    server: DeployedServer | None = None

    @property
    def name(self) -> str:
        """The name of the processor and of its deployment."""
        return self.processor.name


@dataclass(frozen=True)
class DeploymentPlan:
    """The changes that deploy a processor.

    Args:
        version: the version to run.
        code: the files of its code.
        values: the workers' environment variables.
        running: the existing deployment; None without one.
        workers: the number of workers.
        is_new: whether the version must be stored first; False if it is the current version.
    """

    version: Version
    code: Contents
    values: Mapping[str, str]
    running: Deployment | None
    workers: int
    is_new: bool

    @property
    def summary(self) -> str:
        """The changes in words."""
        label, running = self.version.label, self.running
        if running is None:
            return f"{label}: start {counted(self.workers, 'worker')}"
        if self.is_new:
            return f"{label}: replace {running.version.label}, one worker after the other{self._scaling}"
        if not running.desired.is_rolled_out:
            return f"{label}: continue an interrupted command{self._scaling}"
        return f"{label} is deployed already, with this code and these settings{self._scaling}"

    @property
    def _scaling(self) -> str:
        if self.running is None or self.running.workers == self.workers:
            return ""
        return f"; {counted(self.workers, 'worker')} instead of {self.running.workers}"


def plan_deployments(
    requests: Sequence[DeploymentRequest], bus: Bus | None, environment: Mapping[str, str], progress: ReportStep
) -> list[DeploymentPlan]:
    """Check the requests of one command, and return the changes of each. Changes nothing.

    Raises:
        DeployError: on Kubernetes, two of them, or one of them and an existing deployment, would have the same objects.
        NameTaken, IncompatibleState, BusError: as `plan_deployment`.
    """
    plans = [plan_deployment(request, bus, environment, progress) for request in requests]
    versions = [plan.version for plan in plans]
    if versions and versions[0].settings.target is Target.KUBERNETES:
        existing = all_deployments(Path(versions[0].settings.folder))
        expect_own_objects([*(deployment.version for deployment in existing), *versions])
    return plans


def plan_deployment(
    request: DeploymentRequest, bus: Bus | None, environment: Mapping[str, str], progress: ReportStep
) -> DeploymentPlan:
    """Check a request against Kafka, the saved state and the existing deployment, and return the changes. Changes nothing.

    Args:
        request: the request.
        bus: the bus of the processor; None for a dry run without a broker, which checks neither categories nor resets.
        environment: the environment variables of the command.
        progress: receives progress lines.

    Raises:
        NameTaken: another app's processor of the same name is deployed.
        IncompatibleState: the saved state does not match the declaration.
        DeployError: a required environment variable is not set, or Kubernetes cannot run the processor.
        BusError: no broker answers, or a category is missing or has a different number of buckets.
    """
    processor, settings = request.processor, request.settings
    files = DeploymentFiles(Path(settings.folder), request.name)
    desired, running = files.desired_state(), files.deployment()
    _expect_own_name(request, running)
    _expect_same_target(settings, running)
    values = _values(request, environment)
    if bus is not None and (request.server is None or request.server.has_worker):
        with ending(prepare(processor, bus)):
            pass
    elif bus is not None:
        expect_categories(processor, plan_of(processor).inputs, bus)
    last = None if desired is None else files.version(desired.version)
    expect_compatible(
        processor,
        str(request.app.of(processor)),
        last,
        Path(settings.folder, "state"),
        _backup_store(settings),
        progress=progress,
        maintenance=None if bus is None else newest_maintenance(bus, request.name),
    )
    version, code = _version_of(request, files)
    if settings.target is Target.KUBERNETES:
        expect_reachable(version)
        manifests_of(version, code, 1)  # raises the errors of Kubernetes' limits before anything is stored
    is_new = last is None or not version.is_run_like(last) or dict(values) != load_variables(files.environment)
    if last is not None and not is_new:
        version = last
    workers = request.workers or (desired.last_count if desired else 1)
    return DeploymentPlan(version, code, values, running, workers, is_new)


def apply_plan(plan: DeploymentPlan, progress: ReportStep, limit_s: float = READY_LIMIT_S) -> None:
    """Store the version of a plan and roll it out.

    Raises:
        UpdateFailed: the version did not become ready; the previous version runs again.
        SupervisorUnavailable: the supervisor is unavailable, or rejects a request.
    """
    files = DeploymentFiles(Path(plan.version.settings.folder), plan.version.name)
    if plan.is_new:
        files.add_version(plan.version, plan.code)
        save_variables(files.environment, plan.values)
    rollout = rollout_of(files, plan.version.settings, progress, limit_s)
    if plan.running is None:
        rollout.start(plan.version, plan.workers)
        return
    if plan.is_new or not plan.running.desired.is_rolled_out:
        roll_out(rollout, plan.running, plan.version)
    else:
        rollout.reapply()
    if plan.workers != plan.running.workers:
        rollout.scale(plan.workers)


def roll_back(
    folder: Path, name: str, number: int | None, progress: ReportStep, limit_s: float = READY_LIMIT_S
) -> Version:
    """Roll a deployment back to an earlier version, with its code and settings, and return the version.

    Args:
        folder: the value of `--dir`.
        name: the deployment.
        number: the number of the version; None for the last earlier version that became ready and did not crash.
        progress: receives progress lines.
        limit_s: the time in seconds within which a worker must become ready.

    Raises:
        NotDeployed: no deployment has this name.
        DeployError: the version does not exist.
        IncompatibleState: the saved state does not match the version.
        UpdateFailed: the version did not become ready; the previous version runs again.
    """
    running = find_deployment(folder, name)
    files = DeploymentFiles(folder, name)
    version = files.version(_earlier_version(files, running) if number is None else number)
    _expect_same_target(version.settings, running)
    _expect_state_matches(version, running, files, progress)
    roll_out(rollout_of(files, running.version.settings, progress, limit_s), running, version)
    return version


def scale_deployment(
    folder: Path, name: str, workers: int, progress: ReportStep = lambda _: None, limit_s: float = READY_LIMIT_S
) -> Deployment:
    """Change the number of workers, and return the deployment. Removed workers save a last checkpoint and hand over their buckets.

    Waits for other commands that change deployments. The caller must not hold `deployment_lock`.

    Raises:
        NotDeployed: no deployment has this name.
        DeployError: the number is below one, or several are asked for of a server.
        WorkerFailed: a new worker did not become ready; its supervisor keeps restarting it.
    """
    if workers < 1:
        raise DeployError(
            f"{name} needs at least one worker. Nothing was changed. `penstock undeploy {name}` stops it and keeps its state."
        )
    with deployment_lock(folder, progress):
        running = find_deployment(folder, name)
        if running.version.server is not None and workers > 1:
            raise DeployError(
                f"{name} is a server, which is one process. Nothing was changed. For more servers of a Laser "
                "table, deploy it with `penstock serve laser --deploy --replicas`."
            )
        rollout_of(DeploymentFiles(folder, name), running.version.settings, progress, limit_s).scale(workers)
        return find_deployment(folder, name)


def stop_deployment(folder: Path, name: str, progress: ReportStep) -> None:
    """Stop a deployment's workers after a last checkpoint. State and versions stay.

    Raises:
        NotDeployed: no deployment has this name.
    """
    running = find_deployment(folder, name)
    rollout_of(DeploymentFiles(folder, name), running.version.settings, progress, READY_LIMIT_S).stop()


def code_of(app: Path, processor: type[Processor]) -> Contents:
    """Return the files of an app's code, including the table of a lookup join and the scripts of a pipe if they are in the same folder."""
    files, root = code_beside(app), import_root(app)
    own = list(processor.scripts()) if issubclass(processor, Pipe) else []
    if issubclass(processor, LookupJoin) and isinstance(processor.source, FileTable):
        own.append(Path(processor.source.path).absolute())
    files |= {path.relative_to(root).as_posix(): path for path in own if path.is_relative_to(root)}
    return Contents(files)


def _expect_own_name(request: DeploymentRequest, running: Deployment | None) -> None:
    if running is None or request.take_over or running.app == str(request.app.path):
        return
    raise NameTaken(
        f"{request.name} is deployed from {running.app}, and {request.app.path} has a processor of the same name. The two would share "
        "positions and state. Nothing was changed. Give one of them another `name`; or, if the app has moved, deploy it with --take-over."
    )


def _expect_same_target(settings: DeploymentSettings, running: Deployment | None) -> None:
    if running is None:
        return
    if running.target is not settings.target:
        raise DeployError(
            f"{running.name} is deployed with --target {running.target.value}. Nothing was changed. Run `penstock undeploy {running.name}`, "
            f"which keeps its state, then deploy it with --target {settings.target.value}."
        )
    there, here = (pods and pods.namespace for pods in (running.version.settings.pods, settings.pods))
    if there != here:
        place = "the namespace of kubectl's context" if there is None else f"namespace {there}"
        raise DeployError(
            f"{running.name} is deployed in {place}, and would run in both. Nothing was changed. Deploy it there; or run `penstock undeploy "
            f"{running.name}` first, which keeps its volumes, and a new one starts without their state."
        )


def _values(request: DeploymentRequest, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the workers' environment variables; none on Kubernetes, whose Secrets contain them, and for systemd, which reads them from files."""
    if request.settings.target is not Target.LOCAL:
        return {}
    names = {*required_variables(request.processor), *request.settings.variables}
    return variable_values(sorted(names), environment, request.processor.__name__)


def _backup_store(settings: DeploymentSettings) -> FileStore | None:
    return open_file_store(settings.backup, settings.webhdfs) if settings.backup else None


def _version_of(request: DeploymentRequest, files: DeploymentFiles) -> tuple[Version, Contents]:
    reads_app = request.server is None or request.server.reads_app
    code = code_of(request.app.path, request.processor) if reads_app else Contents({})
    version = Version(
        number=max(files.version_numbers(), default=0) + 1,
        name=request.name,
        app=str(request.app.path),
        app_file=path_in_bundle(request.app.path).as_posix() if reads_app else "",
        processor=request.processor.__name__,
        digest=code.digest,
        settings=request.settings,
        shape=VersionShape.of(request.processor),
        time_ms=time.time_ns() // 1_000_000,
        by=user_name(),
        clone=request.app.clone or "",
        server=request.server,
    )
    return version, code


def _earlier_version(files: DeploymentFiles, running: Deployment) -> int:
    desired = running.desired
    if not desired.is_rolled_out and desired.version not in desired.failed:
        return desired.version  # a rollout was interrupted: undo it
    earlier = desired.earlier_version(files.version_numbers())
    if earlier is None:
        raise DeployError(
            f"{running.version.label} has no earlier version that became ready and did not crash. Nothing was changed. --to names another version."
        )
    return earlier


def _expect_state_matches(version: Version, running: Deployment, files: DeploymentFiles, progress: ReportStep) -> None:
    if version.server is not None:
        _expect_same_shape(version, running.version)
        return
    app = version.app_in(files.code(version.number))
    [processor] = app.load().processors
    states = Path(version.settings.folder, "state")
    store = _backup_store(version.settings)
    expect_compatible(processor, str(app), running.version, states, store, progress=progress)


def _expect_same_shape(version: Version, running: Version) -> None:
    """Check that a server continues from the state of another version. Its processor is generated, so its app file declares none."""
    if version.shape != running.shape:
        raise IncompatibleState(
            f"{version.label} was not restored, and {running.label} continues: the two keep different state. Deploy the server with the options of "
            f"{version.label} under another name, or remove this state first with `penstock undeploy {version.name} --purge`.",
            version.name,
        )
