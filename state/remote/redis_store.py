"""Shards in Redis: hashes by slot. All keys of a shard have one hash tag, so a cluster keeps them on one node.

    penstock:{<processor>:<bucket>}:shard       format, shape, owner, epoch, saves, position, outbox
                                   :wholes      encoded values
                                   :sums, :fractions, :observed   numbers that Redis adds up
                                   :extremes    the length of a rank, the rank, the encoded value
                                   :partials    their number, then each with a length prefix
                                   :staged:<…>  a large save in progress; it expires

A save is one script, so it is atomic. Data too large for one command is first sent to a list with a unique name, from which the script
takes it.

Durability depends on Redis's settings. For durable saves, set `appendonly yes` with `appendfsync always` (`everysec`, the default, may lose
a second in a crash). A replica that takes over may lack the last saves; `min-replicas-to-write` limits their
number. Position and state are lost together. The number of saves shows the loss: the owner opens the shard again and continues from the
older position. `maxmemory-policy noeviction` is required: Redis must not drop one shard to make room for another.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from ...processors.shard import decode_position, encode_position
from ..protocols import ShardIdentity
from . import redis_scripts as scripts
from .addresses import StoreAddress
from .protocols import (
    FORMAT,
    NO_VERSION,
    Claim,
    Parts,
    ShardVersion,
    SlotChanges,
    StoredShard,
    Total,
    TotalRow,
    UnmergedPartials,
    Write,
)
from .redis_connection import RedisConnection, warn_unless_durable
from .state_shapes import foreign_format, foreign_shape

_HASHES = ("wholes", "sums", "fractions", "observed", "extremes", "partials")
_HASHES_WITH_ALL_SLOTS = ("wholes", "sums", "extremes", "partials")
_CHUNK_BYTES = 2**20
_COMMAND_LIMIT_BYTES = 16 * 2**20
_STAGED_EXPIRY_S = 3600
_LENGTH = struct.Struct(">I")


class RedisStore:
    """The shards in one Redis.

    Args:
        address: its address.
    """

    def __init__(self, address: StoreAddress) -> None:
        self._connection = RedisConnection(address)
        self._address = address
        self._is_durability_checked = False
        self._checking = threading.Lock()

    def claim(self, identity: ShardIdentity) -> Claim:
        """Become the owner."""
        self._check_durability()
        shard = StoredShard(identity.processor, identity.bucket)
        owner = uuid4().hex
        epoch, *found = self._connection.run(scripts.CLAIM, [_key(shard, "shard")], [FORMAT, identity.shape, owner])
        if epoch == 0:
            format_, shape = (field.decode() for field in found)
            if format_ != str(FORMAT):
                raise foreign_format(self._address, shard, format_)
            raise foreign_shape(self._address, shard, shape, identity.shape)
        saves, position = found
        return Claim(ShardVersion(owner, epoch, saves), decode_position(position))

    def commit(self, shard: StoredShard, version: ShardVersion, write: Write) -> ShardVersion:
        """Write if the shard has the expected version. Return its version before the write."""
        chunks = list(_chunks(write.changes))
        staged = _key(shard, f"staged:{uuid4().hex}")
        staged_chunks = 0
        if sum(map(len, chunks)) > _COMMAND_LIMIT_BYTES:
            self._stage(staged, chunks)
            staged_chunks, chunks = len(chunks), []
        outbox = b"keep" if write.outbox is None else b"=" + write.outbox
        keys = [_key(shard, "shard"), *_keys(shard), staged]
        owner, epoch, saves = self._connection.run(
            scripts.COMMIT,
            keys,
            [*version, encode_position(write.position), outbox, write.shape or "", staged_chunks, *chunks],
        )
        return ShardVersion(owner.decode(), epoch, saves)

    def version(self, shard: StoredShard) -> ShardVersion:
        """Return the shard's current version."""
        with self._connection.client() as client:
            owner, epoch, saves = client.hmget(_key(shard, "shard"), ["owner", "epoch", "saves"])
        return NO_VERSION if owner is None else ShardVersion(owner.decode(), int(epoch), int(saves or 0))

    def _stage(self, staged: str, chunks: Sequence[bytes]) -> None:
        with self._connection.client() as client:
            for chunk in chunks:
                client.rpush(staged, chunk)
                # With every chunk, so that the list expires after a crash.
                client.expire(staged, _STAGED_EXPIRY_S)

    def parts(self, shard: StoredShard, slots: Sequence[bytes]) -> list[Parts]:
        """Return the parts of each slot."""
        columns = self._connection.run(scripts.PARTS, _keys(shard), [_chunk(slots)])
        nothing = [None] * len(slots)
        return [_parts(row) for row in zip(*(column or nothing for column in columns), strict=True)]

    def outbox(self, shard: StoredShard) -> bytes:
        """Return the outbox."""
        with self._connection.client() as client:
            found: bytes | None = client.hget(_key(shard, "shard"), "outbox")
        return found or b""

    def unmerged_partials(self, shard: StoredShard, partial_limit: int) -> Iterator[Sequence[UnmergedPartials]]:
        """Yield the slots with more than `partial_limit` partials, unordered."""
        for found in self._scanned(scripts.UNMERGED, _key(shard, "partials"), partial_limit):
            yield [
                UnmergedPartials(slot, 0, _unframed(kept)) for slot, kept in zip(found[::2], found[1::2], strict=True)
            ]

    def replace(self, shard: StoredShard, merged: Sequence[tuple[UnmergedPartials, bytes]]) -> int:
        """Replace the partials of each slot by one, unless they have changed."""
        items: list[bytes] = []
        for unmerged, partial in merged:
            framed = b"".join(map(_framed, unmerged.partials))
            digest = hashlib.sha1(framed, usedforsecurity=False).hexdigest()
            items += [
                unmerged.slot,
                b"%d" % len(unmerged.partials),
                b"%d" % len(framed),
                digest.encode(),
                _framed(partial),
            ]
        replaced: int = self._connection.run(scripts.REPLACE, [_key(shard, "partials")], [_chunk(items)])
        return replaced

    def shape(self, shard: StoredShard) -> str | None:
        """Return the type of the state."""
        with self._connection.client() as client:
            format_, shape = client.hmget(_key(shard, "shard"), "format", "shape")
        if shape is None:
            return None
        if format_ != str(FORMAT).encode():
            raise foreign_format(self._address, shard, format_.decode())
        return str(shape.decode())

    def slots(self, shard: StoredShard, key: bytes | None, limit: int | None) -> list[bytes]:
        """Return the slots of a key, or of every key. A key needs a scan of the whole shard, some thousand slots at a time."""
        found: dict[bytes, None] = {}
        asked = ("any", b"") if key is None else ("key", key)
        for hash_ in _HASHES_WITH_ALL_SLOTS:
            for names in self._scanned(scripts.SLOTS, _key(shard, hash_), *asked):
                found.update(dict.fromkeys(names))
                if limit is not None and len(found) >= limit:
                    return list(found)[:limit]
        return sorted(found)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _scanned(self, script: str, key: str, *arguments: Any) -> Iterator[list[bytes]]:
        cursor: Any = b"0"
        while True:
            cursor, found = self._connection.run(script, [key], [cursor, *arguments])
            yield found
            if cursor == b"0":
                return

    def _check_durability(self) -> None:
        with self._checking:
            if not self._is_durability_checked:
                warn_unless_durable(self._connection)
                self._is_durability_checked = True


