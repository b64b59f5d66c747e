"""Whether a worker of a version has come up: its process lives, its loop turns, it reads its buckets, and it goes on doing so."""

from __future__ import annotations

import http.client
import time

import msgspec

from ..worker.health import LOOPBACK, Health
from .errors import WorkerFailed
from .process_supervisor import ProcessStatus, ProcessSupervisor
from .registry import DeploymentFiles, WorkerStart
from .version import Version

READY_LIMIT_S = 120.0
"""How long a worker may take to read its buckets: restoring large states takes its time."""
STABLE_S = 3.0
"""How long a worker that has saved no checkpoint has to read its buckets before it is believed: a bad one stops at its first event."""
STABLE_WITHOUT_BUCKETS_S = 10.0
"""The same for one that has no buckets: with more workers than buckets it never gets any, else its group is about to give it some."""
HEALTH_TIMEOUT_S = 5.0
POLL_EVERY_S = 0.1

_health = msgspec.json.Decoder(Health).decode


class LocalWorkers:
    """The workers of a deployment on this machine, as they are now.

    Args:
        records: what is noted of the deployment.
        keeper: what keeps them alive.
    """

    def __init__(self, records: DeploymentFiles, keeper: ProcessSupervisor) -> None:
        self._records = records
        self._keeper = keeper

    def seen(self, worker: int) -> ProcessStatus:
        """Return how a worker's process is."""
        return self._keeper.look(self._records.name, worker)

    def health(self, worker: int) -> Health | None:
        """Return what a worker says of itself; None where it says nothing, or another one answers."""
        started = self._records.started(worker)
        seen = self.seen(worker)
        if started is None or seen.pid != started.pid:
            return None
        answer = _ask(started)
        return answer if answer is not None and answer.pid == started.pid else None

    def version(self, worker: int) -> int | None:
        """Return the number of the version that a worker was last started as; None where it never was."""
        started = self._records.started(worker)
        return None if started is None else started.version

    def await_up(self, worker: int, version: Version, limit_s: float) -> None:
        """Return when a worker has come up as a version, also where it has long been.

        Raises:
            WorkerFailed: it ended, or did not come up within the limit; it is left to its keeper.
        """
        deadline_s, pids, gone = time.monotonic() + limit_s, set[int](), self._gone(worker)
        while not self._is_up(worker, version):
            started, seen = self._records.started(worker), self.seen(worker)
            if started is not None and started != gone and started.version == version.number:
                pids.add(started.pid)
            if len(pids) > 1 or (pids and seen.pid not in pids):
                raise WorkerFailed(
                    f"Worker {worker} of {version.label} ended right after it was started. {self.last_words(worker)}"
                )
            if time.monotonic() > deadline_s:
                raise WorkerFailed(
                    f"Worker {worker} of {version.label} did not come to read its buckets within {limit_s:g} s. {self.last_words(worker)}"
                )
            time.sleep(POLL_EVERY_S)

    def _gone(self, worker: int) -> WorkerStart | None:
        """Return what is noted of a process that a worker had before, as one that there were too many of; None where it has that one."""
        started = self._records.started(worker)
        return None if started is None or started.pid == self.seen(worker).pid else started

    def last_words(self, worker: int) -> str:
        """Return the end of what a worker has said, quoted."""
        return self._keeper.last_words(self._records.name, worker)

    def _is_up(self, worker: int, version: Version) -> bool:
        health = self.health(worker)
        return health is not None and health.deployment == version.label and health.is_ready and _lasts(health)


def _lasts(health: Health) -> bool:
    """Tell whether a worker that is ready has been so for long enough to be believed."""
    for_s = health.settled_s or 0.0
    return (health.checkpoints > 0 or for_s >= STABLE_S) if health.buckets else for_s >= STABLE_WITHOUT_BUCKETS_S


def _ask(started: WorkerStart) -> Health | None:
    """Ask a worker how it is; None where nobody answers as a worker does."""
    connection = http.client.HTTPConnection(LOOPBACK, started.health, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        return _health(connection.getresponse().read())
    except (OSError, http.client.HTTPException, msgspec.MsgspecError):
        return None
    finally:
        connection.close()
