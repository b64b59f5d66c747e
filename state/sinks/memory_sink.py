"""A sink in memory, for tests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...processors.declare import ALL_SEMANTICS, RecordType, Semantics, Sink, SinkBatch
from ..remote import NO_VERSION, ShardVersion, StoredShard, StoreRetry
from .owned_rows import OwnedRows, RowClaim


class MemoryRows:
    """Rows in memory: a `RowStore`. They are as durable as the object."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._shards: dict[StoredShard, RowClaim] = {}
        self._claims = 0
        self._lock = threading.Lock()

    def claim(self, shard: StoredShard) -> RowClaim:
        """Become the owner."""
        with self._lock:
            self._claims += 1
            version, position = self._shards.get(shard, RowClaim(NO_VERSION, ""))
            claimed = RowClaim(version._replace(owner=f"owner {self._claims}", epoch=version.epoch + 1), position)
            self._shards[shard] = claimed
            return claimed

    def commit(self, shard: StoredShard, version: ShardVersion, batch: SinkBatch) -> ShardVersion:
        """Write rows and position if the shard has the expected version."""
        with self._lock:
            before = self._shards[shard].version
            if before == version:
                self.rows.extend(batch.rows)
                self._shards[shard] = RowClaim(before._replace(saves=before.saves + 1), batch.position)
            return before

    def close(self) -> None:
        """Keep the rows."""


@dataclass(frozen=True, eq=False)
class MemorySink(Sink):
    """A sink in memory, which lists all rows and tombstones in the order of their batches.

    Args:
        record: the type of the rows.
        name: the name for messages and `penstock.To`.

    Examples:
        >>> import penstock as ps
        >>> class Click(ps.Record, frozen=True):
        ...     user: str
        >>> MemorySink(Click).rows
        []
    """

    record: RecordType
    name: str = "memory"
    store: MemoryRows = field(default_factory=MemoryRows, repr=False)

    @property
    def semantics(self) -> frozenset[Semantics]:
        """All."""
        return ALL_SEMANTICS

    @property
    def rows(self) -> Sequence[Any]:
        """The rows and tombstones so far."""
        return self.store.rows

    def open(self) -> OwnedRows:
        """Return a writer of this table."""
        return OwnedRows(self.store, self.name, StoreRetry())

    def expect_tombstone(self, key: object) -> None:
        """Accept every tombstone."""
