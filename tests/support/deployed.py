"""Apps in versions, and a machine in memory that keeps their workers alive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from penstock.ops.deploy.errors import WorkerFailed
from penstock.ops.deploy.process_supervisor import ProcessState, ProcessStatus
from penstock.ops.deploy.registry import DeploymentFiles
from penstock.ops.deploy.version import DeploymentSettings, Shape, Target, Version
from penstock.processors.declare.app_files import Contents

SHAPE = Shape("int by meter", {"readings": 4})


def version_of(
    folder: Path, number: int, *, name: str = "totals", shape: Shape = SHAPE, settings: DeploymentSettings | None = None
) -> Version:
    """Return a version of a processor that adds up meters."""
    settings = settings or DeploymentSettings(kafka="broker:9092", folder=str(folder), working_folder=str(folder))
    return Version(
        number,
        name,
        str(folder / "app.py"),
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


def kept_versions(folder: Path, *numbers: int) -> DeploymentFiles:
    """Keep versions, and return what is noted of the deployment."""
    app = folder / "app.py"
    app.write_text("# nothing\n")
    records = DeploymentFiles(folder, "totals")
    for number in numbers:
        records.add(version_of(folder, number), Contents({"app.py": app}))
    return records


class MemoryMachine:
    """Keeps workers alive that are numbers: each runs the version that it was to run when it was last started.

    Args:
        records: say which.
        bad: versions whose workers end as soon as they are started.
        at_call: called before anything is changed; a test may raise there.
    """

    def __init__(self, records: DeploymentFiles, bad: set[int], at_call: Callable[[], None] = lambda: None) -> None:
        self._records = records
        self._bad = bad
        self.at_call = at_call
        self.running: dict[int, int] = {}
        self.fewest = 0

    def keep(self, name: str, workers: int) -> None:
        """Keep the first so many alive."""
        self.at_call()
        for worker in [worker for worker in self.running if worker >= workers]:
            del self.running[worker]
        for worker in range(workers):
            if worker not in self.running:
                self._start(worker)

    def restart(self, name: str, worker: int) -> None:
        """End a worker and start it again."""
        self.at_call()
        self.fewest = min(self.fewest, len(self.good) - 1)
        self._start(worker)

    def look(self, name: str, worker: int) -> ProcessStatus:
        """Return how a worker is."""
        return ProcessStatus(ProcessState.RUNNING if worker in self.running else ProcessState.STOPPED)

    def last_words(self, name: str, worker: int) -> str:
        """Return what it said."""
        return "It said: no."

    def version(self, worker: int) -> int | None:
        """Return what a worker runs."""
        return self.running.get(worker)

    def await_up(self, worker: int, version: Version, limit_s: float) -> None:
        """Tell at once whether it is up."""
        self.at_call()
        if self.running.get(worker) != version.number or version.number in self._bad:
            raise WorkerFailed(f"Worker {worker} of {version.label} ended right after it was started.")

    @property
    def good(self) -> dict[int, int]:
        """Workers that do their work, and the versions that they run."""
        return {worker: number for worker, number in self.running.items() if number not in self._bad}

    def _start(self, worker: int) -> None:
        standing = self._records.standing()
        assert standing is not None
        self.running[worker] = standing.workers[worker]