def _key(shard: StoredShard, name: str) -> str:
    # A brace in a processor's name would end the hash tag.
    return f"penstock:{{{quote(shard.processor, safe='')}:{shard.bucket}}}:{name}"


def _keys(shard: StoredShard) -> list[str]:
    return [_key(shard, name) for name in _HASHES]


def _chunks(changes: SlotChanges) -> Iterator[bytes]:
    """Yield the changes as chunks for the script: each of one kind, and about a megabyte at most."""
    yield from _of_kind(b"removed", ((slot,) for slot in changes.removed))
    yield from _of_kind(b"wholes", changes.wholes)
    yield from _of_kind(b"totals", map(_total_items, changes.totals))
    yield from _of_kind(b"extremes", changes.extremes)
    yield from _of_kind(b"partials", ((slot, _framed(encoded)) for slot, encoded in changes.partials))


def _of_kind(kind: bytes, rows: Iterable[Sequence[bytes]]) -> Iterator[bytes]:
    items = [kind]
    size = 0
    for row in rows:
        items.extend(row)
        size += sum(map(len, row))
        if size >= _CHUNK_BYTES:
            yield _chunk(items)
            items, size = [kind], 0
    if len(items) > 1:
        yield _chunk(items)


def _chunk(items: Iterable[bytes]) -> bytes:
    return b"".join(map(_framed, items))


def _total_items(row: TotalRow) -> tuple[bytes, ...]:
    # As text: Lua's numbers are doubles, which would round large integers.
    whole, fraction, observed = row.total
    added = b"" if fraction is None else b"%.17g" % fraction
    return (row.slot, b"%d" % whole, added, b"%d" % observed, _framed(row.encoded))


def _parts(row: Sequence[bytes | None]) -> Parts:
    whole, sum_, fraction, observed, extreme, partials = row
    total = None if sum_ is None else Total(int(sum_), float(fraction) if fraction else None, int(observed or 0))
    largest = None if extreme is None else extreme[4 + _LENGTH.unpack_from(extreme)[0] :]
    return Parts(whole, total, largest, () if partials is None else _unframed(partials))


def _framed(partial: bytes) -> bytes:
    return _LENGTH.pack(len(partial)) + partial


def _unframed(kept: bytes) -> list[bytes]:
    partials = []
    at = _LENGTH.size  # after their number
    while at < len(kept):
        end = at + 4 + _LENGTH.unpack_from(kept, at)[0]
        partials.append(kept[at + 4 : end])
        at = end
    return partials
