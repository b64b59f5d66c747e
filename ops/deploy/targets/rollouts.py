"""The rollout of a deployment, by its target: supervisord or Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ...shell import ReportStep
from ..process_supervisor import ProcessSupervisor
from ..readiness import LocalWorkers
from ..registry import Deployment, DeploymentFiles
from ..version import DeploymentSettings, Target, Version
from .kubernetes_rollout import KubernetesRollout
from .supervised_rollout import SupervisedRollout


class Rollout(Protocol):
    """Changes the workers of a deployment. Every call is idempotent and continues after an interruption."""

    def start(self, version: Version, workers: int) -> None:
        """Start the workers of a deployment that has none; if one does not become ready, stop all and raise UpdateFailed."""
        ...

    def update(self, version: Version) -> None:
        """Replace the version of all workers one by one; if one does not become ready, roll back and raise UpdateFailed."""
        ...

    def replace_all(self, version: Version) -> None:
        """Replace the version of all workers at once, with the same errors as `update`."""
        ...

    def scale(self, workers: int) -> None:
        """Change the number of workers."""
        ...

    def reapply(self) -> None:
        """Keep the desired workers running."""
        ...

    def stop(self) -> None:
        """Stop all workers after a last checkpoint."""
        ...


def rollout_of(files: DeploymentFiles, settings: DeploymentSettings, progress: ReportStep, limit_s: float) -> Rollout:
    """Return the rollout for a deployment's target."""
    if settings.target is Target.KUBERNETES:
        return KubernetesRollout(files, limit_s, progress)
    supervisor = _supervisor_of(settings)
    return SupervisedRollout(files, supervisor, LocalWorkers(files, supervisor), limit_s, progress)


def roll_out(rollout: Rollout, running: Deployment, version: Version) -> None:
    """Update a deployment: one worker at a time, or all at once if the inputs of the versions differ."""
    if set(running.version.shape.inputs) == set(version.shape.inputs):
        rollout.update(version)
    else:
        rollout.replace_all(version)


def local_workers(files: DeploymentFiles, settings: DeploymentSettings) -> LocalWorkers:
    """Return a deployment's workers on this machine."""
    return LocalWorkers(files, _supervisor_of(settings))


def _supervisor_of(settings: DeploymentSettings) -> ProcessSupervisor:
    from .supervisord import Supervisord  # noqa: PLC0415 - takes a tenth of the start of a command

    return Supervisord(Path(settings.folder))
