"""A run of a system as a process of its own, with the largest memory of the process and its descendants."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from peers.installation import last_lines

BENCHMARKS = Path(__file__).parents[1]
SAMPLE_EVERY_S = 0.1
MIB = 2**20


class RunFailedError(Exception):
    """A run failed, or exceeded its limit; the message is short enough for a table."""


@dataclass(frozen=True)
class Ended:
    """A completed run.

    Args:
        lines: its output.
        rss_mib: the largest resident memory, in MiB.
    """

    lines: list[str]
    rss_mib: float


def run(command: Sequence[str], log: Path, limit_s: float) -> Ended:
    """Run a command, and kill its process group after the limit.

    Raises:
        RunFailedError: it failed, or exceeded the limit.
    """
    deadline = time.monotonic() + limit_s
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env={**os.environ, "PYTHONPATH": str(BENCHMARKS)},
            start_new_session=True,
        )
    try:
        largest = _watch(process, deadline)
    finally:
        # Also what a killed command has left behind.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if largest is None:
        raise RunFailedError(f"not done in {limit_s:,.0f} s")
    if process.returncode:
        raise RunFailedError(f"ended with code {process.returncode}:\n{last_lines(lines)}")
    return Ended(lines, largest / MIB)


def _watch(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Return the largest memory at the end of a process, in bytes; None if it did not end in time."""
    largest = 0
    root = psutil.Process(process.pid)
    while process.poll() is None:
        if time.monotonic() > deadline:
            return None
        largest = max(largest, _resident(root))
        time.sleep(SAMPLE_EVERY_S)
    return largest


def _resident(root: psutil.Process) -> int:
    total = 0
    with suppress(psutil.Error):
        for one in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                total += one.memory_info().rss
    return total
