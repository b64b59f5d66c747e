"""Protocols of stores for shards: values, writes and their order.

The value of a slot is the combination of its parts, in this order:

    whole      an encoded value that replaced all earlier parts
    total      numbers that the store adds up               (Count, Sum, Mean)
    extreme    the value of the largest rank so far         (Min, Max)
    partials   encoded partials, in the order of their saves, until they are merged

Each shard has an owner, an epoch that grows with every owner, and a number of saves that grows with every write. A write is conditional on
all three, so former owners cannot write. A write whose answer was lost is repeated unchanged: if it had taken effect, the number of saves is
one higher, and it is not repeated. This holds for every write, with or without a position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ...processors.shard import StatePosition
from ..protocols import ShardIdentity

FORMAT = 1
"""The version of the stored format; others are refused."""


class StoredShard(NamedTuple):
    """A processor's shard, by its name in the store."""

    processor: str
    bucket: int

    def __str__(self) -> str:
        return f"{self.processor}/{self.bucket}"


class ShardVersion(NamedTuple):
    """The version of a shard in its store. Each claim and each write changes it.

    Args:
        owner: a unique name of the claim. Epochs are not unique: a failover that loses a claim reuses its epoch.
        epoch: the number of claims.
        saves: the number of writes.
    """

    owner: str
    epoch: int
    saves: int


NO_VERSION = ShardVersion("", 0, 0)
"""The version of a shard that the store does not have."""


class Claim(NamedTuple):
    """The result of a claim: the shard's version, and the position of the last save."""

    version: ShardVersion
    position: StatePosition


class Total(NamedTuple):
    """Numbers that add up.

    Args:
        whole: the sum of the integers.
        fraction: the sum of the floats; None without floats, so that a sum of integers stays an integer.
        observed: the number of observations, if the monoid counts them beside the sum.
    """

    whole: int
    fraction: float | None
    observed: int


class Parts(NamedTuple):
    """The parts of a slot; its value is their combination, in this order."""

    whole: bytes | None = None
    total: Total | None = None
    extreme: bytes | None = None
    partials: Sequence[bytes] = ()


class TotalRow(NamedTuple):
    """A partial that the store adds to the slot's total. If the number is too large, the store appends `encoded` as a partial."""

    slot: bytes
    total: Total
    encoded: bytes


class ExtremeRow(NamedTuple):
    """A value that replaces the stored one if its rank is larger, byte by byte."""

    slot: bytes
    rank: bytes
    encoded: bytes


@dataclass(frozen=True)
class SlotChanges:
    """The changes of one save. Each slot occurs once."""

    removed: Sequence[bytes] = ()
    wholes: Sequence[tuple[bytes, bytes]] = ()
    totals: Sequence[TotalRow] = ()
    extremes: Sequence[ExtremeRow] = ()
    partials: Sequence[tuple[bytes, bytes]] = ()

    @property
    def appends(self) -> bool:
        """Whether the changes add parts instead of replacing values."""
        return bool(self.totals or self.extremes or self.partials)


@dataclass(frozen=True)
class Write:
    """One atomic save.

    Args:
        changes: the changes of slots.
        position: the complete position after it.
        outbox: replaces the outbox; None keeps it, empty bytes clear it.
        shape: replaces the type of the shard's state; None keeps it.
    """

    changes: SlotChanges
    position: StatePosition
    outbox: bytes | None = None
    shape: str | None = None


class UnmergedPartials(NamedTuple):
    """The partials of a slot with more of them than the compaction limit.

    Args:
        slot: the slot.
        last: the store's number of the last partial; 0 without one.
        partials: all partials, in order.
    """

    slot: bytes
    last: int
    partials: Sequence[bytes]


class OwnedStore(Protocol):
    """Shards with owners. Thread-safe. Each call is one attempt and durable on return; repeat it after StoreInterrupted."""

    def claim(self, identity: ShardIdentity) -> Claim:
        """Become the owner: increase the epoch, and create a missing shard.

        Raises:
            ForeignState: the shard belongs to another declaration; nothing was changed.
        """
        ...

    def commit(self, shard: StoredShard, version: ShardVersion, write: Write) -> ShardVersion:
        """Write if the shard has the expected version. Return its version before: the expected one if the write took effect."""
        ...

    def version(self, shard: StoredShard) -> ShardVersion:
        """Return the shard's current version."""
        ...

    def parts(self, shard: StoredShard, slots: Sequence[bytes]) -> list[Parts]:
        """Return the parts of each slot, from one consistent read."""
        ...

    def outbox(self, shard: StoredShard) -> bytes:
        """Return the outbox; empty without one."""
        ...

    def close(self) -> None:
        """Close the connection. May be repeated."""
        ...


class CompactedStore(Protocol):
    """Compaction of partials. Each call is one attempt; repeat it after StoreInterrupted."""

    def unmerged_partials(self, shard: StoredShard, partial_limit: int) -> Iterator[Sequence[UnmergedPartials]]:
        """Yield the slots with more than `partial_limit` partials, in batches."""
        ...

    def replace(self, shard: StoredShard, merged: Sequence[tuple[UnmergedPartials, bytes]]) -> int:
        """Replace the partials of each slot by one, unless they have changed. Return the number of replaced slots."""
        ...

    def close(self) -> None:
        """Close the connection. May be repeated."""
        ...


class ReadStore(Protocol):
    """Reads of results, by users and dashboards. A read does not claim the shard. Repeat a call after StoreInterrupted."""

    def shape(self, shard: StoredShard) -> str | None:
        """Return the type of the state; None if the store does not know the shard.

        Raises:
            ForeignState: the shard has another format.
        """
        ...

    def slots(self, shard: StoredShard, key: bytes | None, limit: int | None) -> list[bytes]:
        """Return at most `limit` slots of a key, or of every key."""
        ...

    def parts(self, shard: StoredShard, slots: Sequence[bytes]) -> list[Parts]:
        """Return the parts of each slot, from one consistent read."""
        ...

    def close(self) -> None:
        """Close the connection. May be repeated."""
        ...


class RebuiltStore(OwnedStore, ReadStore, Protocol):
    """Shards whose values a bootstrap or backfill replaces. Repeat a call after StoreInterrupted."""
