"""The logs and the versions of a deployment on this machine, for the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ....processors import printable
from ...deploy import DeploymentFiles, Target, last_lines, logged_workers, logs_folder, names_of_deployments

LINE_LIMIT = 4_000
"""The number of characters of a line that the page shows."""


@dataclass(frozen=True)
class ShownLine:
    """A line of a log.

    Args:
        worker: the number of the worker that logged it.
        text: the line, with control characters escaped; cut off after `LINE_LIMIT` characters.
    """

    worker: int
    text: str


@dataclass(frozen=True)
class ShownLogs:
    """The end of a deployment's logs.

    Args:
        workers: the workers that have a log.
        lines: the last lines, in the order of time.
        message: the reason why there are no lines; empty with lines.
    """

    workers: list[int]
    lines: list[ShownLine]
    message: str = ""


@dataclass(frozen=True)
class ShownVersion:
    """A version of a deployment.

    Args:
        number: its number.
        status: "runs" for the current version, "failed" for one that did not become ready or crashed, else empty.
        time_ms: the time of its deployment (milliseconds since 1970, UTC).
        by: the user who deployed it.
        digest: the hash of its code.
    """

    number: int
    status: str
    time_ms: int
    by: str
    digest: str


def logs_of(folder: Path, name: str, worker: int | None, count: int) -> ShownLogs:
    """Return the last lines that the workers of a deployment have logged, as `penstock logs` prints them.

    Args:
        folder: the value of `--dir`.
        name: the processor's name.
        worker: the number of one worker; None for all.
        count: the largest number of lines.

    Raises:
        DeployError: a file of the deployment is unreadable.
    """
    if name not in names_of_deployments(folder):
        return ShownLogs(
            [],
            [],
            f"{name} is not deployed from {folder.absolute()} on this machine. A worker of `penstock run` logs to its own terminal; for a "
            "deployment elsewhere, run `penstock logs` there.",
        )
    deployment = DeploymentFiles(folder, name).deployment()
    if deployment is not None and deployment.target is Target.KUBERNETES:
        return ShownLogs([], [], f"Its workers run on Kubernetes. `penstock logs {name}` prints their logs.")
    logs = logs_folder(folder, name)
    workers = logged_workers(logs)
    shown = [each for each in workers if worker is None or each == worker]
    lines = [ShownLine(line.worker, _shortened(line.text)) for line in last_lines(logs, shown, count)]
    nothing = 'Its workers have logged nothing. They log warnings and errors; `log-level = "info"` in the configuration logs more.'
    return ShownLogs(workers, lines, "" if lines else nothing)


def _shortened(text: str) -> str:
    cut = len(text) - LINE_LIMIT
    return printable(text) if cut <= 0 else f"{printable(text[:LINE_LIMIT])} … {cut:,} more characters"


def versions_of(folder: Path, name: str) -> list[ShownVersion]:
    """Return the versions of a deployment, the newest first; none if it is not deployed from the folder.

    Raises:
        DeployError: a file of the deployment is unreadable.
    """
    if name not in names_of_deployments(folder):
        return []
    files = DeploymentFiles(folder, name)
    desired = files.expect_desired_state()
    current = desired.version if desired.workers else None
    versions = [files.version(number) for number in reversed(files.version_numbers())]
    return [
        ShownVersion(
            version.number,
            "runs" if version.number == current else "failed" if version.number in desired.failed else "",
            version.time_ms,
            version.by,
            version.digest,
        )
        for version in versions
    ]
