"""The states of shards below one folder of the local disk, which the workers of a machine share.

    <root>/<processor>/<bucket>/000001/     a RocksDB; the highest number is the current one
    <root>/<processor>/<bucket>/.new-…/     one that is being made; it gets a number by rename when it is whole

A worker that is paused keeps the lock of its database. Whoever owns the bucket then reads past the lock, into a copy with
the next number; the paused one, when it goes on, finds that it owns nothing, and what it still writes is in a database that
nobody reads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from rocksdict import Cache

from ..errors import StateError, StateInUse
from ..protocols import ShardIdentity
from .rocksdb import RocksShardState, database_options, drop_folder, open_database, opened_read_only, translated_errors

_LOG = logging.getLogger("penstock.state")
LOCK_LIMIT_S = 3.0
"""How long the former owner of a shard may take to close it."""

_CACHE_BYTES = 256 * 2**20


class RocksStateFolder:
    """Opens shards' states. Those of a process share one block cache. Any thread may open."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._cache = Cache(_CACHE_BYTES)

    def open(self, identity: ShardIdentity) -> RocksShardState:
        """Open a shard's state, empty where there is none yet."""
        shard = shard_folder(self._root, identity)
        folder = current(shard) or shard / _numbered(1)
        try:
            state = self._open_unlocked(folder)
        except StateInUse as error:
            _LOG.warning("%s It does not let go, so its state is copied.", error)
            state = self._open_unlocked(_copied(shard, folder))
        try:
            state.claim(identity)
        except StateError:
            state.close()
            raise
        _drop_older(shard, state.folder)
        return state

    def _open_unlocked(self, folder: Path) -> RocksShardState:
        """Open a database, waiting for a former owner to let go of it."""
        deadline = time.monotonic() + LOCK_LIMIT_S
        while True:
            try:
                return RocksShardState(open_database(folder, database_options(self._cache)), folder)
            except StateInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def shard_folder(root: Path, identity: ShardIdentity) -> Path:
    """Return the folder of a shard's states below `root`."""
    return root / identity.processor / f"{identity.bucket:05d}"


def current(shard: Path) -> Path | None:
    """Return the database of a shard that counts; None where it has none."""
    return max(_databases(shard), default=None)


def add_database(shard: Path, make: Callable[[Path], None]) -> Path:
    """Make a database aside; when it is whole, it is the shard's current one. Return its folder.

    Args:
        shard: the folder of the shard's states.
        make: writes a database to the folder it is given.
    """
    making = shard / f".new-{uuid4().hex}"
    try:
        with translated_errors(shard):
            shard.mkdir(parents=True, exist_ok=True)
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
    """Remove databases that a newer one has replaced, except while somebody has them open."""
    for folder in _databases(shard):
        if folder < kept:
            with suppress(StateError):
                open_database(folder, database_options(Cache(2**20))).close()
                drop_folder(folder)
