"""Rollouts on this machine: a version replaces another worker by worker, and is rolled back if it does not become ready.

    for each worker: save its desired version -> restart it, with its buckets reserved -> wait until it is ready
    then: save the version as the current one

After an interruption, workers of two versions run, and the desired state lists the version of each. Repeating the command
continues the rollout.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import NoReturn, Protocol

from msgspec.structs import replace

from ...shell import ReportStep
from ..errors import SupervisorUnavailable, UpdateFailed, WorkerFailed
from ..process_supervisor import ProcessSupervisor
from ..registry import DeploymentFiles, DesiredState
from ..version import Version

_CHANGING = Lock()
"""Held while a supervisor's programs change, so that several deployments can start at once in one command."""


class WorkerReadiness(Protocol):
    """The versions and the readiness of a deployment's workers on this machine."""

    def version(self, worker: int) -> int | None:
        """Return the version number of a worker's last start; None if it never started."""
        ...

    def has_crashed(self, worker: int, version: Version) -> bool:
        """Return whether a worker has crashed as a version and waits for its restart, or crashes again and again."""
        ...

    def await_ready(self, worker: int, version: Version, limit_s: float) -> None:
        """Return when a worker is ready as a version, also if it already was; raise WorkerFailed otherwise."""
        ...


class SupervisedRollout:
    """Changes the workers of a deployment on this machine. The caller holds `deployment_lock`.

    Args:
        files: the files of the deployment.
        supervisor: keeps the workers running.
        workers: reports the readiness of the workers.
        limit_s: the time in seconds within which a worker must become ready.
        progress: receives progress lines.
    """

    def __init__(
        self,
        files: DeploymentFiles,
        supervisor: ProcessSupervisor,
        workers: WorkerReadiness,
        limit_s: float,
        progress: ReportStep,
    ) -> None:
        self._files = files
        self._supervisor = supervisor
        self._workers = workers
        self._limit_s = limit_s
        self._progress = progress

    def start(self, version: Version, workers: int) -> None:
        """Start the workers of a deployment that has none.

        Raises:
            UpdateFailed: a worker did not become ready; all workers were stopped.
            SupervisorUnavailable: no worker was started.
        """
        before = self._files.desired_state()
        failed = before.failed if before else ()
        desired = DesiredState(version.number, (version.number,) * workers, failed)
        self._files.save_desired_state(desired)
        try:
            self._set_worker_count(workers)
            self._await_all(version, range(workers))
        except SupervisorUnavailable:
            self._files.save_desired_state(desired.after_stop())
            raise
        except WorkerFailed as error:
            self._set_worker_count(0)
            self._files.save_desired_state(desired.after_stop().after_failure(version.number, workers=()))
            raise UpdateFailed(
                f"{error}\nThe workers of {version.label} were stopped, so nothing is deployed. Correct the app and deploy again."
            ) from error

    def update(self, version: Version) -> None:
        """Replace the version of all workers, one after the other.

        Raises:
            UpdateFailed: a worker did not become ready; all workers run the previous version again.
        """
        before = self._with_crashes(self._files.expect_desired_state())
        self._set_worker_count(len(before.workers))
        try:
            for worker in range(len(before.workers)):
                self._replace(worker, version)
        except WorkerFailed as error:
            self._roll_back(before, version, error)
        self._files.save_desired_state(before.after_update(version.number))

    def replace_all(self, version: Version) -> None:
        """Stop all workers and start them as a version. Versions with different inputs cannot share a consumer group.

        Raises:
            UpdateFailed: a worker did not become ready; all workers run the previous version again.
        """
        before = self._with_crashes(self._files.expect_desired_state())
        try:
            self._restart_all(version, before)
            self._await_all(version, range(len(before.workers)))
        except WorkerFailed as error:
            old = self._files.version(before.version)
            self._restart_all(old, before)
            workers = (old.number,) * len(before.workers)
            self._files.save_desired_state(before.after_failure(version.number, workers))
            raise _rolled_back_error(error, old) from error
        self._files.save_desired_state(before.after_update(version.number))

    def scale(self, workers: int) -> None:
        """Change the number of workers.

        Raises:
            WorkerFailed: a new worker did not become ready; its supervisor keeps restarting it.
        """
        desired = self._files.expect_desired_state()
        kept = desired.workers[:workers]
        new = (desired.version,) * (workers - len(kept))
        self._files.save_desired_state(replace(desired, workers=kept + new))
        self._set_worker_count(workers)
        self._await_all(self._files.version(desired.version), range(len(kept), workers))

    def reapply(self) -> None:
        """Keep the desired workers running, for instance after a restart of the machine. Return when they are ready.

        Raises:
            WorkerFailed: a worker did not become ready; its supervisor keeps restarting it.
        """
        desired = self._files.expect_desired_state()
        self._set_worker_count(len(desired.workers))
        self._await_all(self._files.version(desired.version), range(len(desired.workers)))

    def stop(self) -> None:
        """Stop all workers after a last checkpoint."""
        self._set_worker_count(0)
        self._files.save_desired_state(self._files.expect_desired_state().after_stop())

    def _with_crashes(self, desired: DesiredState) -> DesiredState:
        """Record that the current version has failed if it crashes, and return the desired state."""
        current = self._files.version(desired.version)
        if any(self._workers.has_crashed(worker, current) for worker in range(len(desired.workers))):
            desired = desired.after_failure(current.number, desired.workers)
            self._files.save_desired_state(desired)
        return desired

    def _restart_all(self, version: Version, before: DesiredState) -> None:
        count = len(before.workers)
        self._progress(f"{version.label}: restarting all workers, because the inputs differ …")
        self._set_worker_count(0)
        self._files.save_desired_state(replace(before, workers=(version.number,) * count))
        self._set_worker_count(count)

    def _replace(self, worker: int, version: Version) -> None:
        """Replace the version of one worker, unless it already runs this version."""
        desired = self._files.expect_desired_state()
        workers = list(desired.workers)
        workers[worker] = version.number
        self._files.save_desired_state(replace(desired, workers=tuple(workers)))
        if self._workers.version(worker) != version.number:
            self._progress(f"{version.label}: worker {worker + 1} of {len(workers)}")
            self._supervisor.restart(self._files.name, worker)
        self._workers.await_ready(worker, version, self._limit_s)

    def _roll_back(self, before: DesiredState, version: Version, error: WorkerFailed) -> NoReturn:
        """Restore the previous version of all workers.

        Raises:
            UpdateFailed: always.
        """
        old = self._files.version(before.version)
        self._progress(f"{version.label} does not become ready. Restoring {old.label} …")
        count = len(self._files.expect_desired_state().workers)
        self._files.save_desired_state(
            self._files.expect_desired_state().after_failure(version.number, (old.number,) * count)
        )
        # Compare the versions that run: an interrupted command may have left workers of a third version.
        replaced = [worker for worker in range(count) if self._workers.version(worker) != old.number]
        for worker in replaced:
            self._supervisor.restart(self._files.name, worker)
        try:
            self._await_all(old, replaced)
        except WorkerFailed as old_error:
            raise UpdateFailed(
                f"{error}\n{old.label} was restored, but does not become ready either: {old_error}\n"
                "No saved state is lost. The supervisor keeps restarting it."
            ) from error
        raise _rolled_back_error(error, old) from error

    def _await_all(self, version: Version, workers: Iterable[int]) -> None:
        for worker in workers:
            self._workers.await_ready(worker, version, self._limit_s)

    def _set_worker_count(self, workers: int) -> None:
        with _CHANGING:
            self._supervisor.set_worker_count(self._files.name, workers)


def _rolled_back_error(error: WorkerFailed, old: Version) -> UpdateFailed:
    return UpdateFailed(
        f"{error}\n{old.label} was restored and runs. No saved state is lost. Correct the app and deploy again."
    )
