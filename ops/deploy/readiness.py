"""Readiness of workers: a worker is ready when its loop runs, it reads its buckets, and it stays ready for a while."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from ..kernel import LOOPBACK, Health, restarts_of
from ..shell import SystemClock
from .crash_loops import crash_loop_since
from .errors import WorkerFailed
from .process_supervisor import ProcessState, ProcessStatus, ProcessSupervisor
from .registry import DeploymentFiles, WorkerStart
from .version import Version

READY_LIMIT_S = 120.0
"""The time within which a worker must read its buckets. Restoring large state takes a while."""
STABLE_S = 3.0
"""The time for which a worker without a checkpoint must stay ready: a defective version fails at its first event."""
STABLE_WITHOUT_BUCKETS_S = 10.0
"""The same for a worker without buckets: it is a standby, or its group assigns buckets soon."""
HEALTH_TIMEOUT_S = 5.0
POLL_EVERY_S = 0.1
HOUR_MS = 3_600_000

_decode_health = msgspec.json.Decoder(Health).decode


class LocalWorkers:
    """The workers of a deployment on this machine.

    Args:
        files: the files of the deployment.
        supervisor: keeps the workers running.
    """

    def __init__(self, files: DeploymentFiles, supervisor: ProcessSupervisor) -> None:
        self._files = files
        self._supervisor = supervisor

    def process(self, worker: int) -> ProcessStatus:
        """Return the status of a worker's process."""
        return self._supervisor.status(self._files.name, worker)

    def health(self, worker: int) -> Health | None:
        """Return the health that a worker reports; None if it does not answer, or another process does."""
        start = self._files.last_start(worker)
        return None if start is None or self.process(worker).pid != start.pid else _request_health(start)

    def health_without_supervisor(self, worker: int) -> Health | None:
        """Return the health that a worker reports whose supervisor has ended; None if it does not answer, or another process does."""
        start = self._files.last_start(worker)
        return None if start is None else _request_health(start)

    def version(self, worker: int) -> int | None:
        """Return the version number of a worker's last start; None if it never started."""
        start = self._files.last_start(worker)
        return None if start is None else start.version

    def await_ready(self, worker: int, version: Version, limit_s: float) -> None:
        """Return when a worker is ready as a version, also if it already was.

        Raises:
            WorkerFailed: it ended, or was not ready within the limit. Its supervisor keeps restarting it.
        """
        deadline_s, runs, former = time.monotonic() + limit_s, dict[int, WorkerStart](), self._former_start(worker)
        while not self._is_ready(worker, version):
            start, process = self._files.last_start(worker), self.process(worker)
            if start is not None and start != former and start.version == version.number:
                runs.setdefault(start.pid, start)
            first = next(iter(runs.values()), start)
            if len(runs) > 1 or (runs and process.pid not in runs):
                raise WorkerFailed(
                    f"Worker {worker} of {version.label} ended right after its start. {self._log_since(worker, first)}"
                )
            if time.monotonic() > deadline_s:
                raise WorkerFailed(
                    f"Worker {worker} of {version.label} was not ready within {limit_s:g} s. {self._log_since(worker, first)}"
                )
            time.sleep(POLL_EVERY_S)

    def has_crashed(self, worker: int, version: Version) -> bool:
        """Return whether a worker has crashed as a version and waits for its restart, or crashes again and again."""
        if self.version(worker) != version.number:
            return False
        if self.process(worker).state is ProcessState.WAITING:
            return True
        return crash_loop_since(self.restarts_ms(worker, version), SystemClock().now_ms()) is not None

    def restarts_ms(self, worker: int, version: Version) -> list[int]:
        """Return when a worker was restarted after a crash as a version, within the last hour, also before it could report to Kafka."""
        since_ms = max(version.time_ms, SystemClock().now_ms() - HOUR_MS)
        restarts_ms = restarts_of(Path(version.settings.folder, "state"), self._files.name, worker)
        return [at_ms for at_ms in restarts_ms if at_ms >= since_ms]

    def _former_start(self, worker: int) -> WorkerStart | None:
        """Return the last start of a worker whose process has ended; None if that process still runs."""
        start = self._files.last_start(worker)
        return None if start is None or start.pid == self.process(worker).pid else start

    def log_tail(self, worker: int) -> str:
        """Return the end of a worker's log since its last start, quoted."""
        return self._log_since(worker, self._files.last_start(worker))

    def _log_since(self, worker: int, start: WorkerStart | None) -> str:
        return self._supervisor.log_tail(self._files.name, worker, start)

    def _is_ready(self, worker: int, version: Version) -> bool:
        health = self.health(worker)
        return health is not None and health.deployment == version.label and health.is_ready and _is_stable(health)


def _is_stable(health: Health) -> bool:
    """Return whether a ready worker has been ready for long enough."""
    ready_s = health.settled_s or 0.0
    return (health.checkpoints > 0 or ready_s >= STABLE_S) if health.buckets else ready_s >= STABLE_WITHOUT_BUCKETS_S


def _request_health(start: WorkerStart) -> Health | None:
    """Return a worker's answer to a health request; None without a valid answer, or if another process answers."""
    import http.client  # noqa: PLC0415 - slow to import, and without a deployment not needed

    connection = http.client.HTTPConnection(LOOPBACK, start.health, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        health = _decode_health(connection.getresponse().read())
    except (OSError, http.client.HTTPException, msgspec.MsgspecError):
        return None
    finally:
        connection.close()
    return health if health.pid == start.pid else None
