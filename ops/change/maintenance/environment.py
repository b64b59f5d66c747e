"""Resources that a maintenance operation needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ....state.files import FileStore
from ....transport import Bus


@dataclass(frozen=True)
class MaintenanceEnvironment:
    """Resources that a maintenance operation needs.

    Args:
        bus: the bus with the processor's categories.
        states: the folder of all local states.
        backups: the backup store; None without one.
        store: the address of the store for remote state; it may contain a password and is never printed.
    """

    bus: Bus
    states: Path
    backups: FileStore | None = None
    store: str | None = field(default=None, repr=False)
