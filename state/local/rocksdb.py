"""The RocksDB database of a shard's state, with column families for values, positions, a prepared delta and identity."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice, takewhile
from math import inf
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
    WriteBufferManager,
    WriteOptions,
)

from ...processors import file_remedy
from ...processors.keyed_state import Changes
from ...processors.shard import StatePosition, decode_position, encode_position
from ..errors import ForeignState, StateDamaged, StateError, StateInUse, StateUnwritable
from ..files import make_private_folder
from ..protocols import Delta, ShardIdentity

FORMAT = 3
"""The version of the layout below; others are refused."""

_POSITION = "position"
_PREPARED = "prepared"
_IDENTITY = "identity"
_FAMILIES = (_POSITION, _PREPARED, _IDENTITY)
_IDENTITY_KEY = b"identity"
_POSITION_KEY = b"position"
_WRITE_BUFFER_BYTES = 32 * 2**20
_SMALL_WRITE_BUFFER_BYTES = 4 * 2**20
"""For families with a single value, of which the buffer keeps former versions."""
_LOG_BYTES = 64 * 2**20
"""The size of a log of writes after which its oldest families go to files. It is read again after a crash."""
_ARENA_BLOCK_BYTES = 64 * 2**10
_BRIEF_BYTES = 32 * 2**20
_COPY_BATCH = 50_000

PART_BYTES = 64 * 2**20
"""The size of a part of a prepared delta. RocksDB accepts values below 4 GiB."""

_encode_delta = msgspec.msgpack.Encoder().encode
_decode_delta = msgspec.msgpack.Decoder(Delta).decode


MIN_FILES = 20
"""The fewest open files of a database: RocksDB accepts no lower limit. Nine of them are no tables."""
FILES_ADVICE = (
    "Raise the limit of open files before the start, such as `ulimit -n 65536` or LimitNOFILE=65536 in a systemd unit. Or run more workers, which share the "
    "buckets. A worker needs 25 for each bucket with a local state."
)
_FILES_SHARE = 0.8
"""The share of the process's limit of open files for databases; the rest is for connections and everything else."""
_ALWAYS_ENOUGH = 4_096
"""From this many files on, a database needs no limit: tables have 64 MiB and more. Without a limit, it looks up no open tables."""


