"""The protocol of the supervisors that keep workers running on this machine."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

from .registry import WorkerStart


class ProcessState(StrEnum):
    """The state of a worker's process."""

    RUNNING = "running"
    """It runs."""
    WAITING = "waiting"
    """It has ended, and restarts after a pause."""
    STOPPED = "stopped"
    """It does not run, and does not restart."""


class ProcessStatus(NamedTuple):
    """The status of a worker's process, as its supervisor reports it.

    Args:
        state: its state.
        pid: its process ID; None without a process.
        up_s: its uptime in seconds; None without a process.
    """

    state: ProcessState
    pid: int | None = None
    up_s: float | None = None


class ProcessSupervisor(Protocol):
    """Keeps workers running: restarts a process that ends, after a pause that grows while it ends immediately.

    Every call is idempotent. Only one caller at a time may change workers; `status` and `log_tail` are always allowed.

    Raises:
        SupervisorUnavailable: by every call, if the supervisor does not answer or rejects the request.
    """

    def set_worker_count(self, name: str, workers: int) -> None:
        """Keep exactly the workers 0 to `workers` - 1 of a deployment running, and stop the others after a last checkpoint.

        Returns when the stopped workers have ended and the others are starting.
        """
        ...

    def restart(self, name: str, worker: int) -> None:
        """Stop a worker after a last checkpoint, with its buckets reserved, and start it. Returns when it is starting."""
        ...

    def status(self, name: str, worker: int) -> ProcessStatus:
        """Return the status of a worker's process; STOPPED for an unknown worker."""
        ...

    def log_tail(self, name: str, worker: int, start: WorkerStart | None) -> str:
        """Return the end of what a worker logged since a start, quoted, and the location of the log."""
        ...
