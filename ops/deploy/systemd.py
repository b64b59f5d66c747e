"""Workers kept alive by the user's own systemd: one template unit for each deployment, one instance for each worker.

    ~/.config/systemd/user/penstock-NAME@.service      the template; the same for all versions

Source: systemd.unit(5), systemd.service(5), systemctl(1) of systemd 254; older ones pass over the two settings that they do not know.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ...state.files.durable import replace_file
from ..dev_services.errors import LAST_LINES
from ..dev_services.service import wait_until
from ..worker.app_processes import STOP_LIMIT_S
from .errors import SupervisorUnavailable
from .process_supervisor import ProcessState, ProcessStatus

ANSWER_LIMIT_S = 30.0

_TEMPLATE = """\
[Unit]
Description=Penstock: worker %i of {name}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command} %i
Restart=always
RestartSec=1
RestartSteps=10
RestartMaxDelaySec=60
KillSignal=SIGTERM
TimeoutStopSec={stop_s}

[Install]
WantedBy=default.target
"""


class Systemd:
    """The systemd of a user.

    Args:
        folder: `--dir`, whole.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def keep(self, name: str, workers: int) -> None:
        """Keep the first so many workers alive, and no others."""
        kept = self._kept(name)
        template = units_folder() / template_of(name)
        superfluous = [unit_of(name, worker) for worker in kept if worker >= workers]
        if superfluous:
            _systemctl("disable", "--now", *superfluous)
        if workers:
            _systemctl("show", "--property=Version")  # asked before anything is written
            replace_file(template, unit_text(self._folder, name).encode())
            _systemctl("daemon-reload")
            _systemctl("enable", "--now", *(unit_of(name, worker) for worker in range(workers)))
        elif template.exists():
            template.unlink()
            _systemctl("daemon-reload")

    def restart(self, name: str, worker: int) -> None:
        """End a worker, its buckets waiting, and start it again."""
        unit = unit_of(name, worker)
        pid = self.look(name, worker).pid
        for signal in ("SIGUSR1", "SIGKILL") if pid else ():
            _systemctl("kill", "--signal", signal, unit)
            if wait_until(lambda: self.look(name, worker).pid != pid, STOP_LIMIT_S):
                break
        _systemctl("start", unit)

    def look(self, name: str, worker: int) -> ProcessStatus:
        """Return how a worker's process is."""
        told = _systemctl(
            "show", unit_of(name, worker), "--property=ActiveState,MainPID,ExecMainStartTimestampMonotonic"
        )
        facts = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
        pid = int(facts.get("MainPID", "0"))
        if pid:
            since_s = int(facts.get("ExecMainStartTimestampMonotonic", "0")) / 1_000_000
            return ProcessStatus(ProcessState.RUNNING, pid, max(0.0, time.monotonic() - since_s))
        waits = facts.get("ActiveState") in {"activating", "reloading", "deactivating"}
        return ProcessStatus(ProcessState.WAITING if waits else ProcessState.STOPPED)

    def last_words(self, name: str, worker: int) -> str:
        """Return the end of what the journal has of a worker."""
        unit = unit_of(name, worker)
        command = ["journalctl", "--user", "--unit", unit]
        try:
            told = _run([*command, "--lines", str(LAST_LINES), "--output", "cat"])
        except SupervisorUnavailable:
            told = ""
        quoted = "".join(f"\n  {line}" for line in told.splitlines())
        return f"`{' '.join(command)}` shows what it said" + (f"; it ends with:{quoted}" if quoted else ".")

    @staticmethod
    def _kept(name: str) -> list[int]:
        """Return which workers are enabled."""
        wanted = units_folder() / "default.target.wants"
        links = wanted.glob(f"penstock-{name}@*.service")
        return sorted(int(path.stem.rpartition("@")[2]) for path in links)


def units_folder() -> Path:
    """Return where a user's own units are."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def template_of(name: str) -> str:
    """Return the name of a deployment's template unit."""
    return f"penstock-{name}@.service"


def unit_of(name: str, worker: int) -> str:
    """Return the name of a worker's unit."""
    return f"penstock-{name}@{worker}.service"


def unit_text(folder: Path, name: str) -> str:
    """Return the template unit of a deployment."""
    command = [sys.executable, "-m", "penstock.ops.deploy.launch", str(folder), name]
    return _TEMPLATE.format(name=name, command=" ".join(map(_quoted, command)), stop_s=round(STOP_LIMIT_S) + 10)


def _quoted(part: str) -> str:
    """Return an argument as a unit has it: quoted, with nothing in it that systemd would put values for."""
    escaped = part.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _systemctl(*arguments: str) -> str:
    return _run(["systemctl", "--user", *arguments])


def _run(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        raise SupervisorUnavailable(
            f"There is no {command[0]} on this machine, so nothing was started. Use `--target local`, or print the units with --dry-run "
            "and install them where systemd is."
        )
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_LIMIT_S + STOP_LIMIT_S)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).rstrip(".")
        raise SupervisorUnavailable(
            f"`{' '.join(command)}` failed: {said}. Where the user's systemd does not run (no login "
            "session, a container), use `--target local`; workers that run go on."
        )
    return done.stdout
