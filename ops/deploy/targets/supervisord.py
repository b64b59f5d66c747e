"""Workers under supervisord: one supervisord per folder (`--dir`), independent of the command that started it.

    <dir>/supervisor/supervisord.conf       its own configuration
    <dir>/supervisor/programs/NAME@0.conf   one program per worker, so that adding a worker restarts no other, with two processes: its slots
    <dir>/supervisor/rpc.sock               the socket of its XML-RPC interface
    <dir>/logs/NAME/0-0.log                 the log of a process, rotated

One slot of a worker is the current one. To replace the worker, the other slot becomes current and starts. When it has made all of its
preparations, it asks the process of the first slot to hand over (`worker_identity`), which ends and is not restarted. The same happens if
a killed supervisord has left workers: the processes of the next supervisord take over from them.

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

from ....state.files import make_private_folder, replace_file
from ...kernel import HANDED_OVER, STOP_LIMIT_S
from ...start import MARKER, Daemon, ServiceFailedError, ServiceProgram, last_lines_of, wait_until
from ..errors import SupervisorUnavailable
from ..launch import PROGRAM
from ..process_supervisor import ProcessState, ProcessStatus
from ..registry import DeploymentFiles, WorkerStart
from ..worker_logs import SLOTS, log_of, logs_folder

SOCKET = "rpc.sock"
_PROCESS = Path("/proc/self")
"""Linux' short paths to the open folders of a process: a socket's path is limited to 107 bytes, and `--dir` may be longer."""
LOG_BYTES, LOG_BACKUPS = 10 * 2**20, 5
"""The size at which a worker's log is rotated, and the number of rotated logs."""
STARTED_S = 20
"""If a worker ends earlier than this, the pause before its restart grows by a second. A later end resets the pause."""
START_LIMIT_S = 30.0
HANDOVER_LIMIT_S = 2 * STOP_LIMIT_S
"""How long a successor may take to prepare itself and to take over."""

_SLOT = "\0"
"""The placeholder of a process's slot; no path contains it."""

_STATES = {
    ProcessStates.STARTING: ProcessState.RUNNING,
    ProcessStates.RUNNING: ProcessState.RUNNING,
    ProcessStates.STOPPING: ProcessState.RUNNING,
    ProcessStates.BACKOFF: ProcessState.WAITING,
    ProcessStates.EXITED: ProcessState.WAITING,
}


