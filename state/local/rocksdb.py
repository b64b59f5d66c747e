"""A shard's state in RocksDB: one database a shard, with column families for state, positions, a prepared delta and identity."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, cast

import msgspec
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from ...processors.keyed_state.changes import Changes
from ...processors.shard.position import StatePosition, decode_position, encode_position
from ..errors import ForeignState, StateDamaged, StateError, StateInUse, StateUnwritable
from ..protocols import Delta, ShardIdentity

FORMAT = 3
"""The version of the layout below; another one is refused."""

_POSITION = "position"
_PREPARED = "prepared"
_IDENTITY = "identity"
_FAMILIES = (_POSITION, _PREPARED, _IDENTITY)
_IDENTITY_KEY = b"identity"
_DELTA_KEY = b"delta"
_POSITION_KEY = b"position"
_CACHE_BYTES = 256 * 2**20
_WRITE_BUFFER_BYTES = 32 * 2**20
_COPY_BATCH = 50_000

_encode_delta = msgspec.msgpack.Encoder().encode
_decode_delta = msgspec.msgpack.Decoder(Delta).decode


class RocksShardState:
    """One open RocksDB."""

    def __init__(self, database: Rdict, folder: Path) -> None:
        self._folder = folder
        self._database: Rdict | None = database
        self._synced = WriteOptions()
        self._synced.sync = True
        self._unsynced = WriteOptions()

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._folder

    def identity(self) -> ShardIdentity | None:
        """Return whose state it is; None where it is new.

        Raises:
            ForeignState: it was written in another format.
        """
        with self._family(_IDENTITY) as family, translated_errors(self._folder):
            stored = cast("bytes | None", family.get(_IDENTITY_KEY))
        if stored is None:
            return None
        fields = json.loads(stored)
        if fields.pop("format") != FORMAT:
            raise ForeignState(
                f"The state in {self._folder} is in format {json.loads(stored)['format']}; this Penstock reads and writes format "
                f"{FORMAT}. Nothing was changed. Run the version that wrote it, or give this one another state folder."
            )
        return ShardIdentity(**fields)

    def claim(self, identity: ShardIdentity) -> None:
        """Check whose state it is, or make it ours where it is new."""
        theirs = self.identity()
        if theirs is None:
            ours = json.dumps({"format": FORMAT, **asdict(identity)}, sort_keys=True)
            with self._family(_IDENTITY) as family, translated_errors(self._folder):
                family.put(_IDENTITY_KEY, ours.encode(), self._synced)
        elif theirs != identity:
            raise ForeignState(
                f"The state in {self._folder} is not this shard's: it is {theirs}, expected was {identity}. Nothing was "
                "changed. Run the processor that it belongs to, or give the new one another name or another state folder; where only the "
                "type of its state has changed, `penstock state migrate` changes what is saved."
            )

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key, None where there is none."""
        if not keys:
            return []
        with translated_errors(self._folder):
            return cast("list[bytes | None]", self._opened.get(list(keys)))

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first saved keys of a range, with their values, in order of keys."""
        return list(islice(takewhile(lambda item: item[0] < end, self.items(start)), limit))

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Return what is saved, in order of keys, from a key on."""
        with translated_errors(self._folder):
            yield from cast("Iterator[tuple[bytes, bytes]]", self._opened.items(from_key=start))

    def position(self) -> StatePosition:
        """Return the saved position; empty before the first save."""
        with self._family(_POSITION) as family, translated_errors(self._folder):
            stored = cast("bytes | None", family.get(_POSITION_KEY))
        return StatePosition() if stored is None else decode_position(stored)

    def estimated_keys(self) -> int:
        """Return about how many keys have a value, at once."""
        with translated_errors(self._folder):
            return self._opened.property_int_value("rocksdb.estimate-num-keys") or 0

    def save(self, changes: Changes) -> None:
        """Save changes of state, all or none."""
        if changes:
            batch = WriteBatch(raw_mode=True)
            _put_changes(batch, changes)
            self._write(batch, self._synced)

    def save_position(self, position: StatePosition) -> None:
        """Save the position that the state reflects."""
        batch = WriteBatch(raw_mode=True)
        self._put_position(batch, self.position().updated(position))
        self._write(batch, self._synced)

    def save_together(self, changes: Changes, position: StatePosition) -> None:
        """Save changes and the position that reflects them as one."""
        batch = WriteBatch(raw_mode=True)
        _put_changes(batch, changes)
        self._put_position(batch, self.position().updated(position))
        self._write(batch, self._synced)

    def prepare(self, delta: Delta) -> None:
        """Keep a delta beside the state."""
        batch = WriteBatch(raw_mode=True)
        batch.put(_DELTA_KEY, _encode_delta(delta), self._handle(_PREPARED))
        self._write(batch, self._synced)

    def prepared(self) -> Delta | None:
        """Return the delta that waits for its decision."""
        with self._family(_PREPARED) as family, translated_errors(self._folder):
            stored = cast("bytes | None", family.get(_DELTA_KEY))
        return None if stored is None else _decode_delta(stored)

    def apply(self) -> None:
        """Make the prepared delta part of the state, with its position."""
        delta = self.prepared()
        if delta is not None:
            batch = WriteBatch(raw_mode=True)
            _put_changes(batch, delta.changes)
            self._put_position(batch, self.position().updated(delta.after))
            batch.delete(_DELTA_KEY, self._handle(_PREPARED))
            # Not synced: the delta was, and until this write is durable the delta is still there to be applied again.
            self._write(batch, self._unsynced)

    def discard(self) -> None:
        """Drop the prepared delta."""
        batch = WriteBatch(raw_mode=True)
        batch.delete(_DELTA_KEY, self._handle(_PREPARED))
        self._write(batch, self._synced)

    def clear(self) -> None:
        """Drop all values, and of the position all but the maintenance number."""
        batch = WriteBatch(raw_mode=True)
        self._put_position(batch, StatePosition(maintenance_number=self.position().maintenance_number))
        self._write(batch, self._synced)
        while keys := [key for key, _ in islice(self.items(), _COPY_BATCH)]:
            self.save(dict.fromkeys(keys))

    def snapshot(self, target: Path) -> None:
        """Write the state as of now to a new folder on the same disk, by hard links; takes a tenth of a second, not more.

        What it holds is a state that a crash could have left: it is opened as this one is.
        """
        with translated_errors(self._folder):
            target.parent.mkdir(parents=True, exist_ok=True)
            Checkpoint(self._opened).create_checkpoint(str(target))

    def copy_to(self, target: Path) -> None:
        """Write the state to a new folder, value by value."""
        copy = open_database(target, database_options(Cache(_CACHE_BYTES)))
        try:
            with translated_errors(target):
                for name in (None, *_FAMILIES):
                    _copy_family(self._opened, copy, name)
                copy.flush()
        finally:
            copy.close()

    def close(self) -> None:
        """Let go of the database and its lock."""
        if self._database is not None:
            database, self._database = self._database, None
            with translated_errors(self._folder):
                database.close()

    def _write(self, batch: WriteBatch, options: WriteOptions) -> None:
        with translated_errors(self._folder):
            self._opened.write(batch, options)

    def _put_position(self, batch: WriteBatch, position: StatePosition) -> None:
        batch.put(_POSITION_KEY, encode_position(position), self._handle(_POSITION))

    def _handle(self, name: str) -> Any:
        return self._opened.get_column_family_handle(name)

    @property
    def _opened(self) -> Rdict:
        if self._database is None:
            raise StateError(f"The state in {self._folder} was closed already.")
        return self._database

    @contextmanager
    def _family(self, name: str) -> Iterator[Rdict]:
        # Held no longer than needed: a handle that is still alive would keep the lock after `close`.
        yield self._opened.get_column_family(name)


