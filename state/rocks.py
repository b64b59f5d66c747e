"""A shard's state in RocksDB: one database a shard, with column families for state, position and identity."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import cast

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from ..processors.cores import Changes
from .errors import ForeignState, StateError, StateInUse, StateUnwritable
from .store import Offsets, ShardIdentity, shard_folder

FORMAT = 1
"""The version of the layout below; another one is refused."""

LOCK_LIMIT_S = 10.0
"""How long the former owner of a shard may take to close it."""

_POSITIONS = "positions"
_IDENTITY = "identity"
_IDENTITY_KEY = b"identity"
_CACHE_BYTES = 256 * 2**20
_WRITE_BUFFER_BYTES = 32 * 2**20


class RocksStateFolder:
    """The states of shards, below one folder of the local disk. The shards of a process share one block cache."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._cache = Cache(_CACHE_BYTES)

    def open(self, identity: ShardIdentity) -> RocksShardState:
        """Open a shard's state, empty where there is none yet."""
        folder = shard_folder(self._root, identity)
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        database = _open_unlocked(folder, _options(self._cache))
        state = RocksShardState(database, folder)
        try:
            state.claim(identity)
        except StateError:
            state.close()
            raise
        return state


class RocksShardState:
    """One open RocksDB."""

    def __init__(self, database: Rdict, folder: Path) -> None:
        self._folder = folder
        self._database: Rdict | None = database
        self._durably = WriteOptions()
        self._durably.sync = True

    def claim(self, identity: ShardIdentity) -> None:
        """Check whose state it is, or make it ours where it is new."""
        ours = json.dumps({"format": FORMAT, **asdict(identity)}, sort_keys=True)
        with self._family(_IDENTITY) as family:
            theirs = cast("bytes | None", family.get(_IDENTITY_KEY))
            if theirs is None:
                with _explained(self._folder):
                    family.put(_IDENTITY_KEY, ours.encode(), self._durably)
            elif theirs.decode() != ours:
                raise ForeignState(
                    f"The state in {self._folder} is not this shard's: it says {theirs.decode()}, expected was {ours}. "
                    "Nothing was changed. Run the processor that it belongs to, or give the new one another name or "
                    "another state folder."
                )

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key, None where there is none."""
        if not keys:
            return []
        with _explained(self._folder):
            return cast("list[bytes | None]", self._opened.get(list(keys)))

    def position(self) -> Offsets:
        """Return the saved position; empty before the first save."""
        with self._family(_POSITIONS) as family, _explained(self._folder):
            return {cast("bytes", category).decode(): int(offset) for category, offset in family.items()}

    def save(self, changes: Changes) -> None:
        """Save changes of state, all or none."""
        if not changes:
            return
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in changes.items():
            if value is None:
                delete(key)
            else:
                put(key, value)
        with _explained(self._folder):
            self._opened.write(batch, self._durably)

    def save_position(self, position: Offsets) -> None:
        """Save the position that the state reflects."""
        batch = WriteBatch(raw_mode=True)
        handle = self._opened.get_column_family_handle(_POSITIONS)
        for category, offset in position.items():
            batch.put(category.encode(), b"%d" % offset, handle)
        with _explained(self._folder):
            self._opened.write(batch, self._durably)

    def close(self) -> None:
        """Let go of the database and its lock."""
        if self._database is not None:
            database, self._database = self._database, None
            with _explained(self._folder):
                database.close()

    @property
    def _opened(self) -> Rdict:
        if self._database is None:
            raise StateError(f"The state in {self._folder} was closed already.")
        return self._database

    @contextmanager
    def _family(self, name: str) -> Iterator[Rdict]:
        # Held no longer than needed: a handle that is still alive would keep the lock after `close`.
        yield self._opened.get_column_family(name)


def _options(cache: Cache) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_log_file_size(2**20)
    options.set_keep_log_file_num(2)
    tables = BlockBasedOptions()
    tables.set_block_cache(cache)
    tables.set_bloom_filter(10, block_based=False)
    options.set_block_based_table_factory(tables)
    return options


def _open_unlocked(folder: Path, options: Options) -> Rdict:
    """Open a database, waiting for a former owner to let go of it."""
    deadline = time.monotonic() + LOCK_LIMIT_S
    while True:
        try:
            with _explained(folder):
                return Rdict(str(folder), options, column_families={_POSITIONS: options, _IDENTITY: options})
        except StateInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Raise our errors in place of RocksDB's, which come as plain exceptions with a text, and of the system's."""
    try:
        yield
    except StateError:
        raise
    except Exception as error:
        text = str(error)
        if "lock hold" in text or "While lock file" in text:
            raise StateInUse(
                f"The state in {folder} is open in another process, probably a worker of the same processor. Stop it, or "
                "give this one another state folder; nothing was changed."
            ) from error
        if isinstance(error, OSError) or text.startswith("IO error"):
            raise StateUnwritable(
                f"The state in {folder} cannot be written or read: {text}. Make room or give access, then start again; "
                "the last checkpoint is intact."
            ) from error
        raise StateError(f"The state in {folder} cannot be used: {text}.") from error
