"""The program that supervisord starts: it reads a worker's desired version and runs that worker.

    python -m penstock.ops.deploy.launch DIR NAME WORKER SLOT

So its configuration stays the same for all versions, and a restarted worker runs its current desired version. It has two
processes for each worker, its slots, so that a successor is prepared while the worker runs. The one that is not current is not started.

The worker runs in this process, which has already imported much of what it needs: another start of Python would take a fifth of its start.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

from ...processors import PenstockError
from ..kernel import DEPLOYMENT_VARIABLE, HANDED_OVER
from ..shell import free_port
from .environment import load_variables
from .errors import NotDeployed
from .registry import DeploymentFiles, WorkerStart
from .worker_command import run_arguments
from .worker_logs import log_of

PROGRAM = "penstock.ops.deploy.launch"
"""The module of this program, as on the command lines of workers."""


def prepare_launch(folder: Path, name: str, worker: int, slot: int) -> bool:
    """Turn this process into a worker of a deployment: set its command line, variables and working folder, and note its start.

    Returns:
        Whether to run it. Otherwise, another slot is the worker's current one.

    Raises:
        NotDeployed: the deployment has no such worker.
        DeployError: a file of the deployment is unreadable.
    """
    files = DeploymentFiles(folder, name)
    if slot != files.slot(worker):
        return False
    desired = files.desired_state()
    if desired is None or worker >= len(desired.workers):
        raise NotDeployed(
            f"{name} in {folder} has no worker {worker}. It is not deployed, or has fewer workers. Nothing was started."
        )
    version = files.version(desired.workers[worker])
    port = free_port()
    arguments = run_arguments(version, files.code(version.number), str(port), str(worker))
    environment = {
        **_without_penstock_variables(os.environ),
        **load_variables(files.environment),
        DEPLOYMENT_VARIABLE: version.label,
    }
    _change_folder(version.settings.working_folder)
    log = log_of(folder, name, worker, slot)
    log_bytes = log.stat().st_size if log.exists() else 0
    files.save_start(worker, WorkerStart(version.number, os.getpid(), port, log_bytes, slot))
    sys.argv[1:] = arguments
    os.environ.clear()
    os.environ.update(environment)
    return True


def _change_folder(folder: str) -> None:
    """Make a folder the working folder, from which apps may import modules."""
    started_in = str(Path.cwd())
    os.chdir(folder)
    sys.path[:] = [folder if entry == started_in else entry for entry in sys.path]


def _without_penstock_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Penstock's variables, which the supervisor has inherited: the version defines them all."""
    return {name: value for name, value in environment.items() if not name.startswith("PENSTOCK_")}


def main() -> None:
    """Run the program with the arguments of the command line."""
    _, folder, name, worker, slot = sys.argv
    try:
        is_current = prepare_launch(Path(folder), name, int(worker), int(slot))
    except (PenstockError, OSError) as error:
        sys.exit(f"Error: {error}")
    if not is_current:
        sys.exit(HANDED_OVER)
    runpy.run_module("penstock", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
