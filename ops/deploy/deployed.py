"""The deployment of a processor, as an observer needs it: which workers must run, and what their supervisor reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class DayTable:
    """A warehouse table whose newest complete day a server serves.

    Args:
        location: the location of its days.
        newest_day: the served day, YYYY-MM-DD; None before the first.
    """

    location: str
    newest_day: str | None


@dataclass(frozen=True)
class DeployedProcessor:
    """The deployment of a processor on this machine.

    Args:
        label: its current version in words; empty after `penstock undeploy`.
        workers: the number of workers that must run; 0 after `penstock undeploy`.
        restarting: workers whose process has ended and restarts after a pause.
        unsupervised: workers whose supervisor does not run, or does not start them.
        up_s: the uptime of the youngest process in seconds; None without a process.
        deployed_ms: the time of the current version (milliseconds since 1970, UTC); None without one.
        earlier_version: the version that `penstock rollback` returns to; None without one.
        urls: the addresses at which it answers clients; empty for workers.
        disk_free_share: the free share of the disk with its files, from 0 to 1; None if unknown.
        day_table: the warehouse table of a server that serves its days; None for all others.
        restarts_ms: for each worker, its restarts after crashes within the last hour, as its version and also before its first report.
    """

    label: str
    workers: int
    restarting: int = 0
    unsupervised: int = 0
    up_s: float | None = None
    deployed_ms: int | None = None
    earlier_version: int | None = None
    urls: tuple[str, ...] = ()
    disk_free_share: float | None = None
    restarts_ms: tuple[tuple[int, ...], ...] = ()
    day_table: DayTable | None = None


DeployedProcessors: TypeAlias = Callable[[], Mapping[str, DeployedProcessor]]
"""Returns the deployed processors by name."""


def none_deployed() -> Mapping[str, DeployedProcessor]:
    """Return no deployment, for an observer that sees reports only."""
    return {}
