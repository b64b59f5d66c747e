"""`penstock autoscale`: adjusts the number of workers to the load."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from ....processors import OutageLog, PenstockError, human_duration
from ....transport import BusError
from ....transport.kafka import quiet_outages
from ...deploy import Deployment, SupervisorUnavailable, Target, WorkerFailed, find_deployment, scale_deployment
from ...kernel import RATE_WINDOW_S, REPORT_INTERVAL_S
from ...shell import (
    DEFAULT_FOLDER,
    AsJson,
    BrokerWait,
    FailFast,
    Folder,
    Kafka,
    SystemClock,
    connect,
    format_time,
    note,
    parse_span,
    print_error,
    print_json,
    stop_on_signals,
)
from ..autoscaling import ScalingDecision, ScalingLimits, ScalingPolicy
from ..observer import Observer
from ..status import ClusterStatus

_LOG = logging.getLogger("penstock.autoscale")
REPORTS_IN_A_RATE = 2
"""The smallest number of a worker's reports for a rate."""


def autoscale(
    name: Annotated[str, typer.Argument(help="A deployment from `penstock deployments`.")],
    min_workers: Annotated[int, typer.Option("--min", metavar="N", help="The smallest number of workers.", min=1)] = 1,
    max_workers: Annotated[int, typer.Option("--max", metavar="N", help="The largest number of workers.", min=1)] = 8,
    lag: Annotated[str, typer.Option("--lag", metavar="SPAN", help="The longest time that events may wait.")] = "1m",
    catch_up: Annotated[
        str, typer.Option("--catch-up", metavar="SPAN", help="The time for processing a backlog.")
    ] = "5m",
    scale_up_after: Annotated[
        str, typer.Option("--scale-up-after", metavar="SPAN", help="Add workers after this time of overload.")
    ] = "1m",
    scale_down_after: Annotated[
        str, typer.Option("--scale-down-after", metavar="SPAN", help="Remove workers after this time of underload.")
    ] = "10m",
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="The interval between decisions.", min=0.5)
    ] = 10.0,
    apply: Annotated[bool, typer.Option("--apply", help="Apply the decisions; without it, only report them.")] = False,
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Adjust a deployment's number of workers to its load until stopped, and report each decision with its reason.

    Without a broker, it waits.

    Example: penstock autoscale scorer --min 1 --max 4 --apply
    """
    limits = _limits(min_workers, max_workers, lag, catch_up, scale_up_after, scale_down_after)
    _expect_scalable(find_deployment(folder, name), apply=apply)
    # Not longer than the wait before a change, so that rates during a trial exclude the time before it.
    rate_window_s = min(RATE_WINDOW_S, max(REPORTS_IN_A_RATE * REPORT_INTERVAL_S, limits.scale_up_after_s))
    policy, stopped, outage = ScalingPolicy(limits, rate_window_s), Event(), OutageLog()
    bus = connect(kafka, folder)
    if not apply:
        note("Decisions are only reported. Use --apply to apply them.")
    waiting = BrokerWait(fail_fast=fail_fast)

    def open_observer() -> Observer:
        return Observer.open(bus, rate_window_s=rate_window_s)

    with quiet_outages(), closing(waiting(open_observer)) as observer, stop_on_signals(stopped.set):
        while not stopped.is_set():
            cluster = _observed(observer, outage)
            if cluster is not None:
                status = next((one for one in cluster.processors if one.node.name == name and one.shards), None)
                if status is None:
                    note(f"{name}: none of its workers has reported on this Kafka cluster yet.")
                else:
                    workers = find_deployment(folder, name).workers
                    decision = policy.decide(status, workers)
                    _report(name, workers, decision, json=json)
                    if decision.change and apply:
                        _change(folder, name, decision.workers)
            stopped.wait(every)


def _limits(
    min_workers: int, max_workers: int, lag: str, catch_up: str, scale_up_after: str, scale_down_after: str
) -> ScalingLimits:
    if min_workers > max_workers:
        raise PenstockError(
            f"--min {min_workers} must not be greater than --max {max_workers}. Nothing was started. Change one of them."
        )
    spans = (parse_span(text).total_seconds() for text in (lag, catch_up, scale_up_after, scale_down_after))
    limits = ScalingLimits(min_workers, max_workers, *spans)
    if not limits.catch_up_s:
        raise PenstockError(f"--catch-up {catch_up} must be greater than zero, such as 5m. Nothing was started.")
    return limits


def _expect_scalable(deployment: Deployment, *, apply: bool) -> None:
    if apply and deployment.target is Target.KUBERNETES:
        raise PenstockError(
            f"{deployment.name} runs on Kubernetes, where KEDA sets the number of workers. Two autoscalers would undo each other's "
            "decisions. Nothing was started. Omit --apply to see the decisions only."
        )


def _observed(observer: Observer, outage: OutageLog) -> ClusterStatus | None:
    """Return the current status; None if Kafka does not answer."""
    try:
        cluster = observer.observe()
    except BusError as error:
        if outage.is_due():
            _LOG.warning("Kafka does not answer, so the number of workers stays. Retrying until it does. %s", error)
        return None
    outage_s = outage.end()
    if outage_s is not None:
        _LOG.warning("Kafka answers again, after %s.", human_duration(outage_s))
    return cluster


def _change(folder: Path, name: str, workers: int) -> None:
    """Set the number of workers. A failure is reported, and the next decision tries again."""
    try:
        scale_deployment(folder, name, workers, note)
    except (SupervisorUnavailable, WorkerFailed) as error:
        print_error(str(error))
    else:
        note(f"{name} has {workers} {'worker' if workers == 1 else 'workers'}.")


def _report(name: str, workers: int, decision: ScalingDecision, *, json: bool) -> None:
    now_ms = SystemClock().now_ms()
    if json:
        print_json(
            {"at_ms": now_ms, "name": name, "workers": workers, "decided": decision.workers, "reason": decision.reason}
        )
        return
    change = f"{workers} -> {decision.workers}" if decision.change else f"{workers}, unchanged"
    note(f"{format_time(now_ms)} {name}: {change}. {decision.reason}")