def database_options(cache: Cache) -> Options:
    """Return how our databases are opened."""
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


def open_database(folder: Path, options: Options, access: AccessType | None = None) -> Rdict:
    """Open a database, with our column families.

    Raises:
        StateInUse: another process has it open.
        StateDamaged: RocksDB's own checksums do not fit.
        StateUnwritable: the disk refuses.
    """
    with translated_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        families = dict.fromkeys(_FAMILIES, options)
        return Rdict(str(folder), options, families, access_type=access or AccessType.read_write())


@contextmanager
def opened_read_only(folder: Path) -> Iterator[RocksShardState]:
    """Give a look at a state that its owner may have open: as it was at this moment, without disturbing the owner."""
    options = database_options(Cache(_CACHE_BYTES // 8))
    options.create_if_missing(False)
    options.create_missing_column_families(False)
    state = RocksShardState(open_database(folder, options, AccessType.read_only()), folder)
    try:
        yield state
    finally:
        state.close()


def drop_folder(folder: Path) -> None:
    """Remove a database that nobody has open."""
    with translated_errors(folder):
        shutil.rmtree(folder)


def _put_changes(batch: WriteBatch, changes: Changes) -> None:
    put, delete = batch.put, batch.delete
    for key, value in changes.items():
        if value is None:
            delete(key)
        else:
            put(key, value)


def _copy_family(source: Rdict, target: Rdict, name: str | None) -> None:
    handle = target.get_column_family_handle(name) if name else None
    batch = WriteBatch(raw_mode=True)
    for key, value in (source.get_column_family(name) if name else source).items():
        batch.put(key, value, handle)
        if batch.len() >= _COPY_BATCH:
            target.write(batch)
            batch = WriteBatch(raw_mode=True)
    target.write(batch)


@contextmanager
def translated_errors(folder: Path) -> Iterator[None]:
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
        if text.startswith("Corruption"):
            raise StateDamaged(
                f"The state in {folder} is damaged: {text}. It was not used and nothing was changed. Put the folder away (do not "
                "mend it): the worker then restores the newest good backup, or rebuilds the state from the bus."
            ) from error
        if isinstance(error, OSError) or text.startswith("IO error"):
            raise StateUnwritable(
                f"The state in {folder} cannot be written or read: {text}. Make room or give access, then start again; "
                "the last checkpoint is intact."
            ) from error
        raise StateError(f"The state in {folder} cannot be used: {text}.") from error
