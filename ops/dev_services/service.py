"""The life of one service process: started in a session of its own, remembered on disk, proven ours, stopped.

`service.json` in its folder outlives the process that started it. A random marker is written there before the start and
stands in the command line of the process: whatever dies, and whoever gets the pid next, the two can be told apart.
"""

import os
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from .errors import ServiceFailedError, StateUnreadableError, last_lines_of

MARKER = "{marker}"
START_LIMIT_S = 90.0
STOP_LIMIT_S = 20.0
KILL_LIMIT_S = 10.0
LOADING_LIMIT_S = 2.0
# The time of a process's creation is derived from the clock, which may be set while it runs.
CLOCK_STEP_S = 10.0

State = Literal["running", "starting", "stale", "stopped"]


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """What is known of a service.

    `running`: it answers; `starting`: its process lives but does not answer; `stale`: its process is gone though nobody
    stopped it; `stopped`: never started, or stopped. `pid` and `up_s` (seconds since start) are None without a process;
    `endpoints` are also those it would come back to.
    """

    name: str
    state: State
    pid: int | None
    endpoints: dict[str, str]
    up_s: float | None


@dataclass(frozen=True, slots=True)
class Program:
    """A process to run, with the ports it was told to use: `{marker}` must stand in its command. It works in `folder`, or where we do."""

    command: tuple[str, ...]
    ports: Mapping[str, int] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    def __post_init__(self) -> None:
        if not any(MARKER in part for part in self.command):
            raise ValueError(f"no part of {self.command} holds {MARKER}: its process could not be recognised")


class Record(msgspec.Struct, frozen=True):
    """What `service.json` holds: without a marker the service is stopped; without a pid its start was interrupted."""

    ports: dict[str, int] = {}
    marker: str | None = None
    pid: int | None = None
    created_s: float | None = None


_decode = msgspec.json.Decoder(Record).decode


class Daemon:
    """Owns the folder of one process (`service.json`, `log`, `log.previous`): at most one lives at a time.

    Callers hold a lock over `start` and `stop`; `process` and `record` may be asked at any time.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.log = folder / "log"
        self._file = folder / "service.json"
        self._child: subprocess.Popen[bytes] | None = None

    def record(self) -> Record:
        """Return what is remembered; an empty record if nothing is.

        Raises:
            StateUnreadableError: the file is not ours or was edited.
        """
        try:
            return _decode(self._file.read_bytes())
        except FileNotFoundError:
            return Record()
        except msgspec.MsgspecError as error:
            raise StateUnreadableError(
                f"{self._file}, which remembers the process of {self.name}, cannot be read: {error}. Its data is not "
                f"affected. End the process if it still runs, remove the file, and start {self.name} again."
            ) from error

    def process(self) -> psutil.Process | None:
        """Return the living process that is proven to be the one remembered, or None."""
        # Needs no proof: a pid is not given again before its parent has collected it, which `poll` does.
        if self._child is not None and self._child.poll() is None:
            return psutil.Process(self._child.pid)
        record = self.record()
        if record.marker is None:
            return None
        if record.pid is None:
            return next((found for found in psutil.process_iter() if _is_ours(found, record.marker)), None)
        try:
            process = psutil.Process(record.pid)
        except psutil.NoSuchProcess:
            return None
        if record.created_s is None or abs(process.create_time() - record.created_s) > CLOCK_STEP_S:
            return None
        # While the system loads a program, its command line reads as empty: seen here, right after a start.
        wait_until(partial(_shows_command, process), LOADING_LIMIT_S, every_s=0.01)
        return process if _is_ours(process, record.marker) else None

    def status(self, endpoints: dict[str, str], ready: Callable[[], bool]) -> ServiceStatus:
        """Return the status of this process; `ready` is asked only if it lives."""
        process = self.process()
        if process is None:
            state: State = "stopped" if self.record().marker is None else "stale"
            return ServiceStatus(self.name, state, None, endpoints, None)
        up_s = max(0.0, time.time() - process.create_time())
        return ServiceStatus(self.name, "running" if ready() else "starting", process.pid, endpoints, up_s)

    def start(self, program: Program, ready: Callable[[], bool], limit_s: float = START_LIMIT_S) -> None:
        """Start the process and return when it is ready; after an error or an interrupt nothing of it is left.

        Raises:
            ServiceFailedError: it could not be started, died, or did not answer within the limit.
        """
        try:
            self.launch(program)
            self.await_ready(ready, limit_s)
        except BaseException:
            self.stop()
            raise

    def launch(self, program: Program) -> None:
        """Start the process and return at once; after an interrupt, `stop` finds it.

        Raises:
            ServiceFailedError: there is no such program, or the system refuses it.
        """
        marker = secrets.token_hex(16)
        # Before the start: whatever kills us right after it, a process that carries the marker can be found.
        self._remember(Record(dict(program.ports), marker))
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".previous"))
        command = [part.replace(MARKER, marker) for part in program.command]
        try:
            with self.log.open("wb") as log:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **program.env},
                    cwd=program.folder,
                    # Ctrl-C at our terminal is for us: services are stopped in order, or stay.
                    start_new_session=True,
                )
        except OSError as error:
            raise ServiceFailedError(f"{self.name} could not be started: {error}.") from error
        created_s = psutil.Process(self._child.pid).create_time()
        self._remember(Record(dict(program.ports), marker, self._child.pid, created_s))

    def await_ready(self, ready: Callable[[], bool], limit_s: float = START_LIMIT_S) -> None:
        """Return when the process is ready, which `ready` tells without raising.

        Raises:
            ServiceFailedError: it died or did not answer within the limit.
        """
        if not wait_until(lambda: self.process() is None or ready(), limit_s):
            raise ServiceFailedError(f"{self.name} did not answer within {limit_s:g} s. {last_lines_of(self.log)}")
        if self.process() is None:
            raise ServiceFailedError(f"{self.name} ended before it was ready. {last_lines_of(self.log)}")

    def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        """End the process, with force after the limit, and remember its ports; without effect if there is none.

        Raises:
            ServiceFailedError: it outlived even force.
        """
        process = self.process()
        if process is not None:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
            if not wait_until(lambda: self.process() is None, limit_s):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            if not wait_until(lambda: self.process() is None, KILL_LIMIT_S):
                raise ServiceFailedError(f"{self.name} (process {process.pid}) could not be ended, even with force.")
        record = self.record()
        if record.marker is not None:
            self._remember(Record(record.ports))

    def _remember(self, record: Record) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        aside = self._file.with_suffix(".new")
        aside.write_bytes(msgspec.json.encode(record))
        aside.replace(self._file)


def wait_until(condition: Callable[[], bool], limit_s: float, every_s: float = 0.1) -> bool:
    """Return True as soon as the condition holds, False if it does not within the limit."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(every_s)
    return True


def _shows_command(process: psutil.Process) -> bool:
    try:
        return bool(process.cmdline())
    except psutil.Error:
        # It ended, or is not for us to see: waiting would not change that.
        return True


def _is_ours(process: psutil.Process, marker: str) -> bool:
    try:
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and any(marker in part for part in process.cmdline())
    except psutil.Error:
        return False
