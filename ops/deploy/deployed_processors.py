"""The deployments of a folder (`--dir`), for observers: which workers must run, and what their supervisor reports."""

from __future__ import annotations

from pathlib import Path

from .deployed import DeployedProcessor
from .errors import DeployError, SupervisorUnavailable
from .folders import names_of_deployments


def deployed_processors(folder: Path) -> dict[str, DeployedProcessor]:
    """Return the deployments in a folder by name, also stopped ones.

    Processors on Kubernetes, and those with unreadable files or a supervisor that does not answer, are absent: their reports alone determine
    their state.
    """
    found: dict[str, DeployedProcessor] = {}
    for name in names_of_deployments(folder):
        from .observed_deployments import observed_deployment  # noqa: PLC0415 - slow to import, and without a deployment not needed

        try:
            deployment = observed_deployment(folder, name)
        except (DeployError, SupervisorUnavailable):
            continue  # `penstock deployments` reports the error
        if deployment is not None:
            found[name] = deployment
    return found
