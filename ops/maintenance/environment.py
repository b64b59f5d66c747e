"""What a processor has around it that is moved."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...state.files.file_store import FileStore
from ...transport.bus import Bus


@dataclass(frozen=True)
class Around:
    """What a processor has around it.

    Args:
        bus: where its categories are.
        states: the folder of all states.
        backups: where they are backed up; None for nowhere.
        store: the address of the store for remote state; may hold a password, never shown.
    """

    bus: Bus
    states: Path
    backups: FileStore | None = None
    store: str | None = field(default=None, repr=False)
