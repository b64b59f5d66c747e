"""The command line that runs a worker of a version."""

from __future__ import annotations

from pathlib import Path

from .version import Version


def run_arguments(version: Version, code: Path | str, health: str) -> list[str]:
    """Return what follows `penstock`.

    Args:
        version: which.
        code: the folder of its code, where the worker runs.
        health: where the worker tells how it is.
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
    }
    given = [part for name, value in options.items() if value is not None for part in (name, value)]
    return ["run", f"{code}/{version.app_file}:{version.processor}", *given]