class Supervisord:
    """The supervisord of a folder.

    Args:
        folder: the value of `--dir`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._supervisor_folder = self._folder / "supervisor"
        self._daemon = Daemon("supervisord", self._supervisor_folder)

    def set_worker_count(self, name: str, workers: int) -> None:
        """Keep the first workers of a deployment running, and stop the others."""
        make_private_folder(logs_folder(self._folder, name))
        configs = {self._program(name, worker): worker_config(self._folder, name, worker) for worker in range(workers)}
        removed = self._programs_of(name) - set(configs)
        for path in removed:
            path.unlink()
        for path, config in configs.items():
            replace_file(path, config.encode())
        is_new = self._daemon.process() is None
        if is_new and self._programs():
            self._start_daemon()
        if self._daemon.process() is not None:
            self._reload()
            self._start_missing()
        if is_new or removed:
            self._end_orphans()
        if not self._programs():
            self._daemon.stop()

    def restart(self, name: str, worker: int) -> None:
        """Start the other process of a worker, which takes over when it is prepared; return then, or when it has failed."""
        files = DeploymentFiles(self._folder, name)
        with self._server() as server:
            slot = files.slot(worker)
            if server.getProcessInfo(_process(name, worker, 1 - slot))["pid"]:
                slot = 1 - slot  # the current process has not taken over, and is replaced instead
            former, successor = _process(name, worker, slot), _process(name, worker, 1 - slot)
            _stop_now(server, successor)
            files.save_slot(worker, 1 - slot)
            former_pid = server.getProcessInfo(former)["pid"]
            server.startProcess(successor, False)
            successor_pid = server.getProcessInfo(successor)["pid"]

            def is_over() -> bool:
                pids = [server.getProcessInfo(process)["pid"] for process in (former, successor)]
                return not former_pid or pids[0] != former_pid or pids[1] != successor_pid

            wait_until(is_over, HANDOVER_LIMIT_S)
            if not former_pid or server.getProcessInfo(former)["pid"] != former_pid:
                _stop_now(server, former)  # supervisord would restart it after a pause, if it has run for a moment only

    def status(self, name: str, worker: int) -> ProcessStatus:
        """Return the status of a worker's process."""
        if self._daemon.process() is None:
            return ProcessStatus(ProcessState.STOPPED)
        with self._server() as server:
            try:
                info = server.getProcessInfo(self._current(name, worker))
            except Fault:
                return ProcessStatus(ProcessState.STOPPED)
        state, pid = _STATES.get(info["state"], ProcessState.STOPPED), info["pid"] or None
        return ProcessStatus(state, pid, float(info["now"] - info["start"]) if pid else None)

    def log_tail(self, name: str, worker: int, start: WorkerStart | None) -> str:
        """Return the end of a worker's log since a start."""
        if start is None:
            slot = DeploymentFiles(self._folder, name).slot(worker)
            return last_lines_of(log_of(self._folder, name, worker, slot))
        return last_lines_of(log_of(self._folder, name, worker, start.slot), start.log_bytes)

    def _start_daemon(self) -> None:
        """Start supervisord."""
        replace_file(self._supervisor_folder / "supervisord.conf", _daemon_config(self._supervisor_folder).encode())
        command = (
            sys.executable,
            "-m",
            "penstock.ops.deploy.targets.quick_supervisord",
            "-n",
            "-c",
            str(self._supervisor_folder / "supervisord.conf"),
            "-i",
            MARKER,
        )
        try:
            self._daemon.start(ServiceProgram(command, folder=self._supervisor_folder), self._answers, START_LIMIT_S)
        except ServiceFailedError as error:
            raise SupervisorUnavailable(str(error)) from error

    def _end_orphans(self) -> None:
        """End workers of a killed supervisord that are no longer wanted. Successors of the others ask them to hand over."""
        programs = {path.stem for path in self._programs()}
        orphans = [process for process, program in self._worker_processes() if program not in programs]
        for process in orphans:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        _, survivors = psutil.wait_procs(orphans, STOP_LIMIT_S)
        for process in survivors:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _worker_processes(self) -> Iterator[tuple[psutil.Process, str]]:
        """Yield the workers of this folder, and the names of their programs."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if words[2:4] == [PROGRAM, str(self._folder)]:
                name, worker = words[4:6]
                yield process, f"{name}@{worker}"

    def _start_missing(self) -> None:
        """Start the current process of each worker that has none."""
        with self._server() as server:
            for program in self._programs():
                name, _, worker = program.stem.rpartition("@")
                with _ignoring(Faults.ALREADY_STARTED):
                    server.startProcess(self._current(name, int(worker)), False)

    def _answers(self) -> bool:
        try:
            with self._server() as server:
                return bool(server.getState()["statename"] == "RUNNING")
        except SupervisorUnavailable:
            return False

    def _reload(self) -> None:
        """Apply the programs' files: stop removed and changed programs, and start added and changed ones."""
        with self._server() as server:
            [[added, changed, removed]] = server.reloadConfig()
            for program in [*changed, *removed]:
                server.stopProcessGroup(program, False)
            for program in [*changed, *removed]:
                self._remove(server, program)
            for program in [*changed, *added]:
                with _ignoring(Faults.ALREADY_ADDED):
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
                        f"supervisord cannot remove {program}: {fault.faultString}. Other workers continue. Repeat the command."
                    ) from fault
                time.sleep(0.1)
            else:
                return

    @contextmanager
    def _server(self) -> Iterator[Any]:
        """Yield the XML-RPC interface of supervisord."""
        try:
            with (
                _short_path(self._supervisor_folder) as folder,
                closing(SupervisorTransport(None, None, f"unix://{folder / SOCKET}")) as transport,
            ):
                yield ServerProxy("http://supervisord", transport=transport).supervisor
        except (OSError, http.client.HTTPException) as error:
            raise SupervisorUnavailable(
                f"supervisord of {self._folder} does not answer: {error}. Running workers continue. Deploy again to start it; its log is "
                f"{self._supervisor_folder / 'supervisord.log'}."
            ) from error
        except Fault as fault:
            raise SupervisorUnavailable(
                f"supervisord of {self._folder} refuses a request: {fault.faultString}. Other workers continue. Correct the cause, then repeat the command; "
                f"its log is {self._supervisor_folder / 'supervisord.log'}."
            ) from fault

    def _program(self, name: str, worker: int) -> Path:
        return self._supervisor_folder / "programs" / f"{name}@{worker}.conf"

    def _programs(self) -> list[Path]:
        return sorted((self._supervisor_folder / "programs").glob("*.conf"))

    def _programs_of(self, name: str) -> set[Path]:
        return {path for path in self._programs() if path.stem.rpartition("@")[0] == name}

    def _current(self, name: str, worker: int) -> str:
        """Return the name of a worker's current process."""
        return _process(name, worker, DeploymentFiles(self._folder, name).slot(worker))


