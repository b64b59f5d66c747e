"""The command line of a worker."""

from __future__ import annotations

from pathlib import Path

from .version import Version


def run_arguments(version: Version, code: Path | str, health: str, number: str | None = None) -> list[str]:
    """Return the arguments of `penstock` that run a worker.

    Args:
        version: the version.
        code: the folder of its code, on the worker's machine.
        health: the port or address of the worker's health endpoint.
        number: the worker's number under its supervisor; None if its volume names it.
    """
    settings = version.settings
    options = {
        "--kafka": settings.kafka,
        "--config": settings.config,
        "--dir": settings.folder,
        "--backup": settings.backup,
        "--webhdfs": settings.webhdfs,
        "--backup-every": f"{settings.backup_every_s:g}",
        "--health": health,
        "--number": number,
    }
    arguments = [part for name, value in options.items() if value is not None for part in (name, value)]
    arguments += ["--traces"] * settings.traces
    return ["run", f"{code}/{version.app_file}:{version.processor}", *arguments]
