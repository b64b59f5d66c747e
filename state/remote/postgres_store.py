"""Shards in PostgreSQL: a row for each shard, and a row for each part of a window key.

    penstock_shards   the shard's owner, position and outbox
    penstock_parts    by shard, slot and place: a whole value at 0, a value merged by the database at 1, partials from 2 on

A save is one transaction. It starts with the shard's row, which it locks and whose epoch and number of saves it checks. So owners, late
attempts and the compactor take turns, always in this order, and never deadlock. Values are sent as arrays, one statement for all slots:
50,000 slots take as many round trips as one.

Durability on return depends on PostgreSQL's `synchronous_commit`: with `off`, a crash may lose the last moments. For a standby with every
save, make it synchronous. A pooler in front of PostgreSQL must pool sessions, not transactions.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import msgspec
import psycopg

from ...processors.shard import StatePosition, encode_position
from ..errors import ForeignState
from ..protocols import ShardIdentity
from .addresses import StoreAddress
from .postgres_connection import PostgresConnection
from .postgres_tables import create_missing_tables
from .protocols import (
    FORMAT,
    NO_VERSION,
    Claim,
    ExtremeRow,
    Parts,
    ShardVersion,
    SlotChanges,
    StoredShard,
    Total,
    TotalRow,
    UnmergedPartials,
    Write,
)
from .state_shapes import foreign_format, foreign_shape

_WHOLE, _MERGED, _FIRST_PARTIAL = 0, 1, 2
_ANSWER_LIMIT_S = 20.0
"""How long a statement may take before the server is asked whether it still answers. If not, the connection is closed, and the work repeated."""
_UNMERGED_AT_ONCE = 50
"""The number of slots whose partials are loaded at a time; without compaction for an hour, each has thousands."""

_CLAIM = """
    INSERT INTO penstock_shards AS own (processor, bucket, format, shape, owner) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (processor, bucket) DO UPDATE SET owner = EXCLUDED.owner, epoch = own.epoch + 1
        WHERE own.format = EXCLUDED.format AND own.shape = EXCLUDED.shape
    RETURNING owner, epoch, saves, position
"""
_SHAPE = "SELECT format, shape FROM penstock_shards WHERE processor = %s AND bucket = %s"
_BEGIN = """
    UPDATE penstock_shards
    SET saves = saves + 1, position = %s, outbox = coalesce(%s, outbox), appended = appended OR %s, shape = coalesce(%s, shape)
    WHERE processor = %s AND bucket = %s AND owner = %s AND epoch = %s AND saves = %s
    RETURNING shard, appended
"""
_VERSION = "SELECT owner, epoch, saves FROM penstock_shards WHERE processor = %s AND bucket = %s"
_OUTBOX = "SELECT outbox FROM penstock_shards WHERE processor = %s AND bucket = %s"
_REMOVE = "DELETE FROM penstock_parts WHERE shard = %s AND slot = ANY(%b::bytea[]) AND place >= %s"
_PUT = """
    INSERT INTO penstock_parts (shard, slot, place, encoded)
    SELECT %s, slot, %s, encoded FROM unnest(%b::bytea[], %b::bytea[]) AS new (slot, encoded)
    ON CONFLICT (shard, slot, place) DO UPDATE SET encoded = EXCLUDED.encoded
"""
_APPEND = """
    INSERT INTO penstock_parts (shard, slot, place, encoded)
    SELECT shard, slot, saves + %s, encoded
    FROM penstock_shards, unnest(%b::bytea[], %b::bytea[]) AS new (slot, encoded)
    WHERE shard = %s
"""
_ADD = """
    INSERT INTO penstock_parts AS old (shard, slot, place, whole, fraction, observed)
    SELECT %s, slot, %s, whole, fraction, observed
    FROM unnest(%b::bytea[], %t::numeric[], %t::float8[], %t::numeric[]) AS new (slot, whole, fraction, observed)
    ON CONFLICT (shard, slot, place) DO UPDATE SET
        whole = old.whole + EXCLUDED.whole,
        fraction = CASE WHEN EXCLUDED.fraction IS NULL THEN old.fraction
                        ELSE coalesce(old.fraction, 0) + EXCLUDED.fraction END,
        observed = old.observed + EXCLUDED.observed
"""
# Only a larger rank replaces: of equal values (1 and 1.0), the first stays.
_RANK = """
    INSERT INTO penstock_parts AS old (shard, slot, place, rank, encoded)
    SELECT %s, slot, %s, rank, encoded FROM unnest(%b::bytea[], %b::bytea[], %b::bytea[]) AS new (slot, rank, encoded)
    ON CONFLICT (shard, slot, place) DO UPDATE SET rank = EXCLUDED.rank, encoded = EXCLUDED.encoded
        WHERE EXCLUDED.rank > old.rank
