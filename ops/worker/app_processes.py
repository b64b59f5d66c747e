"""A whole app on one machine: every processor in a process of its own, watched by this one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...processors.declare.apps import App
from ...processors.declare.processor import Processor
from ...processors.errors import PenstockError

STOP_LIMIT_S = 60.0
"""How long a node may take for its last checkpoint."""
LOOK_EVERY_S = 0.2

Command = Callable[[type[Processor]], Sequence[str]]
"""Gives the command line that runs a processor."""


class NodeFailed(PenstockError):
    """A processor's process ended with an error, and the others were stopped."""


def levels_of(app: App) -> list[list[type[Processor]]]:
    """Group an app's processors: each level reads only what levels before it write."""
    levels: list[list[type[Processor]]] = []
    depth: dict[type[Processor], int] = {}
    for processor in app.processors:
        read = {category.name for category in processor.inputs()}
        upstream = [depth[p] for p in depth if read & {category.name for category in p.outputs()}]
        depth[processor] = max(upstream, default=-1) + 1
        levels.extend([] for _ in range(depth[processor] + 1 - len(levels)))
        levels[depth[processor]].append(processor)
    return levels


def run_together(processors: Sequence[type[Processor]], command: Command, look: Callable[[], None]) -> None:
    """Run processors until all have ended, or until one fails: then the others are stopped.

    Args:
        processors: one process each.
        command: gives the command line of one.
        look: called while they run, a few times a second.

    Raises:
        NodeFailed: a process ended with an error; what it said is on standard error.
    """
    with _started(processors, command) as nodes:
        while True:
            ended = {processor: code for processor, node in nodes.items() if (code := node.poll()) is not None}
            failed = [processor.__name__ for processor, code in ended.items() if code]
            if failed:
                raise NodeFailed(
                    f"{', '.join(failed)} ended with an error (see above), so the other processors of the app were stopped. "
                    "What they had done is saved."
                )
            look()
            if len(ended) == len(nodes):
                return
            time.sleep(LOOK_EVERY_S)


@contextmanager
def _started(
    processors: Sequence[type[Processor]], command: Command
) -> Iterator[dict[type[Processor], subprocess.Popen[bytes]]]:
    nodes: dict[type[Processor], subprocess.Popen[bytes]] = {}
    try:
        for processor in processors:
            # A session of its own: Ctrl-C reaches this process, which then stops the nodes in an orderly way.
            nodes[processor] = subprocess.Popen(
                list(command(processor)), stdin=subprocess.DEVNULL, start_new_session=True
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


def penstock_command(*arguments: str) -> list[str]:
    """Return a command line that runs `penstock` with this interpreter."""
    return [sys.executable, "-m", "penstock", *arguments]
