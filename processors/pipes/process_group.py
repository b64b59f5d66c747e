"""The process group of a program, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

END_WITHIN_S = 5.0
"""How long a program may take to end after the end of its input. Then it gets SIGTERM."""
TERMINATE_WITHIN_S = 2.0
"""How long a program may take to end after SIGTERM. Then it gets SIGKILL."""


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process that leads a process group, and to the processes that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process group, and wait for the process that leads it."""
    signal_group(process, signal.SIGKILL)
    process.wait()
    close_pipes(process)


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes to and from a process."""
    for file in filter(None, (process.stdin, process.stdout, process.stderr)):
        with suppress(OSError):
            file.close()
