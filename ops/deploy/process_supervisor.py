"""The seam to what keeps workers alive on this machine."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol


class ProcessState(str, Enum):
    """How a worker's process is, as its keeper sees it."""

    RUNNING = "running"
    """It lives."""
    WAITING = "waiting"
    """It has ended, and is started again after a pause."""
    STOPPED = "stopped"
    """It does not run, and will not be started."""


class ProcessStatus(NamedTuple):
    """A worker's process as its keeper sees it.

    Args:
        life: how it is.
        pid: its process; None where there is none.
        up_s: for how long it has lived, in seconds; None where it does not.
    """

    life: ProcessState
    pid: int | None = None
    up_s: float | None = None


class ProcessSupervisor(Protocol):
    """Keeps workers alive: what ends is started again, after a pause that grows where it ends at once. All calls may be repeated.

    One caller at a time changes anything; anyone may look. SupervisorUnavailable where it cannot be had.
    """

    def keep(self, name: str, workers: int) -> None:
        """Keep the first so many workers of a deployment alive, and no others: those are stopped, after a last checkpoint.

        Returns when those have ended and the kept ones are being started.
        """
        ...

    def restart(self, name: str, worker: int) -> None:
        """End a worker after a last checkpoint, its buckets waiting for it, and start it again; returns when it is being started."""
        ...

    def look(self, name: str, worker: int) -> ProcessStatus:
        """Return how a worker's process is; also of one that was never kept."""
        ...

    def last_words(self, name: str, worker: int) -> str:
        """Return the end of what a worker has said, quoted, and where the rest is."""
        ...
