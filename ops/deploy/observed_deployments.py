"""The deployments of a folder (`--dir`), for observers: which workers must run, and what their supervisor reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..monitoring.deployed import DeployedProcessor
from ..monitoring.disk import free_share
from .errors import DeployError, SupervisorUnavailable
from .process_supervisor import ProcessState, ProcessStatus
from .registry import Deployment, DeploymentFiles, names_of_deployments
from .rollouts import local_workers
from .version import Target


def deployed_processors(folder: Path) -> dict[str, DeployedProcessor]:
    """Return the deployments in a folder by name, also stopped ones.

    Processors on Kubernetes, and those with unreadable files or a supervisor that does not answer, are absent: their reports alone determine
    their state.
    """
    return dict(_deployed(folder))


def _deployed(folder: Path) -> Iterator[tuple[str, DeployedProcessor]]:
    for name in names_of_deployments(folder):
        files = DeploymentFiles(folder, name)
        try:
            deployment = files.deployment()
            if deployment is None:
                yield name, DeployedProcessor("", 0)
            elif deployment.target is not Target.KUBERNETES:
                yield name, _observed(files, deployment, free_share(folder))
        except (DeployError, SupervisorUnavailable):
            continue  # `penstock deployments` reports the error


def _observed(files: DeploymentFiles, deployment: Deployment, disk_free_share: float | None) -> DeployedProcessor:
    workers = local_workers(files, deployment.version.settings)
    processes = [workers.process(worker) for worker in range(deployment.workers)]
    return DeployedProcessor(
        label=deployment.version.label,
        workers=deployment.workers,
        restarting=_count(processes, ProcessState.WAITING),
        unsupervised=_count(processes, ProcessState.STOPPED),
        up_s=min((process.up_s for process in processes if process.up_s is not None), default=None),
        deployed_ms=deployment.version.time_ms,
        earlier_version=deployment.desired.earlier_version(files.version_numbers()),
        urls=() if deployment.version.server is None else deployment.version.server.urls,
        disk_free_share=disk_free_share,
    )


def _count(processes: list[ProcessStatus], state: ProcessState) -> int:
    return sum(process.state is state for process in processes)
