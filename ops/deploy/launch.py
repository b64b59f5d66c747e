"""What supervisord and systemd start: it becomes the worker of the version that it is to run, as the deployment stands at that moment.

    python -m penstock.ops.deploy.launch DIR NAME WORKER

So what they are told of a deployment stays the same from version to version, and whoever restarts a worker chooses by its standing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ...processors.errors import PenstockError
from ..dev_services.ports import choose_ports
from ..worker.app_processes import penstock_command
from ..worker.health import DEPLOYMENT_VARIABLE
from .environment import load_variables
from .errors import NotDeployed
from .registry import DeploymentFiles, WorkerStart
from .worker_command import run_arguments


def launch(folder: Path, name: str, worker: int) -> None:
    """Become a worker of a deployment; does not return.

    Raises:
        NotDeployed: it has no such worker.
        DeployError: what is noted of it cannot be read.
    """
    records = DeploymentFiles(folder, name)
    standing = records.standing()
    if standing is None or worker >= len(standing.workers):
        raise NotDeployed(f"{name} has no worker {worker} in {folder}: it is not deployed, or with fewer.")
    version = records.version(standing.workers[worker])
    port = choose_ports(["health"], {})["health"]
    command = penstock_command(*run_arguments(version, records.code(version.number), str(port)))
    environment = {
        **_without_ours(os.environ),
        **load_variables(records.environment),
        DEPLOYMENT_VARIABLE: version.label,
    }
    os.chdir(version.settings.working_folder)
    records.start(worker, WorkerStart(version.number, os.getpid(), port))
    os.execve(command[0], command, environment)  # noqa: S606 - it becomes the worker: no shell, no other process


def _without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what happened to be set where the keeper was started: a version says all that its workers need."""
    return {name: value for name, value in environment.items() if not name.startswith("PENSTOCK_")}


def main() -> None:
    """Run it as a command."""
    _, folder, name, worker = sys.argv
    try:
        launch(Path(folder), name, int(worker))
    except (PenstockError, OSError) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
