"""The states of a processor, from what is deployed and what is seen. Status, metrics, alerts and dashboard use the same ones.

                   a worker reports                                     no worker reports
deployed           RUNNING, CRASH_LOOPING; UNSUPERVISED without a       STARTING, also after a failure; CRASH_LOOPING; FAILED after a
                   supervisor                                           report of an error, else LOST
undeployed         RUNNING                                              STOPPED; FAILED, LOST after a later worker of a user
not deployed here  RUNNING, CRASH_LOOPING                               CRASH_LOOPING, FAILED, LOST, STOPPED, PURGED; NOT_RUNNING
                                                                        without a report of the last hour
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from ..deploy import DeployedProcessor, crash_loop_since

if TYPE_CHECKING:
    from .status import ProcessorStatus, WorkerStatus

STARTING_S = 120.0
"""The uptime after which a process without a report counts as lost, in seconds. Restoring large state takes a while."""


class ProcessorState(StrEnum):
    """The state of a processor."""

    RUNNING = "running"
    """A worker reports."""
    STARTING = "starting"
    """Its supervisor has started it, and no worker reports yet."""
    CRASH_LOOPING = "crash-looping"
    """Its workers end with errors and restart, again and again."""
    UNSUPERVISED = "unsupervised"
    """A worker reports, but no supervisor restarts it after a failure."""
    STOPPED = "stopped"
    """It was stopped on purpose."""
    FAILED = "failed"
    """Its last worker ended with an error, and has not restarted."""
    LOST = "lost"
    """It should run, but its workers disappeared without a last report."""
    NOT_RUNNING = "not running"
    """No worker has reported within the last hour, or ever."""
    PURGED = "purged"
    """Everything that it had stored was deleted on purpose."""

    @property
    def is_working(self) -> bool:
        """Whether at least one worker reports, and the workers are not in a crash loop."""
        return self in {ProcessorState.RUNNING, ProcessorState.UNSUPERVISED}

    @property
    def needs_outputs(self) -> bool:
        """Whether its workers write, or fail because they cannot."""
        failing = {ProcessorState.STARTING, ProcessorState.CRASH_LOOPING, ProcessorState.FAILED}
        return self.is_working or self in failing


def state_of(status: ProcessorStatus) -> ProcessorState:
    """Return the state of a processor."""
    deployed = status.deployed
    if status.running_workers:
        return _state_with_workers(status)
    if deployed is not None:
        return _state_of_deployed(status, deployed)
    if status.workers and status.is_registered is False:
        return ProcessorState.PURGED
    return _state_of_seen(status)


def _state_with_workers(status: ProcessorStatus) -> ProcessorState:
    if _is_crash_looping(status):
        return ProcessorState.CRASH_LOOPING
    is_unsupervised = status.deployed is not None and status.deployed.unsupervised
    return ProcessorState.UNSUPERVISED if is_unsupervised else ProcessorState.RUNNING


def _state_of_deployed(status: ProcessorStatus, deployed: DeployedProcessor) -> ProcessorState:
    if not deployed.workers:
        return _state_of_undeployed(status)
    if deployed.unsupervised == deployed.workers:
        return ProcessorState.LOST
    if deployed.restarting or _is_crash_looping(status):
        return ProcessorState.CRASH_LOOPING
    last = min(status.workers, key=lambda worker: worker.report_age_s, default=None)
    is_new = deployed.up_s is not None and deployed.up_s < STARTING_S
    if is_new or (last is not None and last.has_failed and last.report_age_s < STARTING_S):
        return ProcessorState.STARTING  # also between a failure and the restart by its supervisor
    return ProcessorState.FAILED if last is not None and last.has_failed else ProcessorState.LOST


def _state_of_undeployed(status: ProcessorStatus) -> ProcessorState:
    """Return the state after `penstock undeploy`: its own workers have stopped on purpose, but a user may have started one since."""
    last = min(status.workers, key=lambda worker: worker.report_age_s, default=None)
    return ProcessorState.STOPPED if last is None or last.deployment else _end_of([last])


def _state_of_seen(status: ProcessorStatus) -> ProcessorState:
    if not status.workers:
        return ProcessorState.NOT_RUNNING
    return ProcessorState.CRASH_LOOPING if _is_crash_looping(status) else _end_of(status.workers)


def _end_of(workers: Sequence[WorkerStatus]) -> ProcessorState:
    """Return the state that workers leave which run no more."""
    if any(worker.is_silent for worker in workers):
        return ProcessorState.LOST
    return ProcessorState.FAILED if any(worker.has_failed for worker in workers) else ProcessorState.STOPPED


def _is_crash_looping(status: ProcessorStatus) -> bool:
    if any(worker.crash_loop_since_ms is not None for worker in status.workers if not worker.is_stopped):
        return True
    # A worker that crashes before its first report is seen only on its own machine.
    recorded = () if status.deployed is None else status.deployed.restarts_ms
    return any(crash_loop_since(restarts_ms, status.at_ms) is not None for restarts_ms in recorded)
