"""The process of a service: it starts in its own session, is recorded on disk, and is identified by a random marker.

`service.json` in its folder contains the marker, which is written before the start and is part of the process's command
line. So a process is found after any crash, and a later process with the same process ID is not mistaken for it.
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

from ....state.files import make_private_folder
from .errors import ServiceFailedError, StateUnreadableError, last_lines_of

MARKER = "{marker}"
START_LIMIT_S = 90.0
"""How long a starting process may make no progress."""
PROGRESS_SHARE = 0.01
"""The share of that time, as processor time, that counts as progress: on a busy machine, a service starts slowly."""
MOST_START_CPU_S = 60.0
"""The processor time of a start after which further use of the processor is no progress. Kafka needs about ten seconds."""
STOP_LIMIT_S = 20.0
KILL_LIMIT_S = 10.0
LOADING_LIMIT_S = 2.0
# The creation time of a process is derived from the system clock, which may be adjusted while the process runs.
CLOCK_TOLERANCE_S = 10.0

State = Literal["running", "starting", "stale", "stopped"]


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The status of a service.

    Args:
        name: the service.
        state: `running`: it answers; `starting`: its process runs, but does not answer; `stale`: its process ended
            unexpectedly; `stopped`: it never started, or was stopped.
        pid: its process ID; None without a process.
        endpoints: its addresses; a stopped service keeps them for its next start.
        up_s: its uptime in seconds; None without a process.
    """

    name: str
    state: State
    pid: int | None
    endpoints: dict[str, str]
    up_s: float | None


@dataclass(frozen=True, slots=True)
class ServiceProgram:
    """A program to run.

    Args:
        command: its command line; it must contain `{marker}`.
        ports: the ports in its configuration.
        env: additional environment variables.
        folder: its working folder; None for the working folder of this process.

    Raises:
        ValueError: the command contains no `{marker}`.
    """

    command: tuple[str, ...]
    ports: Mapping[str, int] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    def __post_init__(self) -> None:
        if not any(MARKER in part for part in self.command):
            raise ValueError(f"{self.command} must contain {MARKER}, which identifies its process")


class ServiceRecord(msgspec.Struct, frozen=True):
    """The content of `service.json`. Without a marker, the service is stopped; without a pid, its start was interrupted."""

    ports: dict[str, int] = {}
    marker: str | None = None
    pid: int | None = None
    created_s: float | None = None


_decode = msgspec.json.Decoder(ServiceRecord).decode


