"""Free space on the disks of state folders and deployments."""

from __future__ import annotations

import shutil
from pathlib import Path


def free_share(folder: Path) -> float | None:
    """Return the free share of a folder's disk; None if it cannot be read."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.free / usage.total if usage.total else None
