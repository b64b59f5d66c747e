"""Units of the system's systemd for a whole app: its workers, or servers, and what watches them.

    penstock.sysusers.conf        the user of all units, for /etc/sysusers.d
    penstock-NAME@.service        the workers of a processor, one instance per worker
    penstock-NAME.service         a server of Laser or Scuba
    penstock-alerts.service       `penstock alerts run`
    penstock-metrics.service      `penstock serve metrics`
    penstock-dashboard.service    `penstock serve dashboard`

They are written, not started: packages and configuration management install them. Each runs the app and the Python at their present places,
without privileges, and writes to /var/lib/penstock only. systemd reads the configuration and the variables with secrets as root, and passes
them on. The settings are those of systemd 252 and newer. There is no WatchdogSec, because the programs do not notify systemd.

Source: systemd.exec(5), systemd.service(5), systemd.unit(5), sysusers.d(5) of systemd 252.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...kernel import STOP_LIMIT_S, penstock_command
from ..errors import DeployError
from ..version import Version
from ..worker_command import run_arguments

USER = "penstock"
STATE = f"/var/lib/{USER}"
"""The folder of states: the value of `--dir`. systemd creates it."""
SETTINGS = f"/etc/{USER}"
"""The folder of the files with environment variables, which only root needs to read."""
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - folders that units do not see
SYSUSERS = f'u {USER} - "Penstock" {STATE}\n'
SYSUSERS_FILE = "penstock.sysusers.conf"

_UNIT = """\
[Unit]
Description=Penstock: {description}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
WorkingDirectory={working_folder}
Restart=always
RestartSec=5
KillSignal=SIGTERM
{restart}TimeoutStopSec={stop_s}
User={user}
StateDirectory={user}
StateDirectoryMode=0750
{configuration}EnvironmentFile=-{settings}/penstock.env
EnvironmentFile=-{settings}/{stem}.env
LimitNOFILE=65536
UMask=0077

ProtectSystem=strict
{writable}ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
DevicePolicy=closed
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RemoveIPC=yes
KeyringMode=private
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""

_KEEPS_BUCKETS = "RestartKillSignal=SIGUSR1\n"
"""After `systemctl restart`, the buckets wait for the worker; after `stop`, others take them."""


def system_units(versions: Sequence[Version]) -> dict[str, str]:
    """Return the files for versions of one app, by name: all of its processors, or servers.

    Raises:
        DeployError: there is none.
    """
    if not versions:
        raise DeployError("The app has no processor, so there is nothing to write. Declare one.")
    files = {SYSUSERS_FILE: SYSUSERS} | {_file_of(version): _unit_of(version) for version in versions}
    return files if versions[0].server else files | dict(_watching(versions[0]))


def expect_visible(versions: Iterable[Version]) -> None:
    """Raise DeployError if the units would not see the app or the Python that they run."""
    paths = {Path(sys.prefix), Path(sys.base_prefix)}
    paths |= {Path(path) for version in versions for path in (version.app, version.settings.working_folder)}
    hidden = sorted(str(path) for path in paths if any(path.is_relative_to(folder) for folder in HIDDEN))
    if hidden:
        raise DeployError(
            f"Units of the system do not see homes and temporary folders, and they would run {' and '.join(hidden)}. Nothing was written. Install "
            "the app and Penstock in a folder such as /opt, and run the command there; or deploy under supervisord, without --target and --units."
        )


def unit_prerequisites(versions: Sequence[Version], workers: Sequence[int]) -> Iterator[str]:
    """Yield the commands that install and start the units, and the variables that they need.

    Args:
        versions: the versions of `system_units`.
        workers: the number of workers of each.
    """
    yield f"install -m 644 {SYSUSERS_FILE} /etc/sysusers.d/penstock.conf && systemd-sysusers"
    yield "install -m 644 penstock-*.service /etc/systemd/system/ && systemctl daemon-reload"
    for version in versions:
        if version.settings.variables:
            file = f"{SETTINGS}/{_stem(version)}.env"
            yield f"write {file}, with mode 600 and lines NAME=value of {', '.join(version.settings.variables)}"
    units = [
        unit
        for version, number in zip(versions, workers, strict=True)
        for unit in (
            [_file_of(version)] if version.server else [f"{_stem(version)}@{each}.service" for each in range(number)]
        )
    ]
    watching = [] if versions[0].server else [name for name, _ in _watching(versions[0])]
    yield f"systemctl enable --now {' '.join([*units, *watching])}"


def _stem(version: Version) -> str:
    return f"penstock-{version.name}"


def _file_of(version: Version) -> str:
    return f"{_stem(version)}{'' if version.server else '@'}.service"


def _unit_of(version: Version) -> str:
    words = run_arguments(version.moved(STATE, None), _code_of(version), None)
    if version.server:
        return _unit(version, _stem(version), f"server {version.name}", _command(words))
    return _unit(
        version, _stem(version), f"worker %i of {version.name}", f"{_command(words)} --number %i", _KEEPS_BUCKETS
    )


def _watching(version: Version) -> Iterator[tuple[str, str]]:
    """Yield the units of alerts, metrics and the dashboard, with their names."""
    app = str(version.app_in(_code_of(version)).whole)
    for name, arguments in {
        "alerts": ["alerts", "run", app],
        "metrics": ["serve", "metrics"],
        "dashboard": ["serve", "dashboard", app],
    }.items():
        command = _command([*arguments, "--kafka", version.settings.kafka, "--dir", STATE])
        yield f"penstock-{name}.service", _unit(version, f"penstock-{name}", name, command)


def _unit(version: Version, stem: str, description: str, command: str, restart: str = "") -> str:
    settings = version.settings
    # The manager reads the file as root, and the process gets a copy that others cannot read.
    configuration = (
        f"LoadCredential=penstock.toml:{_path(settings.config)}\nEnvironment=PENSTOCK_CONFIG=%d/penstock.toml\n"
    )
    backup = settings.backup
    return _UNIT.format(
        description=description,
        command=command,
        working_folder=_path(settings.working_folder),
        restart=restart,
        stop_s=round(STOP_LIMIT_S) + 10,
        user=USER,
        configuration="" if settings.config is None else configuration,
        settings=SETTINGS,
        stem=stem,
        writable="" if backup is None or "://" in backup else f"ReadWritePaths={_quoted(backup)}\n",
    )


def _code_of(version: Version) -> Path:
    """Return the folder from which the app is imported."""
    return Path(version.app).parents[len(Path(version.app_file).parts) - 1]


def _command(arguments: Sequence[str]) -> str:
    return " ".join(map(_quoted, penstock_command(*arguments)))


def _quoted(part: str) -> str:
    """Return an argument quoted for a unit, with systemd's specifiers and variables escaped."""
    escaped = part.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _path(path: str | None) -> str:
    """Return a path for a setting that knows specifiers, and no quotes."""
    return (path or "").replace("%", "%%")