"""
# Sorted within LATERAL, so that the plan is an index lookup for each slot, however large the shard is.
_PARTS = """
    SELECT asked.number, part.place, part.encoded, part.whole, part.fraction, part.observed
    FROM penstock_shards AS own,
        unnest(%b::bytea[]) WITH ORDINALITY AS asked (slot, number),
        LATERAL (
            SELECT * FROM penstock_parts AS stored WHERE stored.shard = own.shard AND stored.slot = asked.slot ORDER BY place
        ) AS part
    WHERE own.processor = %s AND own.bucket = %s
"""
_UNMERGED = """
    SELECT part.slot, max(part.place), array_agg(part.encoded ORDER BY part.place)
    FROM penstock_parts AS part
    WHERE part.shard = (SELECT shard FROM penstock_shards WHERE processor = %s AND bucket = %s)
        AND part.slot > %b AND part.place >= %s
    GROUP BY part.slot HAVING count(*) > %s ORDER BY part.slot LIMIT %s
"""
_LOCK = "SELECT shard FROM penstock_shards WHERE processor = %s AND bucket = %s FOR UPDATE"
# Compared by content: after a failover that lost saves, other partials may have the same places.
_REPLACE = """
    WITH same AS (
        SELECT * FROM unnest(%b::bytea[], %t::bigint[], %b::bytea[], %b::bytea[]) AS combined (slot, last, digest, merged)
        WHERE digest = (SELECT sha256(string_agg(part.encoded, ''::bytea ORDER BY part.place)) FROM penstock_parts AS part
                        WHERE part.shard = %s AND part.slot = combined.slot AND part.place BETWEEN %s AND combined.last)
    ), removed AS (
        DELETE FROM penstock_parts AS part USING same
        WHERE part.shard = %s AND part.slot = same.slot AND part.place >= %s AND part.place < same.last
    )
    UPDATE penstock_parts AS part SET encoded = same.merged FROM same
    WHERE part.shard = %s AND part.slot = same.slot AND part.place = same.last
"""
_SLOTS = """
    SELECT DISTINCT slot FROM penstock_parts
    WHERE shard = (SELECT shard FROM penstock_shards WHERE processor = %s AND bucket = %s)
        AND (%b::bytea IS NULL OR substr(slot, 9) = %b) ORDER BY slot LIMIT %s
