"""The command line of a worker."""

from __future__ import annotations

from pathlib import Path

from .version import Version


def run_arguments(version: Version, code: Path | str, health: str | None, number: str | None = None) -> list[str]:
    """Return the arguments of `penstock` that run a worker, or the server of a version.

    Args:
        version: the version.
        code: the folder of its code, on the worker's machine.
        health: the port or address of the worker's health endpoint; None without one.
        number: the worker's number under its supervisor; None if its volume or its unit names it.
    """
    settings, server = version.settings, version.server
    options = {
        "--kafka": settings.kafka,
        "--config": settings.config,
        "--dir": settings.folder,
        "--health": health,
        "--number": number,
    }
    if server is not None and server.certificate is not None:
        options |= zip(("--tls-cert", "--tls-key"), server.certificate, strict=True)
    if server is None or server.has_worker:
        options |= {
            "--backup": settings.backup,
            "--webhdfs": settings.webhdfs,
            "--backup-every": f"{settings.backup_every_s:g}",
        }
    if server is None:
        options |= {
            "--state-cache": None if settings.state_cache_mib is None else str(settings.state_cache_mib),
            "--backup-history": settings.backup_history,
        }
    arguments = [part for name, value in options.items() if value is not None for part in (name, value)]
    arguments += ["--traces"] * settings.traces
    if server is None:
        arguments += ["--standby"] * settings.standby
        return ["run", str(version.app_in(code)), *arguments]
    app = str(version.app_in(code).whole)
    return [*server.command, *([app] if server.reads_app else []), *server.options, *arguments]
