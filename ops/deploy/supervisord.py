"""Workers kept alive by supervisord: one for each folder (`--dir`), detached from whoever started it.

    <dir>/supervisor/supervisord.conf       what it is told of itself
    <dir>/supervisor/programs/NAME@0.conf   a program for each worker, so that adding one restarts no other
    <dir>/supervisor/rpc.sock               where it is talked to
    <dir>/logs/NAME/0.log                   what the worker says, rotated

Source: Supervisor's documentation, "XML-RPC API" (getProcessInfo, reloadConfig, addProcessGroup, signalProcess).
"""

from __future__ import annotations

import http.client
import os
import shlex
import sys
import time
from collections.abc import Iterator
from configparser import RawConfigParser
from contextlib import closing, contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault, ServerProxy

import psutil
from supervisor.states import ProcessStates
from supervisor.xmlrpc import Faults, SupervisorTransport

from ...state.files.durable import replace_file
from ..dev_services.errors import ServiceFailedError, last_lines_of
from ..dev_services.service import MARKER, Daemon, Program, wait_until
from ..worker.app_processes import STOP_LIMIT_S
from .errors import SupervisorUnavailable
from .process_supervisor import ProcessState, ProcessStatus

SOCKET = "rpc.sock"
_PROCESS = Path("/proc/self")
"""Where Linux has short names for the folders that a process works in or has open: a socket's path may be 107 bytes long, and `--dir` longer."""
LOG_BYTES, LOG_BACKUPS = 10 * 2**20, 5
"""How large a worker's log gets before a new one is begun, and how many earlier ones are kept."""
STARTED_S = 20
"""A worker that ends before that is started again after a pause that grows by a second each time; a later end counts as the first."""
START_LIMIT_S = 30.0

_LIVES = {
    ProcessStates.STARTING: ProcessState.RUNNING,
    ProcessStates.RUNNING: ProcessState.RUNNING,
    ProcessStates.STOPPING: ProcessState.RUNNING,
    ProcessStates.BACKOFF: ProcessState.WAITING,
    ProcessStates.EXITED: ProcessState.WAITING,
}


class Supervisord:
    """The supervisord of a folder.

    Args:
        folder: `--dir`, whole.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._own = self._folder / "supervisor"
        self._daemon = Daemon("supervisord", self._own)

    def keep(self, name: str, workers: int) -> None:
        """Keep the first so many workers alive, and no others."""
        (self._folder / "logs" / name).mkdir(parents=True, exist_ok=True)
        wanted = {self._program(name, worker): worker_config(self._folder, name, worker) for worker in range(workers)}
        for path in self._programs_of(name) - set(wanted):
            path.unlink()
        for path, config in wanted.items():
            replace_file(path, config.encode())
        if workers or self._daemon.process() is not None:
            self._up()
            self._follow()
        if not any((self._own / "programs").glob("*.conf")):
            self._daemon.stop()

    def restart(self, name: str, worker: int) -> None:
        """End a worker, its buckets waiting, and start it again."""
        program = _process(name, worker)
        with self._server() as server:
            pid = server.getProcessInfo(program)["pid"]
            if pid:
                self._pause(server, program, pid)
            if _LIVES.get(server.getProcessInfo(program)["state"]) is not ProcessState.RUNNING:
                _start_now(server, program)

    def look(self, name: str, worker: int) -> ProcessStatus:
        """Return how a worker's process is."""
        if self._daemon.process() is None:
            return ProcessStatus(ProcessState.STOPPED)
        try:
            with self._server() as server:
                told = server.getProcessInfo(_process(name, worker))
        except Fault:
            return ProcessStatus(ProcessState.STOPPED)
        life = _LIVES.get(told["state"], ProcessState.STOPPED)
        return ProcessStatus(life, told["pid"] or None, float(told["now"] - told["start"]) if told["pid"] else None)

    def last_words(self, name: str, worker: int) -> str:
        """Return the end of a worker's log."""
        return last_lines_of(_log_of(self._folder, name, worker))

    def _pause(self, server: Any, program: str, pid: int) -> None:
        """Ask a process to end and keep its place; it is started again as whatever ends is."""

        def has_ended() -> bool:
            return bool(server.getProcessInfo(program)["pid"] != pid)

        for signal in ("USR1", "KILL"):
            with _but(Faults.NOT_RUNNING):
                server.signalProcess(program, signal)
            if wait_until(has_ended, STOP_LIMIT_S):
                return
        raise SupervisorUnavailable(
            f"Process {pid} of {program.partition(':')[0]} could not be ended, even with force."
        )

    def _up(self) -> None:
        """Start supervisord where it does not run."""
        if self._daemon.process() is not None:
            return
        self._end_orphans()
        replace_file(self._own / "supervisord.conf", _own_config(self._own).encode())
        command = (
            sys.executable,
            "-m",
            "supervisor.supervisord",
            "-n",
            "-c",
            str(self._own / "supervisord.conf"),
            "-i",
            MARKER,
        )
        try:
            self._daemon.start(Program(command, folder=self._own), self._answers, START_LIMIT_S)
        except ServiceFailedError as error:
            raise SupervisorUnavailable(str(error)) from error

    def _end_orphans(self) -> None:
        """End workers that have outlived a supervisord that was killed: the next one starts others in their places."""
        code = f"{self._folder / 'deployments'}{os.sep}"
        orphans = [
            process
            for process in psutil.process_iter(["cmdline"])
            if any(part.startswith(code) for part in process.info["cmdline"] or ())
        ]
        for process in orphans:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        _, left = psutil.wait_procs(orphans, STOP_LIMIT_S)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _answers(self) -> bool:
        try:
            with self._server() as server:
                return bool(server.getState()["statename"] == "RUNNING")
        except SupervisorUnavailable:
            return False

    def _follow(self) -> None:
        """Bring supervisord to what the programs' files say."""
        with self._server() as server:
            [[added, changed, removed]] = server.reloadConfig()
            for program in [*changed, *removed]:
                server.stopProcessGroup(program, False)
            for program in [*changed, *removed]:
                self._remove(server, program)
            for program in [*changed, *added]:
                with _but(Faults.ALREADY_ADDED):
                    server.addProcessGroup(program)

    def _remove(self, server: Any, program: str) -> None:
        deadline_s = time.monotonic() + 2 * STOP_LIMIT_S
        while True:
            try:
                server.removeProcessGroup(program)
            except Fault as fault:
                if fault.faultCode == Faults.BAD_NAME:
                    return
                if fault.faultCode != Faults.STILL_RUNNING or time.monotonic() > deadline_s:
                    raise SupervisorUnavailable(
                        f"supervisord cannot let go of {program}: {fault.faultString}."
                    ) from fault
                time.sleep(0.1)
            else:
                return

    @contextmanager
    def _server(self) -> Iterator[Any]:
        """Give supervisord's calls."""
        try:
            with (
                _within(self._own) as near,
                closing(SupervisorTransport(None, None, f"unix://{near / SOCKET}")) as there,
            ):
                yield ServerProxy("http://supervisord", transport=there).supervisor
        except (OSError, http.client.HTTPException) as error:
            raise SupervisorUnavailable(
                f"supervisord of {self._folder} does not answer: {error}. Workers that run go on. Its log is {self._own / 'supervisord.log'}; "
                "deploy again to start it."
            ) from error

    def _program(self, name: str, worker: int) -> Path:
        return self._own / "programs" / f"{name}@{worker}.conf"

    def _programs_of(self, name: str) -> set[Path]:
        found = (self._own / "programs").glob("*.conf")
        return {path for path in found if path.stem.rpartition("@")[0] == name}