"""


class PostgresStore:
    """The shards in one PostgreSQL database.

    Args:
        address: its address.
        read_only: whether PostgreSQL refuses changes.
    """

    def __init__(self, address: StoreAddress, *, read_only: bool = False) -> None:
        self._connection = PostgresConnection(address, read_only=read_only, limit_s=_ANSWER_LIMIT_S, allows_slow=True)
        self._address = address
        self._has_tables = False
        self._tables_lock = threading.Lock()

    def claim(self, identity: ShardIdentity) -> Claim:
        """Become the owner."""
        self._expect_tables()
        shard = StoredShard(identity.processor, identity.bucket)
        with self._connection.transaction() as connection:
            row = connection.execute(_CLAIM, (*shard, FORMAT, identity.shape, uuid4().hex)).fetchone()
            if row is None:
                raise self._foreign(connection, identity)
        *version, position = row
        return Claim(ShardVersion(*version), msgspec.convert(position, StatePosition))

    def commit(self, shard: StoredShard, version: ShardVersion, write: Write) -> ShardVersion:
        """Write if the shard has the expected version. Return its version before the write."""
        appends = write.changes.appends
        with self._connection.transaction() as connection:
            values = (encode_position(write.position).decode(), write.outbox, appends, write.shape, *shard, *version)
            row = connection.execute(_BEGIN, values).fetchone()
            if row is None:
                return _version(connection, shard)
            _Rows(connection, *row).change(write.changes)
        return version

    def version(self, shard: StoredShard) -> ShardVersion:
        """Return the shard's current version."""
        with self._connection.transaction() as connection:
            return _version(connection, shard)

    def parts(self, shard: StoredShard, slots: Sequence[bytes]) -> list[Parts]:
        """Return the parts of each slot."""
        found = [Parts()] * len(slots)
        with self._connection.transaction() as connection:
            rows = connection.cursor(binary=True).execute(_PARTS, (list(slots), *shard)).fetchall()
        for number, place, encoded, whole, fraction, observed in rows:
            total = None if whole is None else Total(int(whole), fraction, int(observed))
            found[number - 1] = _with_row(found[number - 1], place, encoded, total)
        return found

    def outbox(self, shard: StoredShard) -> bytes:
        """Return the outbox."""
        with self._connection.transaction() as connection:
            row = connection.cursor(binary=True).execute(_OUTBOX, shard).fetchone()
        return row[0] if row else b""

    def unmerged_partials(self, shard: StoredShard, partial_limit: int) -> Iterator[Sequence[UnmergedPartials]]:
        """Yield the slots with more than `partial_limit` partials, in order."""
        after = b""
        while batch := self._next_unmerged(shard, after, partial_limit):
            yield batch
            after = batch[-1].slot

    def _next_unmerged(self, shard: StoredShard, after: bytes, partial_limit: int) -> list[UnmergedPartials]:
        values = (*shard, after, _FIRST_PARTIAL, partial_limit, _UNMERGED_AT_ONCE)
        with self._connection.transaction() as connection:
            return [UnmergedPartials(*row) for row in connection.cursor(binary=True).execute(_UNMERGED, values)]

    def replace(self, shard: StoredShard, merged: Sequence[tuple[UnmergedPartials, bytes]]) -> int:
        """Replace the partials of each slot by one, unless they have changed."""
        slots = [unmerged.slot for unmerged, _ in merged]
        lasts = [unmerged.last for unmerged, _ in merged]
        digests = [hashlib.sha256(b"".join(unmerged.partials)).digest() for unmerged, _ in merged]
        with self._connection.transaction() as connection:
            row = connection.execute(_LOCK, shard).fetchone()
            if row is None:
                return 0
            values = (slots, lasts, digests, [partial for _, partial in merged])
            limits = (row[0], _FIRST_PARTIAL, row[0], _FIRST_PARTIAL, row[0])
            return connection.execute(_REPLACE, (*values, *limits)).rowcount

    def shape(self, shard: StoredShard) -> str | None:
        """Return the type of the state."""
        with self._connection.transaction() as connection:
            tables = connection.execute("SELECT to_regclass('penstock_shards')").fetchone()
            row = connection.execute(_SHAPE, shard).fetchone() if tables != (None,) else None
        if row is None:
            return None
        if row[0] != FORMAT:
            raise foreign_format(self._address, shard, row[0])
        return str(row[1])

    def slots(self, shard: StoredShard, key: bytes | None, limit: int | None) -> list[bytes]:
        """Return the slots of a key, or of every key, by window. A key needs a scan of the whole shard."""
        with self._connection.transaction() as connection:
            rows = connection.cursor(binary=True).execute(_SLOTS, (*shard, key, key, limit))
            return [slot for (slot,) in rows]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _expect_tables(self) -> None:
        with self._tables_lock:
            if not self._has_tables:
                with self._connection.transaction() as connection:
                    create_missing_tables(connection)
                self._has_tables = True

    def _foreign(self, connection: psycopg.Connection, identity: ShardIdentity) -> ForeignState:
        shard = StoredShard(identity.processor, identity.bucket)
        found = connection.execute(_SHAPE, shard).fetchone()
        assert found is not None  # noqa: S101 - the claim has locked the conflicting row
        if found[0] != FORMAT:
            return foreign_format(self._address, shard, found[0])
        return foreign_shape(self._address, shard, found[1], identity.shape)


class _Rows:
    """Changes of the parts of one shard."""

    def __init__(self, connection: psycopg.Connection, shard: int, appended: bool) -> None:
        self._connection = connection
        self._shard = shard
        self._appended = appended

    def change(self, changes: SlotChanges) -> None:
        """Write the changes."""
        if changes.removed:
            self._remove(changes.removed, _WHOLE)
        if changes.wholes:
            self._replace(changes.wholes)
        if changes.totals:
            self._add(changes.totals)
        if changes.extremes:
            self._rank(changes.extremes)
        if changes.partials:
            self._connection.execute(_APPEND, (_FIRST_PARTIAL, *_columns(changes.partials), self._shard))

    def _remove(self, slots: Sequence[bytes], place: int) -> None:
        self._connection.execute(_REMOVE, (self._shard, list(slots), place))

    def _replace(self, wholes: Sequence[tuple[bytes, bytes]]) -> None:
        if self._appended:
            self._remove([slot for slot, _ in wholes], _MERGED)
        self._connection.execute(_PUT, (self._shard, _WHOLE, *_columns(wholes)))

    def _add(self, rows: Sequence[TotalRow]) -> None:
        slots, totals, _ = _columns(rows)
        self._connection.execute(_ADD, (self._shard, _MERGED, slots, *_columns(totals)))

    def _rank(self, rows: Sequence[ExtremeRow]) -> None:
        self._connection.execute(_RANK, (self._shard, _MERGED, *_columns(rows)))


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _version(connection: psycopg.Connection, shard: StoredShard) -> ShardVersion:
    found = connection.execute(_VERSION, shard).fetchone()
    return ShardVersion(*found) if found else NO_VERSION


def _with_row(parts: Parts, place: int, encoded: Any, total: Total | None) -> Parts:
    if place >= _FIRST_PARTIAL:
        return parts._replace(partials=[*parts.partials, encoded])
    if place == _WHOLE:
        return parts._replace(whole=encoded)
    return parts._replace(total=total, extreme=encoded)
