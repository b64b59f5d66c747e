"""What is deployed and how it is, for people and programs that look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .deployments import local_workers
from .errors import SupervisorUnavailable
from .process_supervisor import ProcessState
from .readiness import LocalWorkers
from .registry import Deployment, DeploymentFiles
from .version import Target


@dataclass(frozen=True)
class DeployedWorker:
    """A worker as it is.

    Args:
        worker: which.
        version: the number of the version that it was last started as; None where it never was.
        pid: its process, on this machine; None where that tells nothing.
        is_ready: whether its loop turns and it reads the buckets that are its own.
        buckets: those.
        up_s: for how long its process has lived, in seconds; None where it does not.
        problem: what is wrong with it, in words; empty where nothing is.
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
    """A deployment as it is.

    Args:
        deployment: what it is to be.
        workers: its workers; nothing where they are on other machines.
    """

    deployment: Deployment
    workers: tuple[DeployedWorker, ...]

    @property
    def ready(self) -> int:
        """How many workers are ready."""
        return sum(worker.is_ready for worker in self.workers)

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words."""
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        deployment = self.deployment
        if not deployment.standing.is_settled:
            others = sorted({number for number in deployment.standing.workers if number != deployment.version.number})
            yield (
                f"Going from {deployment.version.label} to version {', '.join(map(str, others))} was broken off: deploy again to go on, or "
                f"`penstock rollback {deployment.name}`."
            )
        yield from (f"Worker {worker.worker}: {worker.problem}" for worker in self.workers if worker.problem)


def deployment_status(folder: Path, deployment: Deployment) -> DeploymentStatus:
    """Return a deployment as it is."""
    if deployment.target is Target.KUBERNETES:
        return DeploymentStatus(deployment, ())
    workers = local_workers(DeploymentFiles(folder, deployment.name), deployment.version.settings)
    return DeploymentStatus(deployment, tuple(_worker(workers, worker) for worker in range(deployment.workers)))


def _worker(workers: LocalWorkers, worker: int) -> DeployedWorker:
    version = workers.version(worker)
    try:
        seen, health = workers.seen(worker), workers.health(worker)
    except SupervisorUnavailable as error:
        return DeployedWorker(worker, version, None, is_ready=False, buckets=(), up_s=None, problem=str(error))
    pid = None if health is None else health.pid
    if health is not None and health.is_ready:
        return DeployedWorker(worker, version, pid, is_ready=True, buckets=health.buckets, up_s=seen.up_s, problem="")
    if seen.life is ProcessState.STOPPED:
        problem = (
            "does not run, and nobody keeps it alive, as after a restart of the machine: deploy again, which starts it."
        )
    elif seen.life is ProcessState.WAITING:
        problem = f"ended, and is started again after a pause. {workers.last_words(worker)}"
    elif health is not None and health.since_turn_s is not None and not health.turns:
        problem = f"is stuck: its loop has stood still for {health.since_turn_s:.0f} s. If that lasts, end process {health.pid}."
    else:
        problem = "is starting, or is about to read its buckets."
    return DeployedWorker(worker, version, pid, is_ready=False, buckets=(), up_s=seen.up_s, problem=problem)