def files_limit() -> float:
    """Return how many files this process may open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return inf if limit == resource.RLIM_INFINITY else limit


def files_for(databases: int) -> int:
    """Return how many files each of some databases of this process may keep open."""
    share = files_limit() * _FILES_SHARE / databases
    return max(int(min(share, _ALWAYS_ENOUGH)), MIN_FILES)


class DatabaseMemory:
    """The memory that open databases share: for blocks that were read, indexes and filters, and writes that are not in files yet.

    Without it, each database would keep up to 32 MiB of writes, and a worker with 64 shards 2 GiB.

    Args:
        size_bytes: all of it. Writes take up to half of it, and then go to files.
    """

    def __init__(self, size_bytes: int) -> None:
        self.blocks = Cache(size_bytes)
        self.writes = WriteBufferManager.new_write_buffer_manager_with_cache(size_bytes // 2, False, self.blocks)


class RocksShardState:
    """An open RocksDB database."""

    def __init__(self, database: Rdict, folder: Path) -> None:
        self._folder = folder
        self._database: Rdict | None = database
        # Held as long as the database: the end of such an object flushes the family, which costs more than a checkpoint's other writes.
        self._families = {name: database.get_column_family(name) for name in _FAMILIES}
        self._synced = WriteOptions()
        self._synced.sync = True
        self._unsynced = WriteOptions()

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self._folder

    def identity(self) -> ShardIdentity | None:
        """Return the identity of the state; None if it is new.

        Raises:
            ForeignState: it has another format.
        """
        stored = self._get(_IDENTITY, _IDENTITY_KEY)
        if stored is None:
            return None
        fields = json.loads(stored)
        if fields.pop("format") != FORMAT:
            raise ForeignState(
                f"The state in {self._folder} has format {json.loads(stored)['format']}, but this Penstock uses format {FORMAT}. Nothing was "
                "changed. Run the version that wrote it, or use another state folder."
            )
        return ShardIdentity(**fields)

    def claim(self, identity: ShardIdentity) -> None:
        """Check the identity of the state, or set the identity of a new state."""
        stored = self.identity()
        if stored is None:
            batch = WriteBatch(raw_mode=True)
            batch.put(_IDENTITY_KEY, _encode_identity(identity), self._handle(_IDENTITY))
            self._write(batch, self._synced)
        elif stored != identity:
            raise ForeignState(
                f"The state in {self._folder} belongs to another shard or type: it is {stored}, expected {identity}. Nothing was "
                "changed. Run its own processor, or give the new one another name or state folder. If only the type of the state has "
                "changed, `penstock state migrate` converts it."
            )

    def reassign(self, identity: ShardIdentity, changes: Changes, position: StatePosition) -> None:
        """Give the state to another shard, with a new position and some changed values, all at once."""
        batch = WriteBatch(raw_mode=True)
        _put_changes(batch, changes)
        self._put_position(batch, position)
        batch.put(_IDENTITY_KEY, _encode_identity(identity), self._handle(_IDENTITY))
        self._write(batch, self._synced)

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key; None without one."""
        if not keys:
            return []
        database = self._opened
        try:  # in place of `translated_errors`, which would take as long as the read of a key
            return cast("list[bytes | None]", database.get(list(keys)))
        except Exception as error:
            raise _translated(error, self._folder) from error

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first saved keys of a range, with their values, in key order."""
        return list(islice(takewhile(lambda item: item[0] < end, self.items(start)), limit))

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the saved items in key order, from a key on."""
        with translated_errors(self._folder):
            yield from cast("Iterator[tuple[bytes, bytes]]", self._opened.items(from_key=start))

    def position(self) -> StatePosition:
        """Return the saved position; empty before the first save."""
        stored = self._get(_POSITION, _POSITION_KEY)
        return StatePosition() if stored is None else decode_position(stored)

    def estimated_keys(self) -> int:
        """Return the approximate number of keys, without a scan."""
        with translated_errors(self._folder):
            return self._opened.property_int_value("rocksdb.estimate-num-keys") or 0

    def size_bytes(self) -> int:
        """Return the size of its sorted files, without a scan. Recent changes are in its log, which stays below 64 MiB."""
        with translated_errors(self._folder):
            return self._opened.property_int_value("rocksdb.total-sst-files-size") or 0

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
        """Store a delta beside the state."""
        encoded, batch = _encode_delta(delta), WriteBatch(raw_mode=True)
        self._delete_prepared(batch, len(self._prepared_parts()))
        for number, begin in enumerate(range(0, len(encoded), PART_BYTES)):
            batch.put(_delta_key(number), encoded[begin : begin + PART_BYTES], self._handle(_PREPARED))
        self._write(batch, self._synced)

    def prepared(self) -> Delta | None:
        """Return the prepared delta that is not decided yet."""
        parts = self._prepared_parts()
        return _decode_delta(b"".join(parts)) if parts else None

    def _prepared_parts(self) -> list[bytes]:
        parts: list[bytes] = []
        while (part := self._get(_PREPARED, _delta_key(len(parts)))) is not None:
            parts.append(part)
        return parts

    def _delete_prepared(self, batch: WriteBatch, parts: int) -> None:
        for number in range(parts):
            batch.delete(_delta_key(number), self._handle(_PREPARED))

    def apply(self) -> None:
        """Apply the prepared delta to the state, with its position."""
        parts = self._prepared_parts()
        if parts:
            delta = _decode_delta(b"".join(parts))
            batch = WriteBatch(raw_mode=True)
            _put_changes(batch, delta.changes)
            self._put_position(batch, self.position().updated(delta.after))
            self._delete_prepared(batch, len(parts))
            # Not synced: the prepared delta is durable, and is applied again if this write is lost.
            self._write(batch, self._unsynced)

    def discard(self) -> None:
        """Drop the prepared delta."""
        batch = WriteBatch(raw_mode=True)
        self._delete_prepared(batch, len(self._prepared_parts()))
        self._write(batch, self._synced)

    def clear(self) -> None:
        """Delete all values, and the position except for its generation."""
        batch = WriteBatch(raw_mode=True)
        self._put_position(batch, StatePosition(generation=self.position().generation))
        self._write(batch, self._synced)
        while keys := [key for key, _ in islice(self.items(), _COPY_BATCH)]:
            self.save(dict.fromkeys(keys))

    def snapshot(self, target: Path) -> None:
        """Write the current state to a new folder on the same disk, by hard links; takes at most a tenth of a second.

        The result equals a state after a crash, and opens like one.
        """
        with translated_errors(self._folder):
            make_private_folder(target.parent)
            Checkpoint(self._opened).create_checkpoint(str(target))

    def copy_to(self, target: Path) -> None:
        """Write the state to a new folder, value by value."""
        copy = open_database(target, DatabaseMemory(_BRIEF_BYTES))
        try:
            with translated_errors(target):
                for name in (None, *_FAMILIES):
                    _copy_family(self._opened, copy, name)
                copy.flush()
        finally:
            copy.close()

    def close(self) -> None:
        """Close the database and release its lock."""
        if self._database is not None:
            database, self._database = self._database, None
            with translated_errors(self._folder):
                self._families.clear()  # an open family would keep the lock
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
            raise StateError(f"The state in {self._folder} is closed already. Nothing was written. Open it again.")
        return self._database

    def _get(self, family: str, key: bytes) -> bytes | None:
        self._opened  # noqa: B018 - raises after `close`
        with translated_errors(self._folder):
            return cast("bytes | None", self._families[family].get(key))


