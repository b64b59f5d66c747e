"""The program that supervisord and systemd start: it reads a worker's desired version and becomes that worker.

    python -m penstock.ops.deploy.launch DIR NAME WORKER

So their configuration stays the same for all versions, and a restarted worker runs its current desired version.
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
    """Replace this process with a worker of a deployment. Does not return.

    Raises:
        NotDeployed: the deployment has no such worker.
        DeployError: a file of the deployment is unreadable.
    """
    files = DeploymentFiles(folder, name)
    desired = files.desired_state()
    if desired is None or worker >= len(desired.workers):
        raise NotDeployed(
            f"{name} in {folder} has no worker {worker}. It is not deployed, or has fewer workers. Nothing was started."
        )
    version = files.version(desired.workers[worker])
    port = choose_ports(["health"], {})["health"]
    command = penstock_command(*run_arguments(version, files.code(version.number), str(port)))
    environment = {
        **_without_penstock_variables(os.environ),
        **load_variables(files.environment),
        DEPLOYMENT_VARIABLE: version.label,
    }
    os.chdir(version.settings.working_folder)
    files.save_start(worker, WorkerStart(version.number, os.getpid(), port))
    os.execve(command[0], command, environment)  # noqa: S606 - replaces this process, without a shell


def _without_penstock_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Penstock's variables, which the supervisor has inherited: the version defines them all."""
    return {name: value for name, value in environment.items() if not name.startswith("PENSTOCK_")}


def main() -> None:
    """Run the program with the arguments of the command line."""
    _, folder, name, worker = sys.argv
    try:
        launch(Path(folder), name, int(worker))
    except (PenstockError, OSError) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
