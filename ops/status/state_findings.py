"""The finding about the state of a processor: the cause, since when, the impact, and what to do next. One incident has one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from ...processors import counted, human_duration, human_size
from .finding import Problem, Severity
from .states import ProcessorState

if TYPE_CHECKING:
    from .status import ProcessorStatus, WorkerStatus

DISK_FREE_SHARE = 0.05
"""The free share of a disk below which it is a problem."""
BLAMED_DEPLOY_S = 3_600.0
"""The time after a deploy within which a failure suggests a rollback, in seconds."""


def state_problems(status: ProcessorStatus) -> Iterator[Problem]:
    """Yield the finding about the state of a processor with inputs, if the state needs one."""
    describe = _DESCRIPTIONS.get(status.state)
    if status.recreated_inputs:
        describe = _with_another_input
    elif status.missing_outputs:
        describe = _without_output
    if status.shards and describe is not None:
        yield from describe(status)


def backlog_of(status: ProcessorStatus) -> str:
    """Return the backlog of a processor in words."""
    if status.backlog_events is None:
        return "its backlog is unknown"
    size = "" if not status.backlog_bytes else f" (about {human_size(status.backlog_bytes)})"
    return f"its backlog is {counted(status.backlog_events, 'event')}{size}"


def last_wait_of(worker: WorkerStatus) -> str:
    """Return what a worker that is silent now waited for in its last report, as a sentence to append; empty if for nothing."""
    return f" It last reported that it waits for {worker.waits_for}." if worker.waits_for else ""


def _with_another_input(status: ProcessorStatus) -> Iterator[Problem]:
    yield Problem(
        Severity.CRITICAL,
        "recreated",
        f"{', '.join(status.recreated_inputs)} was deleted and created again: the committed offsets belong to the old topic. The processor reads nothing from "
        "the new topic, its workers stop at their start, and its backlog is unknown. Stop it, and start at the first event with `penstock reset APP:PROCESSOR --to "
        "earliest`; add `--state empty` if the processor is stateful.",
    )


def _without_output(status: ProcessorStatus) -> Iterator[Problem]:
    one = len(status.missing_outputs) == 1
    restart = (
        "Its supervisor starts the workers again"
        if status.deployed is not None
        else "Then start the workers again that have failed"
    )
    yield Problem(
        Severity.CRITICAL,
        "no output",
        f"{'Its output' if one else 'Its outputs'} {', '.join(status.missing_outputs)} {'does' if one else 'do'} not exist: deleted, or hidden from this Kafka "
        f"user. Workers fail when they write, and {_impact(status)} Unread events wait, as long as the inputs retain them. Create the app's categories with `penstock "
        f"category create`. {restart}; deleted records do not return.",
    )


def _not_running(status: ProcessorStatus) -> Iterator[Problem]:
    if status.backlog_events:
        yield Problem(
            Severity.CRITICAL,
            "not running",
            f"No worker runs it, and {_impact(status)} Start it with `penstock run` or `penstock deploy`; if it is no longer needed, delete its data "
            f"with `penstock undeploy {status.node.name} --purge`.",
        )


def _stopped(status: ProcessorStatus) -> Iterator[Problem]:
    age_s = min((worker.report_age_s for worker in status.workers if worker.is_stopped), default=None)
    when = "" if age_s is None else f" {human_duration(age_s)} ago"
    yield Problem(
        Severity.WARNING if status.backlog_events else Severity.NOTE,
        "stopped",
        f"It was stopped on purpose{when}, and {_impact(status)} Start it with `penstock deploy` or `penstock run`.",
    )


def _failed(status: ProcessorStatus) -> Iterator[Problem]:
    worker = min((worker for worker in status.workers if worker.has_failed), key=lambda worker: worker.report_age_s)
    yield Problem(
        Severity.CRITICAL,
        "failed",
        f"{_last_error(worker)} No worker runs it, and {_impact(status)} Start it again after the repair.",
    )


def _lost(status: ProcessorStatus) -> Iterator[Problem]:
    deployed, silent = status.deployed, [worker for worker in status.workers if worker.is_silent]
    causes = [
        f"Worker {worker.worker} on {worker.host} (process {worker.pid}) has not reported for {human_duration(worker.report_age_s)}: it hangs, was "
        f"killed, or cannot reach Kafka.{last_wait_of(worker)}"
        for worker in sorted(silent, key=lambda worker: worker.report_age_s)[:1]
    ]
    if len(silent) > 1:
        causes.append(f"{counted(len(silent) - 1, 'other worker')} disappeared as well.")
    if deployed is not None and deployed.unsupervised:
        causes.append("Its supervisor does not run, so it does not restart.")
    causes += _full_disk_of(status)
    action = (
        f"Start the supervisor with `penstock scale {status.node.name} --workers {deployed.workers}`."
        if deployed is not None
        else "Check its machine, and start it again."
    )
    since_ms = min((status.at_ms - int(worker.report_age_s * 1000) for worker in silent), default=None)
    cause = " ".join(causes) or "It is deployed, but no worker reports."
    yield Problem(
        Severity.CRITICAL,
        "lost",
        f"{cause} No worker runs it, and {_impact(status)} {action}{rollback_advice(status, since_ms)}",
    )


def _crash_looping(status: ProcessorStatus) -> Iterator[Problem]:
    looping = [worker for worker in status.workers if worker.crash_loop_since_ms is not None]
    recorded_ms = () if status.deployed is None else sorted(chain.from_iterable(status.deployed.restarts_ms))
    failed = [worker for worker in status.workers if worker.has_failed]
    since_ms = min(
        (*(worker.crash_loop_since_ms or status.at_ms for worker in looping), *recorded_ms[:1]), default=status.at_ms
    )
    restarts = max(sum(worker.restarts for worker in looping), len(recorded_ms))
    cause = (
        f"Its workers have failed and restarted {restarts} times in {human_duration((status.at_ms - since_ms) / 1000)}."
        if restarts
        else "Its workers fail soon after each start."
    )
    last = f" {_last_error(min(failed, key=lambda worker: worker.report_age_s))}" if failed else ""
    log = f" `penstock logs {status.node.name}` shows its log." if status.deployed is not None else ""
    yield Problem(
        Severity.CRITICAL,
        "crash-looping",
        f"{' '.join([cause + last, *_full_disk_of(status)])} Between restarts it makes little or no progress, and {_impact(status)}{log}{rollback_advice(status, since_ms)}",
    )


def _full_disk_of(status: ProcessorStatus) -> list[str]:
    """Return a sentence about the disk with the files of a deployment, if it is full: neither workers nor their supervisor run without space."""
    share = None if status.deployed is None else status.deployed.disk_free_share
    if share is None or share >= DISK_FREE_SHARE:
        return []
    return [f"The disk with its states and logs (--dir) has {share:.1%} free: free space first."]


def _starting(status: ProcessorStatus) -> Iterator[Problem]:
    deployed_ms = (status.deployed.deployed_ms if status.deployed is not None else None) or 0
    failed = [
        worker
        for worker in status.workers
        if worker.has_failed and status.at_ms - worker.report_age_s * 1000 >= deployed_ms
    ]
    if failed:
        yield Problem(
            Severity.WARNING,
            "starting",
            f"{_last_error(min(failed, key=lambda worker: worker.report_age_s))} Its supervisor restarts it, and no worker reports yet; {_impact(status)} "
            f"`penstock logs {status.node.name}` shows whether the restart fails.",
        )
        return
    yield Problem(
        Severity.NOTE,
        "starting",
        f"Its supervisor has started it, and no worker reports yet; {_impact(status)}".rstrip(),
    )


def _unsupervised(status: ProcessorStatus) -> Iterator[Problem]:
    deployed = status.deployed
    if deployed is not None:
        yield Problem(
            Severity.WARNING,
            "unsupervised",
            f"{deployed.unsupervised} of its {counted(deployed.workers, 'worker')} have no running supervisor: a worker that still runs does not restart after "
            f"a failure. Events are processed meanwhile. Start the supervisor with `penstock scale {status.node.name} --workers {deployed.workers}`; "
            "it restarts the workers.",
        )


def _last_error(worker: WorkerStatus) -> str:
    reason = worker.end_reason if worker.end_reason.endswith(".") else f"{worker.end_reason}."
    return f"Worker {worker.worker} on {worker.host} failed {human_duration(worker.report_age_s)} ago: {reason}"


def _impact(status: ProcessorStatus) -> str:
    """Return the backlog, the lag, and the categories that receive nothing, as the rest of a sentence."""
    lag = f" and its lag {human_duration(status.lag_s)}" if status.lag_s and status.backlog_events else ""
    written = ", ".join((*status.node.outputs, *status.node.sinks))
    is_silent = written and not status.per_s.events_out
    outputs = f" {written} receives no new records." if is_silent else ""
    return f"{backlog_of(status)}{lag}.{outputs}"


def rollback_advice(status: ProcessorStatus, since_ms: int | None) -> str:
    """Return a suggestion to roll back if the trouble began soon after a deploy, as a sentence to append."""
    deployed = status.deployed
    if deployed is None or deployed.earlier_version is None or deployed.deployed_ms is None or since_ms is None:
        return ""
    after_s = (since_ms - deployed.deployed_ms) / 1000
    if not 0 <= after_s <= BLAMED_DEPLOY_S:
        return ""
    return (
        f" This began {human_duration(after_s)} after {deployed.label} was deployed: `penstock rollback {status.node.name}` returns to version "
        f"{deployed.earlier_version}."
    )


_DESCRIPTIONS: dict[ProcessorState, Callable[[ProcessorStatus], Iterator[Problem]]] = {
    ProcessorState.NOT_RUNNING: _not_running,
    ProcessorState.STOPPED: _stopped,
    ProcessorState.FAILED: _failed,
    ProcessorState.LOST: _lost,
    ProcessorState.CRASH_LOOPING: _crash_looping,
    ProcessorState.STARTING: _starting,
    ProcessorState.UNSUPERVISED: _unsupervised,
}
"""The descriptions of states that need attention, or an explanation."""
