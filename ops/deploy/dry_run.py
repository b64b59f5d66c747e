"""The files and commands of a planned deployment, as text for `--dry-run`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..kernel import penstock_command
from .deployments import DeploymentPlan
from .registry import DeploymentFiles
from .targets import (
    manifest_list,
    manifests_of,
    worker_config,
)
from .version import Target
from .worker_command import run_arguments


def dry_run_text(plans: Sequence[DeploymentPlan]) -> str:
    """Return the files and commands of plans with the same target; for Kubernetes, the input of `kubectl apply`."""
    if plans[0].version.settings.target is Target.KUBERNETES:
        manifests = [each for plan in plans for each in manifests_of(plan.version, plan.code, plan.workers)]
        # The objects for all replicas of a server together are in the manifests of each.
        return manifest_list(list({(each["kind"], each["metadata"]["name"]): each for each in manifests}.values()))
    return "\n".join(line for plan in plans for line in _local_steps(plan))


def _local_steps(plan: DeploymentPlan) -> Iterator[str]:
    version = plan.version
    files = DeploymentFiles(Path(version.settings.folder), version.name)
    command = penstock_command(*run_arguments(version, files.code(version.number), "PORT", "NUMBER"))
    yield f"# {version.label}: code {version.digest}, stored in {files.code(version.number)}"
    yield from (f"#   {name}" for name in sorted(plan.code.files))
    yield f"# Each worker runs in {version.settings.working_folder}:"
    yield f"#   {shlex.join(command)}"
    yield from (f"#   with the value of {name}, stored in {files.environment}" for name in version.settings.variables)
    for worker in range(plan.workers):
        yield worker_config(Path(version.settings.folder), version.name, worker)
