"""Shards in Redis: hashes by slot. All keys of a shard have one hash tag, so a cluster keeps them on one node.

    penstock:{<processor>:<bucket>}:shard       format, shape, owner, epoch, saves, position, outbox
                                   :wholes      encoded values
                                   :sums, :fractions, :observed   numbers that Redis adds up
                                   :extremes    the length of a rank, the rank, the encoded value
                                   :partials    their number, then each with a length prefix
                                   :staged:<…>  a large save in progress; it expires by itself

A save is one script, so it is atomic. Data too large for one command is first sent to a list with a unique name, from which the script
takes it.

Durability depends on Redis's settings. For lasting saves, set `appendonly yes` with `appendfsync always` (`everysec`, the default, may lose
a second in a crash). A replica that takes over may lack the last saves, whatever the client does; `min-replicas-to-write` limits their
number. Position and state are lost together, and the number of saves reveals it: the owner opens the shard again and continues from the
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

from ...processors.shard.position import decode_position, encode_position
from ..protocols import ShardIdentity
from . import redis_scripts as scripts
from .addresses import Address
from .protocols import FORMAT, UNKNOWN, Claim, Crowd, Parts, Shard, SlotChanges, StoredShard, Total, TotalRow, Write
from .redis_connection import RedisConnection, warn_unless_durable
from .state_shapes import foreign_format, foreign_shape

_HASHES = ("wholes", "sums", "fractions", "observed", "extremes", "partials")
_MAY_NAME_SLOTS = ("wholes", "sums", "extremes", "partials")
_CHUNK_BYTES = 2**20
_SENT_AT_ONCE_BYTES = 16 * 2**20
_STAGED_FOR_S = 3600
_LENGTH = struct.Struct(">I")


class RedisStore:
    """All shards of one Redis.

    Args:
        address: its address.
    """

    def __init__(self, address: Address) -> None:
        self._connection = RedisConnection(address)
        self._address = address
        self._asked = False
        self._asking = threading.Lock()

    def claim(self, identity: ShardIdentity) -> Claim:
        """Become the owner."""
        self._ask_for_durability()
        shard = Shard(identity.processor, identity.bucket)
        owner = uuid4().hex
        epoch, *found = self._connection.run(scripts.CLAIM, [_key(shard, "shard")], [FORMAT, identity.shape, owner])
        if epoch == 0:
            format_, shape = (field.decode() for field in found)
            if format_ != str(FORMAT):
                raise foreign_format(self._address, shard, format_)
            raise foreign_shape(self._address, shard, shape, identity.shape)
        saves, position = found
        return Claim(StoredShard(owner, epoch, saves), decode_position(position))

    def commit(self, shard: Shard, standing: StoredShard, write: Write) -> StoredShard:
        """Write if the shard has the expected status. Return its status before."""
        chunks = list(_chunks(write.changes))
        staged = _key(shard, f"staged:{uuid4().hex}")
        ahead = 0
        if sum(map(len, chunks)) > _SENT_AT_ONCE_BYTES:
            self._send_ahead(staged, chunks)
            ahead, chunks = len(chunks), []
        outbox = b"keep" if write.outbox is None else b"=" + write.outbox
        keys = [_key(shard, "shard"), *_keys(shard), staged]
        owner, epoch, saves = self._connection.run(
            scripts.COMMIT,
            keys,
            [*standing, encode_position(write.position), outbox, write.shape or "", ahead, *chunks],
        )
        return StoredShard(owner.decode(), epoch, saves)

    def stored(self, shard: Shard) -> StoredShard:
        """Return the shard's current owner and number of saves."""
        with self._connection.client() as client:
            owner, epoch, saves = client.hmget(_key(shard, "shard"), ["owner", "epoch", "saves"])
        return UNKNOWN if owner is None else StoredShard(owner.decode(), int(epoch), int(saves or 0))

    def _send_ahead(self, staged: str, chunks: Sequence[bytes]) -> None:
        with self._connection.client() as client:
            for chunk in chunks:
                client.rpush(staged, chunk)
                # At every step, so that a crash leaves nothing behind for ever.
                client.expire(staged, _STAGED_FOR_S)

    def parts(self, shard: Shard, slots: Sequence[bytes]) -> list[Parts]:
        """Return the parts of each slot."""
        columns = self._connection.run(scripts.PARTS, _keys(shard), [_chunk(slots)])
        nothing = [None] * len(slots)
        return [_parts(row) for row in zip(*(column or nothing for column in columns), strict=True)]

    def outbox(self, shard: Shard) -> bytes:
        """Return the outbox."""
        with self._connection.client() as client:
            found: bytes | None = client.hget(_key(shard, "shard"), "outbox")
        return found or b""

    def crowds(self, shard: Shard, more_than: int) -> Iterator[Sequence[Crowd]]:
        """Yield the slots with more than `more_than` partials, unordered."""
        for found in self._scanned(scripts.CROWDS, _key(shard, "partials"), more_than):
            yield [Crowd(slot, 0, _unframed(kept)) for slot, kept in zip(found[::2], found[1::2], strict=True)]

    def replace(self, shard: Shard, merged: Sequence[tuple[Crowd, bytes]]) -> int:
        """Replace each crowd that has not changed by one partial."""
        crowds: list[bytes] = []
        for crowd, partial in merged:
            framed = b"".join(map(_framed, crowd.partials))
            digest = hashlib.sha1(framed, usedforsecurity=False).hexdigest()
            crowds += [crowd.slot, b"%d" % len(crowd.partials), b"%d" % len(framed), digest.encode(), _framed(partial)]
        replaced: int = self._connection.run(scripts.REPLACE, [_key(shard, "partials")], [_chunk(crowds)])
        return replaced

    def shape(self, shard: Shard) -> str | None:
        """Return the type of the state."""
        with self._connection.client() as client:
            format_, shape = client.hmget(_key(shard, "shard"), "format", "shape")
        if shape is None:
            return None
        if format_ != str(FORMAT).encode():
            raise foreign_format(self._address, shard, format_.decode())
        return str(shape.decode())

    def slots(self, shard: Shard, key: bytes | None, limit: int | None) -> list[bytes]:
        """Return the slots of a key, or of every key. A key needs a scan of the whole shard, some thousand slots at a time."""
        found: dict[bytes, None] = {}
        asked = ("any", b"") if key is None else ("key", key)
        for hash_ in _MAY_NAME_SLOTS:
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

    def _ask_for_durability(self) -> None:
        with self._asking:
            if not self._asked:
                warn_unless_durable(self._connection)
                self._asked = True


def _key(shard: Shard, name: str) -> str:
    # A brace in a processor's name would end the hash tag.
    return f"penstock:{{{quote(shard.processor, safe='')}:{shard.bucket}}}:{name}"


def _keys(shard: Shard) -> list[str]:
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
