"""One version takes another's place, worker by worker; where it does not come up, what ran before is put back.

    for each worker: note the version that it is to run -> end it, its buckets waiting -> it starts as that version -> it has come up
    then: note that the version counts

Whoever dies in between leaves workers of two versions, all of them alive and noted as what they are; to go on is to begin again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from .errors import SupervisorUnavailable, UpdateFailed, WorkerFailed
from .process_supervisor import ProcessSupervisor
from .registry import DeploymentFiles, DesiredState
from .version import Version

Say = Callable[[str], None]
"""Tells the person at the terminal what is going on."""


class WorkerReadiness(Protocol):
    """The workers of a deployment on this machine, as they are now."""

    def version(self, worker: int) -> int | None:
        """Return the number of the version that a worker was last started as; None where it never was."""
        ...

    def await_up(self, worker: int, version: Version, limit_s: float) -> None:
        """Return when a worker has come up as a version, also where it has long been; WorkerFailed where it does not."""
        ...


class SupervisedRollout:
    """Changes which versions the workers of a deployment run. The only one who does, meanwhile.

    Args:
        records: what is noted of it.
        keeper: keeps its workers alive.
        workers: the same, as they are.
        limit_s: how long a worker may take to come up.
        say: tells what is going on.
    """

    def __init__(
        self, records: DeploymentFiles, keeper: ProcessSupervisor, workers: WorkerReadiness, limit_s: float, say: Say
    ) -> None:
        self._records = records
        self._keeper = keeper
        self._workers = workers
        self._limit_s = limit_s
        self._say = say

    def begin(self, version: Version, workers: int) -> None:
        """Start a deployment that has no workers.

        Raises:
            UpdateFailed: not all of them came up; none is left.
            SupervisorUnavailable: none was started.
        """
        before = self._records.standing()
        self._records.stand(DesiredState(version.number, (version.number,) * workers, before.failed if before else ()))
        try:
            self._keeper.keep(self._records.name, workers)
            self._await_all(version, range(workers))
        except SupervisorUnavailable:
            self._records.stand(replace(self._expect_standing(), workers=()))
            raise
        except WorkerFailed as error:
            self._keeper.keep(self._records.name, 0)
            self._records.stand(_after_failure(replace(self._expect_standing(), workers=()), version))
            raise UpdateFailed(
                f"{error}\n{version.label} was taken down again, so nothing runs that did not before. Mend the app and deploy again."
            ) from error

    def update(self, version: Version) -> None:
        """Have every worker run a version, one after the other.

        Raises:
            UpdateFailed: one did not come up; all of them run again what they ran before.
        """
        before = self._expect_standing()
        self._keeper.keep(self._records.name, len(before.workers))
        try:
            for worker in range(len(before.workers)):
                self._turn(worker, version)
        except WorkerFailed as error:
            self._put_back(before, version, error)
        self._records.stand(replace(self._expect_standing(), version=version.number))

    def replace_all(self, version: Version) -> None:
        """Have every worker run a version, all of them at once: versions that cannot be members of one group.

        Raises:
            UpdateFailed: one did not come up; all of them run again what they ran before.
        """
        before = self._expect_standing()
        try:
            self._exchange(version, before)
        except WorkerFailed as error:
            old = self._records.version(before.version)
            self._exchange(old, before, wait=False)
            self._records.stand(
                _after_failure(replace(before, workers=(before.version,) * len(before.workers)), version)
            )
            raise _put_back_error(error, old) from error
        self._records.stand(replace(self._expect_standing(), version=version.number))

    def resize(self, workers: int) -> None:
        """Have so many workers.

        Raises:
            WorkerFailed: a new one did not come up; it is left to its keeper, which goes on trying.
        """
        standing = self._expect_standing()
        kept = standing.workers[:workers]
        new = (standing.version,) * (workers - len(kept))
        self._records.stand(replace(standing, workers=kept + new))
        self._keeper.keep(self._records.name, workers)
        self._await_all(self._records.version(standing.version), range(len(kept), workers))

    def revive(self) -> None:
        """Have the workers kept alive that there are to be: after a restart of the machine, nobody does."""
        self._keeper.keep(self._records.name, len(self._expect_standing().workers))

    def take_down(self) -> None:
        """Stop the workers after a last checkpoint."""
        self._keeper.keep(self._records.name, 0)
        self._records.stand(replace(self._expect_standing(), workers=()))

    def _exchange(self, version: Version, before: DesiredState, *, wait: bool = True) -> None:
        count = len(before.workers)
        self._say(
            f"{version.label}: stopping all workers, since its inputs are others, and starting them as the new version …"
        )
        self._keeper.keep(self._records.name, 0)
        self._records.stand(replace(before, workers=(version.number,) * count))
        self._keeper.keep(self._records.name, count)
        if wait:
            self._await_all(version, range(count))

    def _turn(self, worker: int, version: Version) -> None:
        """Have one worker run a version, which it may do already."""
        standing = self._expect_standing()
        workers = list(standing.workers)
        workers[worker] = version.number
        self._records.stand(replace(standing, workers=tuple(workers)))
        if self._workers.version(worker) != version.number:
            self._say(f"{version.label}: worker {worker + 1} of {len(workers)}")
            self._keeper.restart(self._records.name, worker)
        self._workers.await_up(worker, version, self._limit_s)

    def _put_back(self, before: DesiredState, version: Version, error: WorkerFailed) -> None:
        old = self._records.version(before.version)
        self._say(f"{version.label} does not come up; {old.label} is put back.")
        now = self._expect_standing()
        self._records.stand(_after_failure(replace(now, workers=(old.number,) * len(now.workers)), version))
        # By what they run: an earlier command that was broken off may have left some with yet another version.
        turned = [worker for worker in range(len(now.workers)) if self._workers.version(worker) != old.number]
        for worker in turned:
            self._keeper.restart(self._records.name, worker)
        try:
            self._await_all(old, turned)
        except WorkerFailed as again:
            raise UpdateFailed(
                f"{error}\n{old.label} was put back, and does not come up either: {again}\nIts keeper goes on trying. Nothing that was "
                "saved is lost."
            ) from error
        raise _put_back_error(error, old) from error

    def _await_all(self, version: Version, workers: range | list[int]) -> None:
        for worker in workers:
            self._workers.await_up(worker, version, self._limit_s)

    def _expect_standing(self) -> DesiredState:
        standing = self._records.standing()
        if standing is None:
            raise AssertionError(f"{self._records.name} is not deployed")
        return standing


def _after_failure(standing: DesiredState, failed: Version) -> DesiredState:
    return replace(standing, failed=tuple(sorted({*standing.failed, failed.number})))


def _put_back_error(error: WorkerFailed, old: Version) -> UpdateFailed:
    return UpdateFailed(
        f"{error}\n{old.label} was put back and runs as before; nothing that was saved is lost. Mend the app and deploy again."
    )