def _options(memory: DatabaseMemory, max_files: int, write_buffer_bytes: int, *, creates: bool) -> Options:
    options = Options(raw_mode=True)
    if max_files < _ALWAYS_ENOUGH:
        options.set_max_open_files(max_files)
        options.set_table_cache_num_shard_bits(0)  # each of 64 parts of the cache would keep a file more
    options.create_if_missing(creates)
    options.create_missing_column_families(creates)
    options.set_write_buffer_size(write_buffer_bytes)
    options.set_max_total_wal_size(_LOG_BYTES)
    # The default of 1 MiB would fill the memory of many shards with families that contain a single value.
    options.set_arena_block_size(_ARENA_BLOCK_BYTES)
    options.set_write_buffer_manager(memory.writes)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_log_file_size(2**20)
    options.set_keep_log_file_num(2)
    tables = BlockBasedOptions()
    tables.set_block_cache(memory.blocks)
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
    tables.set_bloom_filter(10, block_based=False)
    options.set_block_based_table_factory(tables)
    return options


def open_database(
    folder: Path, memory: DatabaseMemory, max_files: int | None = None, *, is_read_only: bool = False
) -> Rdict:
    """Open a database with its column families; create a missing one.

    Args:
        folder: its folder.
        memory: the memory that it shares.
        max_files: the most files that it keeps open, `MIN_FILES` or more; None for all that the process may open for databases.
        is_read_only: whether to open it for reading, without its lock. A missing one is an error then.

    Raises:
        StateInUse: another process has opened it.
        StateDamaged: RocksDB's checksums do not match.
        StateUnwritable: the disk refuses access.
    """
    with translated_errors(folder):
        make_private_folder(folder)
        access = AccessType.read_only() if is_read_only else AccessType.read_write()
        files = files_for(1) if max_files is None else max_files
        options = _options(memory, files, _WRITE_BUFFER_BYTES, creates=not is_read_only)
        of_families = _options(memory, files, _SMALL_WRITE_BUFFER_BYTES, creates=not is_read_only)
        return Rdict(str(folder), options, dict.fromkeys(_FAMILIES, of_families), access_type=access)


@contextmanager
def opened_read_only(folder: Path) -> Iterator[RocksShardState]:
    """Open a state read-only as of now. Its owner may have it open, and is not disturbed."""
    state = RocksShardState(open_database(folder, DatabaseMemory(_BRIEF_BYTES), is_read_only=True), folder)
    try:
        yield state
    finally:
        state.close()


def drop_folder(folder: Path) -> None:
    """Delete a database that is not open."""
    with translated_errors(folder):
        shutil.rmtree(folder)


def _encode_identity(identity: ShardIdentity) -> bytes:
    return json.dumps({"format": FORMAT, **asdict(identity)}, sort_keys=True).encode()


def _delta_key(part: int) -> bytes:
    """Return the key of a part of the prepared delta."""
    return b"delta" + (part.to_bytes(4, "big") if part else b"")


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


_FOLLOWS_AN_ERROR = "IO error: Writer has previous error"
"""How RocksDB rejects every write after one that failed."""


@contextmanager
def translated_errors(folder: Path) -> Iterator[None]:
    """Translate errors of RocksDB, which are plain exceptions with a text, and of the operating system."""
    try:
        yield
    except StateError:
        raise
    except Exception as error:
        raise _translated(error, folder) from error


def _translated(error: Exception, folder: Path) -> StateError:
    text = str(error)
    if "lock hold" in text or "While lock file" in text:
        return StateInUse(
            f"Another process has opened the state in {folder}, probably a worker of the same processor. Nothing was changed. Stop it, or "
            "use another state folder."
        )
    if text.startswith("Corruption"):
        return StateDamaged(
            f"The state in {folder} is damaged: {text}. It was not used or changed. Move the folder away; the worker then restores the "
            "newest intact backup, or rebuilds the state from Kafka."
        )
    if text.startswith(_FOLLOWS_AN_ERROR):
        return StateUnwritable(
            f"The state in {folder} cannot be written after an earlier error. The last checkpoint is intact."
        )
    if "Too many open files" in text:
        return StateUnwritable(
            f"The state in {folder} cannot be opened: {text}. The last checkpoint is intact. {FILES_ADVICE}"
        )
    if isinstance(error, OSError) or text.startswith("IO error"):
        return StateUnwritable(
            f"The state in {folder} cannot be read or written: {text}. The last checkpoint is intact. {file_remedy(error)} Then start again."
        )
    return StateError(
        f"The state in {folder} cannot be used: {text}. The last checkpoint is intact. Start again, or restore a backup."
    )