def _short_working_folder(folder: Path) -> Path:
    """Return a short path of a folder for a process that runs in it."""
    return _PROCESS / "cwd" if _PROCESS.exists() else folder


@contextmanager
def _short_path(folder: Path) -> Iterator[Path]:
    """Yield a short path of a folder for this process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _PROCESS / "fd" / str(descriptor) if _PROCESS.exists() else folder
    finally:
        os.close(descriptor)


def _process(name: str, worker: int, slot: int) -> str:
    """Return the name of a process in supervisord. Each worker has its own group."""
    return f"{name}@{worker}:{name}@{worker}-{slot}"


def _stop_now(server: Any, process: str) -> None:
    """End a process, and do not restart it."""
    with _ignoring(Faults.NOT_RUNNING):
        server.stopProcess(process)


@contextmanager
def _ignoring(code: int) -> Iterator[None]:
    """Ignore one fault, which means that the requested state is already reached."""
    try:
        yield
    except Fault as fault:
        if fault.faultCode != code:
            raise


def _daemon_config(folder: Path) -> str:
    return _config_text(
        {
            "supervisord": {
                "logfile": folder / "supervisord.log",
                "logfile_maxbytes": LOG_BYTES,
                "logfile_backups": LOG_BACKUPS,
                "pidfile": folder / "supervisord.pid",
                "childlogdir": folder,
                "directory": folder,
                "silent": "true",
            },
            "unix_http_server": {"file": _short_working_folder(folder) / SOCKET, "chmod": "0700"},
            "rpcinterface:supervisor": {
                "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
            },
            # Relative, because supervisord splits this value at spaces, and an absolute path may contain some.
            "include": {"files": "programs/*.conf"},
        }
    )


def worker_config(folder: Path, name: str, worker: int) -> str:
    """Return the configuration of a worker's program."""
    command = [sys.executable, "-m", PROGRAM, str(folder), name, str(worker)]
    return _config_text(
        {
            f"program:{name}@{worker}": {
                "command": f"{shlex.join(command)} {_SLOT}",
                "numprocs": len(SLOTS),
                "process_name": f"{name}@{worker}-{_SLOT}",
                "autostart": "false",
                "autorestart": "unexpected",
                "exitcodes": HANDED_OVER,
                "startsecs": STARTED_S,
                "startretries": 1_000_000_000,
                "stopsignal": "TERM",
                "stopwaitsecs": round(STOP_LIMIT_S),
                "redirect_stderr": "true",
                "stdout_logfile": log_of(folder, name, worker, _SLOT),
                "stdout_logfile_maxbytes": LOG_BYTES,
                "stdout_logfile_backups": LOG_BACKUPS,
            }
        }
    )


def _config_text(sections: dict[str, dict[str, object]]) -> str:
    """Return the text of a configuration. Percent signs are escaped, and the number of a process replaces its placeholder."""
    config = RawConfigParser()
    for section, values in sections.items():
        config[section] = {
            name: str(value).replace("%", "%%").replace(_SLOT, "%(process_num)d") for name, value in values.items()
        }
    text = StringIO()
    config.write(text)
    return text.getvalue()
