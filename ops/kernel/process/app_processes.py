"""Processes of an app on one machine: one for each processor, supervised by this one."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ....processors import PenstockError
from ....processors.apps import App
from ....processors.declare import Processor, plan_of

_LOG = logging.getLogger("penstock.worker")
STOP_LIMIT_S = 60.0
"""How long a processor may take for its last checkpoint."""
HANDED_OVER = 76
"""The exit code of a worker that has handed over to its successor; supervisord does not restart it."""
POLL_EVERY_S = 0.2
LIFELINE_VARIABLE = "PENSTOCK_LIFELINE"
"""The environment variable of a child process with the read end of a pipe, which ends when its parent dies."""


@dataclass(frozen=True)
class NodeCommand:
    """The command of a processor's process.

    Args:
        words: its command line.
        variables: environment variables beside those of this process.
        folder: its working folder; None for the folder of this process.
    """

    words: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None


Command = Callable[[type[Processor]], NodeCommand]
"""Returns the command that runs a processor."""


class NodeFailed(PenstockError):
    """A processor's process ended with an error, and the others were stopped."""


def levels_of(app: App) -> list[list[type[Processor]]]:
    """Group an app's processors by level: each level reads only outputs of earlier levels, or, in a loop, of itself."""

    def depth_of(processor: type[Processor]) -> int:
        loop = app.loop_of(processor)
        members = [processor] if loop is None else loop.members
        read = {category.name for member in members for category in plan_of(member).inputs}
        upstream = [other for other in app.processors if other not in members and _writes(other, read)]
        return max((depth_of(other) for other in upstream), default=-1) + 1

    depths = {processor: depth_of(processor) for processor in app.processors}
    return [
        [processor for processor in app.processors if depths[processor] == depth]
        for depth in sorted(set(depths.values()))
    ]


def _writes(processor: type[Processor], names: Collection[str]) -> bool:
    return any(category.name in names for category in plan_of(processor).outputs)


def run_together(processors: Sequence[type[Processor]], command: Command, on_poll: Callable[[], None]) -> None:
    """Run processors until all have ended. If one fails, stop the others.

    Args:
        processors: one process each.
        command: returns the command of a processor.
        on_poll: called a few times a second while they run.

    Raises:
        NodeFailed: a process ended with an error, which it has written to standard error.
    """
    with _started(processors, command) as nodes:
        while True:
            ended = {processor: code for processor, node in nodes.items() if (code := node.poll()) is not None}
            failed = [processor.__name__ for processor, code in ended.items() if code]
            if failed:
                raise NodeFailed(
                    f"{', '.join(failed)} ended with an error (see above), so the other processors of the app were stopped. "
                    "Their work is saved."
                )
            on_poll()
            if len(ended) == len(nodes):
                return
            time.sleep(POLL_EVERY_S)


@contextmanager
def _started(
    processors: Sequence[type[Processor]], command: Command
) -> Iterator[dict[type[Processor], subprocess.Popen[bytes]]]:
    nodes: dict[type[Processor], subprocess.Popen[bytes]] = {}
    lifeline, own_end = os.pipe()
    try:
        for processor in processors:
            # A session of its own: Ctrl-C reaches this process, which then stops the nodes in an orderly way.
            started = command(processor)
            nodes[processor] = subprocess.Popen(
                list(started.words),
                cwd=started.folder,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(lifeline,),
                env={**os.environ, **started.variables, LIFELINE_VARIABLE: str(lifeline)},
            )
        yield nodes
    finally:
        for node in nodes.values():
            if node.poll() is None:
                node.terminate()
        for node in nodes.values():
            try:
                node.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        os.close(lifeline)
        os.close(own_end)


def end_with_parent() -> None:
    """Send SIGTERM to this process when the process that has started it for `run_together` dies, however it dies."""
    lifeline = os.environ.pop(LIFELINE_VARIABLE, None)
    if lifeline is not None:
        threading.Thread(target=_await_end, args=(int(lifeline),), name="lifeline", daemon=True).start()


def _await_end(lifeline: int) -> None:
    os.read(lifeline, 1)  # nothing is written: this returns when the parent's end is closed
    _LOG.warning("The process that started this worker has ended. The worker saves a last checkpoint and stops.")
    os.kill(os.getpid(), signal.SIGTERM)


def penstock_command(*arguments: str) -> list[str]:
    """Return a command line that runs `penstock` with this interpreter."""
    return [sys.executable, "-m", "penstock", *arguments]