def _worked_in(folder: Path) -> Path:
    """Return a short name of a folder for a process that works in it."""
    return _PROCESS / "cwd" if _PROCESS.exists() else folder


@contextmanager
def _within(folder: Path) -> Iterator[Path]:
    """Give a short name of a folder for this process, in the block."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _PROCESS / "fd" / str(opened) if _PROCESS.exists() else folder
    finally:
        os.close(opened)


def _process(name: str, worker: int) -> str:
    """Return what supervisord calls a worker's process: each is a group of its own."""
    return f"{name}@{worker}:{name}@{worker}"


def _start_now(server: Any, process: str) -> None:
    """Start a process that waits for its next try, which may be far off."""
    with _but(Faults.NOT_RUNNING):
        server.stopProcess(process)
    with _but(Faults.ALREADY_STARTED):
        server.startProcess(process, False)


@contextmanager
def _but(code: int) -> Iterator[None]:
    """Take one refusal for agreement: it is as was asked for already."""
    try:
        yield
    except Fault as fault:
        if fault.faultCode != code:
            raise


def _own_config(own: Path) -> str:
    return _written(
        {
            "supervisord": {
                "logfile": own / "supervisord.log",
                "logfile_maxbytes": LOG_BYTES,
                "logfile_backups": LOG_BACKUPS,
                "pidfile": own / "supervisord.pid",
                "childlogdir": own,
                "directory": own,
                "silent": "true",
            },
            "unix_http_server": {"file": _worked_in(own) / SOCKET, "chmod": "0700"},
            "rpcinterface:supervisor": {
                "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
            },
            # Beside this file: a whole path could hold spaces, at which it would be split.
            "include": {"files": "programs/*.conf"},
        }
    )


def _log_of(folder: Path, name: str, worker: int) -> Path:
    return folder / "logs" / name / f"{worker}.log"


def worker_config(folder: Path, name: str, worker: int) -> str:
    """Return what supervisord is told of a worker."""
    command = [sys.executable, "-m", "penstock.ops.deploy.launch", str(folder), name, str(worker)]
    return _written(
        {
            f"program:{name}@{worker}": {
                "command": shlex.join(command),
                "autostart": "true",
                "autorestart": "true",
                "startsecs": STARTED_S,
                "startretries": 1_000_000_000,
                "stopsignal": "TERM",
                "stopwaitsecs": round(STOP_LIMIT_S),
                "redirect_stderr": "true",
                "stdout_logfile": _log_of(folder, name, worker),
                "stdout_logfile_maxbytes": LOG_BYTES,
                "stdout_logfile_backups": LOG_BACKUPS,
            }
        }
    )


def _written(sections: dict[str, dict[str, object]]) -> str:
    """Return the text of a configuration; a percent sign in a value is itself."""
    config = RawConfigParser()
    for section, values in sections.items():
        config[section] = {name: str(value).replace("%", "%%") for name, value in values.items()}
    text = StringIO()
    config.write(text)
    return text.getvalue()
