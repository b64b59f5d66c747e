"""The program that supervisord and systemd start: it reads a worker's desired version and becomes that worker.

    python -m penstock.ops.deploy.launch DIR NAME WORKER [SLOT]

So their configuration stays the same for all versions, and a restarted worker runs its current desired version. Supervisord has two
processes for each worker, its slots, so that a successor is prepared while the worker runs. The one that is not current is not started.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ...processors.errors import PenstockError
from ..dev_services.ports import free_port
from ..worker.app_processes import HANDED_OVER, penstock_command
from ..worker.health import DEPLOYMENT_VARIABLE
from .environment import load_variables
from .errors import NotDeployed
from .registry import DeploymentFiles, WorkerStart
from .worker_command import run_arguments
from .worker_logs import log_of


def launch(folder: Path, name: str, worker: int, slot: int | None = None) -> None:
    """Replace this process with a worker of a deployment. Does not return, unless another slot is the worker's current one.

    Raises:
        NotDeployed: the deployment has no such worker.
        DeployError: a file of the deployment is unreadable.
    """
    files = DeploymentFiles(folder, name)
    if slot is not None and slot != files.slot(worker):
        return
    desired = files.desired_state()
    if desired is None or worker >= len(desired.workers):
        raise NotDeployed(
            f"{name} in {folder} has no worker {worker}. It is not deployed, or has fewer workers. Nothing was started."
        )
    version = files.version(desired.workers[worker])
    port = free_port()
    command = penstock_command(*run_arguments(version, files.code(version.number), str(port), str(worker)))
    environment = {
        **_without_penstock_variables(os.environ),
        **load_variables(files.environment),
        DEPLOYMENT_VARIABLE: version.label,
    }
    os.chdir(version.settings.working_folder)
    log = log_of(folder, name, worker, slot or 0)
    log_bytes = log.stat().st_size if log.exists() else 0
    files.save_start(worker, WorkerStart(version.number, os.getpid(), port, log_bytes, slot or 0))
    os.execve(command[0], command, environment)  # noqa: S606 - replaces this process, without a shell


def _without_penstock_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Penstock's variables, which the supervisor has inherited: the version defines them all."""
    return {name: value for name, value in environment.items() if not name.startswith("PENSTOCK_")}


def main() -> None:
    """Run the program with the arguments of the command line."""
    _, folder, name, worker, *slots = sys.argv
    try:
        launch(Path(folder), name, int(worker), next(map(int, slots), None))
        sys.exit(HANDED_OVER)
    except (PenstockError, OSError) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
