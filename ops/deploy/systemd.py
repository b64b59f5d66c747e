"""Workers under the user's systemd: one template unit per deployment, one instance per worker.

    ~/.config/systemd/user/penstock-NAME@.service      the template unit, identical for all versions

A unit of a user cannot hide or protect parts of the system without a user namespace, so the template restricts what needs no privileges.

Source: systemd.unit(5), systemd.service(5), systemd.exec(5), systemctl(1) of systemd 252 and 254.
"""

from __future__ import annotations

import os
import re
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
from .launch import PROGRAM
from .process_supervisor import ProcessState, ProcessStatus
from .registry import WorkerStart

SYSTEMCTL_LIMIT_S = 30.0

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
RestartSec={pause_s}
{growing_pause}KillSignal=SIGTERM
TimeoutStopSec={stop_s}
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


GROWING_PAUSE = "RestartSteps=10\nRestartMaxDelaySec=60\n"
"""The pause before a restart grows from one second to a minute."""
GROWING_SINCE = 254
"""The version of systemd that introduced these settings. For an older one, the pause is constant."""


class Systemd:
    """The user's systemd.

    Args:
        folder: the value of `--dir`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def set_worker_count(self, name: str, workers: int) -> None:
        """Keep the first workers of a deployment running, and stop the others."""
        template = units_folder() / template_of(name)
        superfluous = [unit_of(name, worker) for worker in _enabled_workers(name) if worker >= workers]
        if superfluous:
            _systemctl("disable", "--now", *superfluous)
        if workers:
            version = _version(_systemctl("show", "--property=Version"))  # fails before any file is written
            # It contains no values, and systemd warns about units that others cannot read.
            replace_file(template, unit_text(self._folder, name, version).encode(), mode=0o644)
            _systemctl("daemon-reload")
            _systemctl("enable", "--now", *(unit_of(name, worker) for worker in range(workers)))
        elif template.exists():
            template.unlink()
            _systemctl("daemon-reload")

    def restart(self, name: str, worker: int) -> None:
        """Stop a worker, with its buckets reserved, and start it."""
        unit = unit_of(name, worker)
        pid = self.status(name, worker).pid
        for signal in ("SIGUSR1", "SIGKILL") if pid else ():
            _systemctl("kill", "--signal", signal, unit)
            if wait_until(lambda: self.status(name, worker).pid != pid, STOP_LIMIT_S):
                break
        _systemctl("start", unit)

    def status(self, name: str, worker: int) -> ProcessStatus:
        """Return the status of a worker's process."""
        output = _systemctl(
            "show", unit_of(name, worker), "--property=ActiveState,MainPID,ExecMainStartTimestampMonotonic"
        )
        properties = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        pid = int(properties.get("MainPID", "0"))
        if pid:
            since_s = int(properties.get("ExecMainStartTimestampMonotonic", "0")) / 1_000_000
            return ProcessStatus(ProcessState.RUNNING, pid, max(0.0, time.monotonic() - since_s))
        is_waiting = properties.get("ActiveState") in {"activating", "reloading", "deactivating"}
        return ProcessStatus(ProcessState.WAITING if is_waiting else ProcessState.STOPPED)

    def log_tail(self, name: str, worker: int, start: WorkerStart | None) -> str:
        """Return the end of a worker's journal since a start."""
        command = ["journalctl", "--user", "--unit", unit_of(name, worker)]
        if start is not None:
            command.append(f"_PID={start.pid}")
        try:
            lines = _run([*command, "--lines", str(LAST_LINES), "--output", "cat"])
        except SupervisorUnavailable:
            lines = ""
        quoted = "".join(f"\n  {line}" for line in lines.splitlines())
        return f"`{' '.join(command)}` shows its log" + (f", which ends with:{quoted}" if quoted else ".")


def log_command(name: str, worker: int | None, lines: int, *, follow: bool) -> list[str]:
    """Return the command that prints the journal of a deployment's workers, or of one of them."""
    units = f"penstock-{name}@*" if worker is None else unit_of(name, worker)
    return ["journalctl", "--user", "--unit", units, "--lines", str(lines), *["--follow"] * follow]


def _enabled_workers(name: str) -> list[int]:
    links = (units_folder() / "default.target.wants").glob(f"penstock-{name}@*.service")
    return sorted(int(path.stem.rpartition("@")[2]) for path in links)


def units_folder() -> Path:
    """Return the folder of the user's units."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def template_of(name: str) -> str:
    """Return the name of a deployment's template unit."""
    return f"penstock-{name}@.service"


def unit_of(name: str, worker: int) -> str:
    """Return the name of a worker's unit."""
    return f"penstock-{name}@{worker}.service"


def unit_text(folder: Path, name: str, version: int) -> str:
    """Return the template unit of a deployment for a version of systemd."""
    command = [sys.executable, "-m", PROGRAM, str(folder), name]
    grows = version >= GROWING_SINCE
    return _TEMPLATE.format(
        name=name,
        command=" ".join(map(quoted, command)),
        pause_s=1 if grows else 5,
        growing_pause=GROWING_PAUSE if grows else "",
        stop_s=round(STOP_LIMIT_S) + 10,
    )


def installed_version() -> int:
    """Return the version of systemd on this machine; `GROWING_SINCE` if there is none."""
    try:
        return _version(_run(["systemctl", "--version"]))
    except SupervisorUnavailable:
        return GROWING_SINCE


def _version(text: str) -> int:
    """Return the first number of an output of systemctl, such as "systemd 252 (252.38-1~deb12u1)" or "Version=254"."""
    found = re.search(r"\d+", text)
    return int(found[0]) if found else 0


def quoted(part: str) -> str:
    """Return an argument quoted for a unit, with systemd's specifiers and variables escaped."""
    escaped = part.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _systemctl(*arguments: str) -> str:
    return _run(["systemctl", "--user", *arguments])


def _run(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        raise SupervisorUnavailable(
            f"This machine has no {command[0]}. Nothing was started. Use `--target local`; or print the units with --dry-run, and install "
            "them on a machine with systemd."
        )
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SYSTEMCTL_LIMIT_S + STOP_LIMIT_S
    )
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).rstrip(".")
        raise SupervisorUnavailable(
            f"`{' '.join(command)}` failed: {reason}. Running workers continue. Without a systemd of the user (no login session, a "
            "container), use `--target local`."
        )
    return done.stdout
