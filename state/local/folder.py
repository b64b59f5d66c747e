"""States of shards in a local folder, which the workers of a machine share.

    <root>/<processor>/<bucket>/000001/     a RocksDB database; the highest number is current
    <root>/<processor>/<bucket>/.new-…/     a database in progress; when complete, it is renamed to a number

A paused worker keeps the lock of its database. The next owner of the bucket then copies the database, reading past the lock, to the
next number. When the paused worker resumes, it learns that it owns nothing; its last writes are in a database that is no longer used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from ..errors import StateError, StateInUse
from ..files import make_private_folder
from ..protocols import ShardIdentity
from .rocksdb import (
    FILES_ADVICE,
    DatabaseMemory,
    RocksShardState,
    drop_folder,
    files_for,
    files_limit,
    open_database,
    opened_read_only,
    translated_errors,
)

_LOG = logging.getLogger("penstock.state")
LOCK_LIMIT_S = 3.0
"""The time for a shard's former owner to close it."""

DEFAULT_MEMORY_BYTES = 256 * 2**20
"""The memory of RocksDB where no worker derives it from its machine."""


class RocksStateFolder:
    """Opens shards' states, which share the memory of RocksDB in a process. Thread-safe.

    Args:
        root: the folder.
        memory_bytes: the memory for all open states.
        shards: the most states that are open at a time. They share the process's limit of open files.
    """

    def __init__(self, root: Path, memory_bytes: int = DEFAULT_MEMORY_BYTES, shards: int = 1) -> None:
        self._root = root
        self._max_files = files_for(shards)
        if self._max_files * shards > (limit := files_limit()):
            _LOG.warning(
                "%d states in %s need %d open files each, and this process may open %s. If it opens all of them, it stops. No event is lost. %s",
                shards,
                root,
                self._max_files,
                f"{limit:,}",
                FILES_ADVICE,
            )
        self._memory = DatabaseMemory(memory_bytes)

    def open(self, identity: ShardIdentity) -> RocksShardState:
        """Open a shard's state; a missing one is created empty."""
        shard = shard_folder(self._root, identity)
        folder = current(shard) or shard / _numbered(1)
        try:
            state = self._open_unlocked(folder)
        except StateInUse as error:
            _LOG.warning("%s The other process keeps it open, so the state is copied.", error)
            state = self._open_unlocked(_copied(shard, folder))
        try:
            state.claim(identity)
        except StateError:
            state.close()
            raise
        _drop_older(shard, state.folder)
        return state

    def _open_unlocked(self, folder: Path) -> RocksShardState:
        """Open a database, waiting for a former owner to close it."""
        deadline = time.monotonic() + LOCK_LIMIT_S
        while True:
            try:
                return RocksShardState(open_database(folder, self._memory, self._max_files), folder)
            except StateInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def shard_folder(root: Path, identity: ShardIdentity) -> Path:
    """Return the folder of a shard's states below `root`."""
    return root / identity.processor / f"{identity.bucket:05d}"


def current(shard: Path) -> Path | None:
    """Return a shard's current database; None without one."""
    return max(_databases(shard), default=None)


def add_database(shard: Path, make: Callable[[Path], None]) -> Path:
    """Create a database, which becomes the shard's current one when complete. Return its folder.

    Args:
        shard: the shard's folder.
        make: writes a database to a given folder.
    """
    making = shard / f".new-{uuid4().hex}"
    try:
        with translated_errors(shard):
            make_private_folder(shard)
        make(making)
        with translated_errors(shard):
            return making.rename(shard / _next_number(shard))
    except BaseException:
        with suppress(StateError):
            drop_folder(making)
        raise


def _databases(shard: Path) -> list[Path]:
    return [folder for folder in shard.glob("[0-9]*") if folder.is_dir()] if shard.is_dir() else []


def _next_number(shard: Path) -> str:
    newest = current(shard)
    return _numbered(int(newest.name) + 1 if newest else 1)


def _numbered(number: int) -> str:
    return f"{number:06d}"


def _copied(shard: Path, folder: Path) -> Path:
    def copy(target: Path) -> None:
        with opened_read_only(folder) as state:
            state.copy_to(target)

    return add_database(shard, copy)


def _drop_older(shard: Path, kept: Path) -> None:
    """Delete replaced databases, unless they are open."""
    for folder in _databases(shard):
        if folder < kept:
            with suppress(StateError):
                open_database(folder, DatabaseMemory(2**20)).close()
                drop_folder(folder)
