"""The servers that are deployed on this machine: tiers of Laser tables, and Scuba's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .deployed import DeployedProcessor
from .finding import Finding, Severity
from .states import ProcessorState

NOT_SERVING = "not serving"
"""The kind of the finding about a server without a process."""


@dataclass(frozen=True)
class ServerStatus:
    """The status of a server, as its supervisor reports it.

    Args:
        name: the name of its deployment.
        urls: its addresses.
        label: its version in words.
        state: its state.
    """

    name: str
    urls: tuple[str, ...]
    label: str
    state: ProcessorState


def servers_of(deployed: Mapping[str, DeployedProcessor]) -> tuple[ServerStatus, ...]:
    """Return the servers among deployments, by name."""
    return tuple(
        ServerStatus(name, deployment.urls, deployment.label, _state(deployment))
        for name, deployment in sorted(deployed.items())
        if deployment.urls
    )


def _state(deployed: DeployedProcessor) -> ProcessorState:
    if deployed.unsupervised:
        return ProcessorState.LOST
    return ProcessorState.CRASH_LOOPING if deployed.restarting else ProcessorState.RUNNING


def server_findings(servers: Sequence[ServerStatus]) -> Iterator[Finding]:
    """Yield a finding for each server without a process."""
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
