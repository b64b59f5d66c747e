"""What the files and the supervisor of a deployment say about it, for observers."""

from __future__ import annotations

from pathlib import Path

from ..kernel import free_share
from .deployed import DayTable, DeployedProcessor
from .loaded_day import databases_folder, loaded_day
from .process_supervisor import ProcessState, ProcessStatus
from .registry import Deployment, DeploymentFiles
from .targets import local_workers
from .version import Target, Version


def observed_deployment(folder: Path, name: str) -> DeployedProcessor | None:
    """Return a deployment in a folder (`--dir`), also a stopped one; None if it runs on Kubernetes.

    Raises:
        DeployError: its files are unreadable.
        SupervisorUnavailable: its supervisor does not answer.
    """
    files = DeploymentFiles(folder, name)
    deployment = files.deployment()
    if deployment is None:
        return DeployedProcessor("", 0)
    return None if deployment.target is Target.KUBERNETES else _observed(files, deployment, free_share(folder))


def _observed(files: DeploymentFiles, deployment: Deployment, disk_free_share: float | None) -> DeployedProcessor:
    workers = local_workers(files, deployment.version.settings)
    processes = [workers.process(worker) for worker in range(deployment.workers)]
    restarts_ms = [workers.restarts_ms(worker, deployment.version) for worker in range(deployment.workers)]
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
        restarts_ms=tuple(map(tuple, restarts_ms)),
        day_table=_day_table(deployment.version),
    )


def _day_table(version: Version) -> DayTable | None:
    """Return the warehouse table that a server serves, with its day; its files say it also while the server does not answer."""
    location = None if version.server is None else version.server.day_table
    if location is None:
        return None
    loaded = loaded_day(databases_folder(Path(version.settings.folder, "state"), version.name))
    return DayTable(location, None if loaded is None else loaded.day)


def _count(processes: list[ProcessStatus], state: ProcessState) -> int:
    return sum(process.state is state for process in processes)
