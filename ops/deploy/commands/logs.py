"""`penstock logs`: prints the logs of a deployment's workers."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import typer

from ....processors import PenstockError, printable
from ...shell import DEFAULT_FOLDER, Folder, interruptible, note, out, processor_name
from ..folders import names_of_deployments
from ..registry import DeploymentFiles, find_deployment
from ..targets import kubectl_log_command
from ..version import Target
from ..worker_logs import SLOTS, LogFollower, LogLine, last_lines, logged_workers, logs_folder

FOLLOW_EVERY_S = 0.2


class NoLogs(PenstockError):
    """There are no logs of a processor or worker: name one that was deployed from this folder."""


def logs(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The processor's name in `penstock deployments`, or APP:PROCESSOR.",
            callback=processor_name,
        ),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="The number of last lines.", min=0)] = 100,
    worker: Annotated[
        int | None, typer.Option("--worker", metavar="N", help="This worker only.", show_default=False, min=0)
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Print the last lines that a deployment's workers have logged, in the order of time, and with --follow each new line.

    The lines of several workers begin with the worker's number. Control characters are escaped.

    Example: penstock logs scorer -f
    """
    command = _command_elsewhere(folder, name, worker, lines, follow=follow)
    if command is not None:
        note(f"Running {' '.join(command)}")
        _replace_process(command)
    found = logs_folder(folder, name)
    workers = _workers(found, name, worker, folder)
    with interruptible("The workers continue."), ExitStack() as opened:
        followed = [
            opened.enter_context(closing(LogFollower(found, number, slot)))
            for number in workers
            for slot in SLOTS
            if follow
        ]
        last = last_lines(found, workers, lines)
        _print(last, with_worker=len(workers) > 1)
        if lines and not last:
            note(
                'Its workers have logged nothing. They log warnings and errors; set `log-level = "info"` in the configuration for more.'
            )
        while follow:
            _print([line for log in followed for line in log.read()], with_worker=len(workers) > 1)
            time.sleep(FOLLOW_EVERY_S)


def _command_elsewhere(folder: Path, name: str, worker: int | None, lines: int, *, follow: bool) -> list[str] | None:
    """Return the command that prints the logs of a deployment on Kubernetes; None for another one."""
    if DeploymentFiles(folder, name).deployment() is None:
        return None  # the logs of a stopped deployment under supervisord stay
    deployment = find_deployment(folder, name)
    if deployment.target is Target.KUBERNETES:
        return kubectl_log_command(deployment.version, worker, lines, follow=follow)
    return None


def _replace_process(command: list[str]) -> None:
    try:
        os.execvp(command[0], command)  # noqa: S606 - without a shell
    except OSError as error:
        raise NoLogs(
            f"{command[0]} cannot be started: {error.strerror}. The workers are not affected. Install it, or run `{' '.join(command)}` where it is."
        ) from error


def _workers(found: Path, name: str, worker: int | None, folder: Path) -> list[int]:
    workers = logged_workers(found)
    if not workers:
        names = ", ".join(names_of_deployments(folder)) or "none"
        raise NoLogs(
            f"There are no logs of {name} in {found}: it was not deployed from {folder}, or it was purged. Deployments there: {names}. "
            "A worker of `penstock run` logs to its own terminal."
        )
    if worker is not None and worker not in workers:
        raise NoLogs(f"Worker {worker} of {name} has no log. Its workers with logs: {', '.join(map(str, workers))}.")
    return workers if worker is None else [worker]


def _print(lines: Sequence[LogLine], *, with_worker: bool) -> None:
    for line in lines:
        text = printable(line.text)
        out.out(f"[{line.worker}] {text}" if with_worker else text, highlight=False)
