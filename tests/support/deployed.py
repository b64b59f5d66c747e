"""Versions of an app, and a supervisor in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from penstock.ops.deploy import DeploymentFiles, DeploymentSettings, Target, Version, WorkerFailed
from penstock.ops.deploy.process_supervisor import ProcessState, ProcessStatus
from penstock.ops.deploy.registry import WorkerStart
from penstock.ops.deploy.version import VersionShape
from penstock.processors.apps import Contents

SHAPE = VersionShape("int by meter", {"readings": 4})


def version_of(
    folder: Path,
    number: int,
    *,
    name: str = "totals",
    shape: VersionShape = SHAPE,
    settings: DeploymentSettings | None = None,
) -> Version:
    """Return a version of a processor that sums readings by meter."""
    settings = settings or DeploymentSettings(kafka="broker:9092", folder=str(folder), working_folder=str(folder))
    return Version(
        number,
        name,
        str(folder / "app.py"),
        "app.py",
        "Totals",
        f"{number:016x}",
        settings,
        shape,
        1_700_000_000_000 + number,
        "ann",
    )


def on_a_cluster(version: Version, pods: object) -> Version:
    """Return the same version for Kubernetes."""
    return replace(version, settings=replace(version.settings, target=Target.KUBERNETES, pods=pods))


def stored_versions(folder: Path, *numbers: int) -> DeploymentFiles:
    """Store versions, and return the files of their deployment."""
    app = folder / "app.py"
    app.write_text("# nothing\n")
    files = DeploymentFiles(folder, "totals")
    for number in numbers:
        files.add_version(version_of(folder, number), Contents({"app.py": app}))
    return files


class MemorySupervisor:
    """A supervisor in memory. Each worker runs the desired version of its last start.

    Args:
        files: the files of the deployment.
        bad: versions whose workers end right after their start.
        at_call: called before each change; a test may raise there.
    """

    def __init__(self, files: DeploymentFiles, bad: set[int], at_call: Callable[[], None] = lambda: None) -> None:
        self._files = files
        self._bad = bad
        self.at_call = at_call
        self.running: dict[int, int] = {}
        self.min_ready = 0

    def set_worker_count(self, name: str, workers: int) -> None:
        """Start and stop workers at once."""
        self.at_call()
        for worker in [worker for worker in self.running if worker >= workers]:
            del self.running[worker]
        for worker in range(workers):
            if worker not in self.running:
                self._start(worker)

    def restart(self, name: str, worker: int) -> None:
        """Restart a worker at once."""
        self.at_call()
        self.min_ready = min(self.min_ready, len(self.ready) - 1)
        self._start(worker)

    def status(self, name: str, worker: int) -> ProcessStatus:
        """Return RUNNING or STOPPED."""
        return ProcessStatus(ProcessState.RUNNING if worker in self.running else ProcessState.STOPPED)

    def log_tail(self, name: str, worker: int, start: WorkerStart | None) -> str:
        """Return a fixed line."""
        return "Its log ends with: no."

    def version(self, worker: int) -> int | None:
        """Return the version that a worker runs."""
        return self.running.get(worker)

    def has_crashed(self, worker: int, version: Version) -> bool:
        """Return whether a worker runs a bad version."""
        return self.running.get(worker) == version.number and version.number in self._bad

    def await_ready(self, worker: int, version: Version, limit_s: float) -> None:
        """Return or raise at once."""
        self.at_call()
        if self.running.get(worker) != version.number or version.number in self._bad:
            raise WorkerFailed(f"Worker {worker} of {version.label} ended right after its start.")

    @property
    def ready(self) -> dict[int, int]:
        """The ready workers, and the versions that they run."""
        return {worker: number for worker, number in self.running.items() if number not in self._bad}

    def _start(self, worker: int) -> None:
        desired = self._files.desired_state()
        assert desired is not None
        self.running[worker] = desired.workers[worker]
