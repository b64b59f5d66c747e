"""The servers that are deployed on this machine: tiers of Laser tables, and Scuba's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ...processors import human_duration
from ..deploy import DayTable, DeployedProcessor
from .finding import Finding, Severity
from .states import ProcessorState

NOT_SERVING = "not serving"
"""The kind of the finding about a server without a process."""
OLD_DAY = "old day"
"""The kind of the finding about a server without a new day."""
OLD_DAY_S = 48 * 3_600.0
"""The age of the served day from which a server gets a finding: in every time zone, the next day has then been over for at least 10 hours."""
_DAY_S = 86_400


@dataclass(frozen=True)
class ServerStatus:
    """The status of a server, as its supervisor reports it.

    Args:
        name: the name of its deployment.
        urls: its addresses.
        label: its version in words.
        state: its state.
        day_table: the warehouse table whose newest complete day it serves; None for another server.
        day_age_s: the seconds since the end of that day (UTC), or without a day since its deployment; None for another server.
    """

    name: str
    urls: tuple[str, ...]
    label: str
    state: ProcessorState
    day_table: DayTable | None = None
    day_age_s: float | None = None


def servers_of(deployed: Mapping[str, DeployedProcessor], now_ms: int) -> tuple[ServerStatus, ...]:
    """Return the servers among deployments, by name."""
    return tuple(
        ServerStatus(
            name,
            deployment.urls,
            deployment.label,
            _state(deployment),
            deployment.day_table,
            _day_age_s(deployment, now_ms),
        )
        for name, deployment in sorted(deployed.items())
        if deployment.urls
    )


def _state(deployed: DeployedProcessor) -> ProcessorState:
    if deployed.unsupervised:
        return ProcessorState.LOST
    return ProcessorState.CRASH_LOOPING if deployed.restarting else ProcessorState.RUNNING


def _day_age_s(deployed: DeployedProcessor, now_ms: int) -> float | None:
    table = deployed.day_table
    if table is None:
        return None
    if table.newest_day is None:
        return None if deployed.deployed_ms is None else max(0.0, now_ms / 1000 - deployed.deployed_ms / 1000)
    start = datetime.fromisoformat(table.newest_day).replace(tzinfo=UTC)
    return max(0.0, now_ms / 1000 - start.timestamp() - _DAY_S)


def server_findings(servers: Sequence[ServerStatus]) -> Iterator[Finding]:
    """Yield a finding for each server without a process, or without a new day."""
    yield from _without_process(servers)
    for server in servers:
        if server.day_table is not None and server.day_age_s is not None and server.day_age_s > OLD_DAY_S:
            yield Finding(
                server.name, Severity.WARNING, OLD_DAY, _old_day(server.name, server.day_table, server.day_age_s)
            )


def _old_day(name: str, table: DayTable, age_s: float) -> str:
    if table.newest_day is None:
        found = f"It has no day of {table.location} yet, {human_duration(age_s)} after its deployment, so clients receive no values."
    else:
        found = (
            f"Its newest day of {table.location} is {table.newest_day}, which ended {human_duration(age_s)} ago (UTC): no later one is complete there, or it could not "
            "be loaded. Clients receive the values of that day."
        )
    return (
        f"{found} Check that the job which writes the table has run, and has written _SUCCESS. `penstock logs {name}` shows why a day could not be loaded. "
        'If days come less often, raise the limit of the rule "old day".'
    )


def _without_process(servers: Sequence[ServerStatus]) -> Iterator[Finding]:
    for server in servers:
        if server.state is ProcessorState.CRASH_LOOPING:
            problem = f"its process has ended, and restarts after a pause. `penstock deployments {server.name}` shows the end of its log."
        elif server.state is ProcessorState.LOST:
            problem = (
                "its supervisor does not run, for instance after a restart of the machine. Deploy it again to start it."
            )
        else:
            continue
        message = f"No client can read from {' or '.join(server.urls)} at present: {problem}"
        yield Finding(server.name, Severity.CRITICAL, NOT_SERVING, message)
