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


def replace_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Put a file in the place of another, whole and lasting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(aside_name(path.name))
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_folder(path.parent)
