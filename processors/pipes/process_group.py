"""The process group of a program, and its end, also after the death of its worker.

worker --process groups--> guard --> its deputy
worker is dead --> guard, or its deputy if both were killed --SIGTERM, SIGKILL--> the process group that is left
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

END_WITHIN_S = 5.0
"""How long a program may take to end after the end of its input. Then it gets SIGTERM."""
TERMINATE_WITHIN_S = 2.0
"""How long a program may take to end after SIGTERM. Then it gets SIGKILL."""
_GUARD = """
import os, signal, sys, time
from contextlib import suppress

for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(ignored, signal.SIG_IGN)
group = 0
from_guard, to_deputy = os.pipe()
deputy = os.fork()
if deputy:
    os.close(from_guard)
    for line in sys.stdin:
        group = int(line)
        with suppress(BrokenPipeError):
            os.write(to_deputy, line.encode())
else:
    os.close(to_deputy)
    for lines in (os.fdopen(from_guard), sys.stdin):
        for line in lines:
            group = int(line)
for limit_s, number in zip(map(float, sys.argv[1:]), (signal.SIGTERM, signal.SIGKILL)):
    end_s = time.monotonic() + limit_s
    while group and time.monotonic() < end_s:
        try:
            os.killpg(group, 0)
        except OSError:
            group = 0
        time.sleep(0.1)
    if group:
        os.killpg(group, number)
if deputy:
    with suppress(BrokenPipeError):
        os.write(to_deputy, b"0\\n")
    os.close(to_deputy)
    os.wait()
"""
"""The guard and its deputy, which learns the group from the guard, and takes over its input if the guard is killed."""


class Guard:
    """Ends the program of a worker that died, also by SIGKILL. A process of its own, from the first program on.

    Linux can send a signal to a process when its parent dies. But it sends it when the thread dies that has started the process, it reaches no
    process that the program has started, and setting it takes Python code between `fork` and `exec`, which may block where threads run.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._group = 0

    def start(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start a program that leads a process group, and guard it. It replaces the one before."""
        self.ensure()
        process = start()
        self._guard(process.pid)
        return process

    def ensure(self) -> None:
        """Start the guard, also again after it was killed."""
        if self._process is None or self._process.poll() is not None:
            group = self._group
            self.close()
            self._process = self._start()
            self._guard(group)

    def release(self) -> None:
        """Guard no program: the last one has ended, and the system may use its number again."""
        self._guard(0)

    def close(self) -> None:
        """End the guard. Repeatable."""
        self.release()
        process, self._process = self._process, None
        if process is not None:
            close_pipes(process)
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, str(END_WITHIN_S), str(TERMINATE_WITHIN_S)],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )

    def _guard(self, group: int) -> None:
        self._group = group
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):  # the guard was killed; `ensure` starts it again
                self._process.stdin.write(b"%d\n" % group)


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