class Daemon:
    """The process of a service and its folder (`service.json`, `log`, `log.previous`). At most one process runs at a time.

    Callers of `start` and `stop` hold a lock; the other methods are always allowed.

    Args:
        name: the service, for messages.
        folder: the folder of the process.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.log = folder / "log"
        self._file = folder / "service.json"
        self._child: subprocess.Popen[bytes] | None = None

    def record(self) -> ServiceRecord:
        """Return the content of `service.json`; an empty record without a file.

        Raises:
            StateUnreadableError: the file is invalid.
        """
        try:
            return _decode(self._file.read_bytes())
        except FileNotFoundError:
            return ServiceRecord()
        except msgspec.MsgspecError as error:
            raise StateUnreadableError(
                f"Cannot read {self._file}, which identifies the process of {self.name}: {error}. Its data is not affected. "
                f"End the process if it still runs, remove the file, and start {self.name} again."
            ) from error

    def process(self) -> psutil.Process | None:
        """Return the running process of this service; None without one."""
        # Needs no check: the system reuses a process ID only after its parent has collected it with `poll`.
        if self._child is not None and self._child.poll() is None:
            return psutil.Process(self._child.pid)
        record = self.record()
        if record.marker is None:
            return None
        if record.pid is None:
            return next((each for each in psutil.process_iter() if _has_marker(each, record.marker)), None)
        try:
            process = psutil.Process(record.pid)
        except psutil.NoSuchProcess:
            return None
        if record.created_s is None or abs(process.create_time() - record.created_s) > CLOCK_TOLERANCE_S:
            return None
        # While the system loads a program, its command line is empty, as observed right after a start.
        wait_until(partial(_has_command_line, process), LOADING_LIMIT_S, every_s=0.01)
        return process if _has_marker(process, record.marker) else None

    def status(self, endpoints: dict[str, str], ready: Callable[[], bool]) -> ServiceStatus:
        """Return the status of this process; `ready` is called only if it runs."""
        process = self.process()
        if process is None:
            state: State = "stopped" if self.record().marker is None else "stale"
            return ServiceStatus(self.name, state, None, endpoints, None)
        up_s = max(0.0, time.time() - process.create_time())
        return ServiceStatus(self.name, "running" if ready() else "starting", process.pid, endpoints, up_s)

    def start(self, program: ServiceProgram, ready: Callable[[], bool], limit_s: float = START_LIMIT_S) -> None:
        """Start the process and return when it is ready. After an error or an interrupt, it is stopped.

        Raises:
            ServiceFailedError: it could not be started, ended, or has made no progress for as long as the limit.
        """
        try:
            self.launch(program)
            self.await_ready(ready, limit_s)
        except BaseException:
            self.stop()
            raise

    def launch(self, program: ServiceProgram) -> None:
        """Start the process and return immediately. After an interrupt, `stop` finds it.

        Raises:
            ServiceFailedError: the program is missing, or the system rejects it.
        """
        marker = secrets.token_hex(16)
        # Before the start, so that the process is found even if this process is killed right after it.
        self._save(ServiceRecord(dict(program.ports), marker))
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
                    # Ctrl-C in the terminal must not reach the service, which is stopped in order, or continues.
                    start_new_session=True,
                )
        except OSError as error:
            raise ServiceFailedError(f"{self.name} could not be started: {error}. Its data is not affected.") from error
        created_s = psutil.Process(self._child.pid).create_time()
        self._save(ServiceRecord(dict(program.ports), marker, self._child.pid, created_s))

    def await_ready(self, ready: Callable[[], bool], limit_s: float = START_LIMIT_S) -> None:
        """Return when `ready`, which must not raise, returns True. A process that makes progress may take longer than the limit.

        Raises:
            ServiceFailedError: the process ended, or has made no progress for as long as the limit.
        """
        used_s = 0.0
        while not wait_until(lambda: self.process() is None or ready(), limit_s):
            before_s, used_s = used_s, self._used_s()
            if used_s - before_s < PROGRESS_SHARE * limit_s or used_s > MOST_START_CPU_S:
                raise ServiceFailedError(
                    f"{self.name} does not answer, and has made no progress for {limit_s:g} s. {last_lines_of(self.log)}"
                )
        if self.process() is None:
            raise ServiceFailedError(f"{self.name} ended before it was ready. {last_lines_of(self.log)}")

    def _used_s(self) -> float:
        """Return the processor time of the process, in seconds; 0 without a process."""
        process = self.process()
        try:
            times = None if process is None else process.cpu_times()
        except psutil.NoSuchProcess:
            times = None
        return 0.0 if times is None else float(times.user + times.system)

    def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        """End the process, with SIGKILL after the limit, and keep its ports. Without a process, do nothing.

        Raises:
            ServiceFailedError: it did not end, even after SIGKILL.
        """
        process = self.process()
        if process is not None:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
            if not wait_until(lambda: self.process() is None, limit_s):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            if not wait_until(lambda: self.process() is None, KILL_LIMIT_S):
                raise ServiceFailedError(
                    f"{self.name} (process {process.pid}) did not end, even after SIGKILL. Repeat the command."
                )
        record = self.record()
        if record.marker is not None:
            self._save(ServiceRecord(record.ports))

    def _save(self, record: ServiceRecord) -> None:
        make_private_folder(self._file.parent)
        temporary = self._file.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(record))
        temporary.replace(self._file)


def wait_until(condition: Callable[[], bool], limit_s: float, every_s: float = 0.1) -> bool:
    """Return True as soon as the condition is true, or False after the limit."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(every_s)
    return True


def _has_command_line(process: psutil.Process) -> bool:
    try:
        return bool(process.cmdline())
    except psutil.Error:
        # It has ended, or its command line is not readable by this user; waiting would not help.
        return True


def _has_marker(process: psutil.Process, marker: str) -> bool:
    try:
        is_alive = process.status() != psutil.STATUS_ZOMBIE
        return is_alive and any(marker in part for part in process.cmdline())
    except psutil.Error:
        return False
