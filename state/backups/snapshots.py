"""Snapshots of open states: folders of hard links beside the state, for as long as they are being stored."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from ..local.rocksdb import explained

# Hidden, so that nobody takes it for one of the shard's databases.
_PREFIX = ".backup-"


@contextmanager
def snapshot_folder(database: Path) -> Iterator[Path]:
    """Give the name of a folder that is not there yet, on the disk of a database; it is removed in the end."""
    folder = database.parent / f"{_PREFIX}{uuid4().hex}"
    try:
        yield folder
    finally:
        _remove(folder)


def drop_leftovers(database: Path) -> None:
    """Remove what processes left beside a database that were killed while they stored a snapshot of it."""
    with explained(database):
        leftovers = list(database.parent.glob(f"{_PREFIX}*"))
    for folder in leftovers:
        _remove(folder)


def _remove(folder: Path) -> None:
    if folder.exists():
        with explained(folder):
            shutil.rmtree(folder)
