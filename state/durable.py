"""What makes a change on this machine's disk last."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4


def sync_folder(folder: Path) -> None:
    """Make names that were given in a folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def aside_name(name: str) -> str:
    """Return a name for a file in the making; never the same twice, so that no late request of one try meets another's."""
    return f".{name}.{uuid4().hex}.aside"
