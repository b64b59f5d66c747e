"""Durable file operations on the local disk."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4


def sync_folder(folder: Path) -> None:
    """Make creations, renames and deletions in a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents, with access for this user only. Existing folders keep their permissions."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def temporary_name(name: str) -> str:
    """Return a unique name for an unfinished file. Since it is unique, a late request of one attempt cannot affect another attempt."""
    return f".{name}.{uuid4().hex}.tmp"


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file durably, readable by this user only. It appears whole or not at all, and replaces an existing one in one step."""
    make_private_folder(path.parent)
    temporary = path.with_name(temporary_name(path.name))
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)
