"""The status of deployments and their workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..kernel import Health
from .errors import SupervisorUnavailable
from .process_supervisor import ProcessState, ProcessStatus
from .readiness import LocalWorkers
from .registry import Deployment, DeploymentFiles
from .targets import local_workers
from .version import Target


@dataclass(frozen=True)
class DeployedWorker:
    """The status of a worker.

    Args:
        worker: its number.
        version: the version number of its last start; None if it never started.
        pid: its process ID; None if its health endpoint does not answer.
        is_ready: whether its loop runs and it reads the buckets that it owns.
        buckets: these buckets; empty if it is not ready.
        up_s: its uptime in seconds; None without a process.
        problem: the problem in words; empty without one.
    """

    worker: int
    version: int | None
    pid: int | None
    is_ready: bool
    buckets: tuple[int, ...]
    up_s: float | None
    problem: str


@dataclass(frozen=True)
class DeploymentStatus:
    """The status of a deployment.

    Args:
        deployment: the deployment.
        workers: its workers on this machine; empty on Kubernetes.
    """

    deployment: Deployment
    workers: tuple[DeployedWorker, ...]

    @property
    def ready(self) -> int:
        """The number of ready workers."""
        return sum(worker.is_ready for worker in self.workers)

    @property
    def problems(self) -> list[str]:
        """The problems in words."""
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        deployment = self.deployment
        if not deployment.desired.is_rolled_out:
            others = sorted({number for number in deployment.desired.workers if number != deployment.version.number})
            yield (
                f"An update from {deployment.version.label} to version {', '.join(map(str, others))} was interrupted. Deploy again to "
                f"continue, or undo it with `penstock rollback {deployment.name}`."
            )
        yield from (f"Worker {worker.worker} {worker.problem}" for worker in self.workers if worker.problem)


def deployment_status(folder: Path, deployment: Deployment) -> DeploymentStatus:
    """Return the status of a deployment in a folder (`--dir`)."""
    if deployment.target is Target.KUBERNETES:
        return DeploymentStatus(deployment, ())
    workers = local_workers(DeploymentFiles(folder, deployment.name), deployment.version.settings)
    return DeploymentStatus(deployment, tuple(_worker(workers, worker) for worker in range(deployment.workers)))


def _worker(workers: LocalWorkers, worker: int) -> DeployedWorker:
    version = workers.version(worker)
    try:
        process, health = workers.process(worker), workers.health(worker)
    except SupervisorUnavailable as error:
        problem = f"has an unknown status. {error}"
        return DeployedWorker(worker, version, None, is_ready=False, buckets=(), up_s=None, problem=problem)
    unsupervised = workers.health_without_supervisor(worker) if process.state is ProcessState.STOPPED else None
    if unsupervised is not None:
        problem = (
            "has no running supervisor, so it does not restart after a failure. Deploy again to start the supervisor."
        )
        ready, buckets = unsupervised.is_ready, unsupervised.buckets if unsupervised.is_ready else ()
        return DeployedWorker(worker, version, unsupervised.pid, ready, buckets, up_s=None, problem=problem)
    pid = None if health is None else health.pid
    if health is not None and health.is_ready:
        return DeployedWorker(worker, version, pid, True, health.buckets, process.up_s, problem="")
    problem = _problem(workers, worker, process, health)
    return DeployedWorker(worker, version, pid, is_ready=False, buckets=(), up_s=process.up_s, problem=problem)


def _problem(workers: LocalWorkers, worker: int, process: ProcessStatus, health: Health | None) -> str:
    """Return the problem of a worker that is not ready."""
    if process.state is ProcessState.WAITING:
        return f"has ended, and restarts after a pause. {workers.log_tail(worker)}"
    if process.state is ProcessState.STOPPED:
        return "is not running, for instance after a restart of the machine. Deploy again to start it."
    if health is not None and health.since_turn_s is not None and not health.turns:
        return (
            f"hangs: its loop has not run for {health.since_turn_s:.0f} s. If this continues, end process {health.pid}."
        )
    return "is starting, or does not read its buckets yet."
