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

from ...processors.shard.position import StatePosition
from ..protocols import ShardIdentity

FORMAT = 1
"""The version of the stored format; others are refused."""


class Shard(NamedTuple):
    """A processor's shard, by its name in the store."""

    processor: str
    bucket: int

    def __str__(self) -> str:
        return f"{self.processor}/{self.bucket}"


class StoredShard(NamedTuple):
    """The owner, epoch and number of saves of a shard; empty and zero if the store does not know it.

    Args:
        owner: a unique name of the claim. Epochs are not unique: a failover that loses a claim reuses its epoch.
        epoch: the number of claims.
        saves: the number of writes.
    """

    owner: str
    epoch: int
    saves: int


UNKNOWN = StoredShard("", 0, 0)


class Claim(NamedTuple):
    """The result of a claim: the shard's status, and the position of the last save."""

    standing: StoredShard
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
    """A partial that the store adds to the slot's total; `encoded` is kept instead if the number is too large."""

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
        """Whether a slot ends with other parts than a whole value."""
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


class Crowd(NamedTuple):
    """The partials of a slot that has too many.

    Args:
        slot: the slot.
        last: the store's number of the last partial; 0 without one.
        partials: all partials, in order.
    """

    slot: bytes
    last: int
    partials: Sequence[bytes]


class OwnedStore(Protocol):
    """Shards and their owners. Thread-safe; each call is one attempt, durable on return. Repeat it after StoreInterrupted."""

    def claim(self, identity: ShardIdentity) -> Claim:
        """Become the owner: increase the epoch, and create a missing shard.

        Raises:
            ForeignState: the shard belongs to another declaration; nothing was changed.
        """
        ...

    def commit(self, shard: Shard, standing: StoredShard, write: Write) -> StoredShard:
        """Write if the shard's status equals `standing`. Return its status before; equality means that the write took effect."""
        ...

    def stored(self, shard: Shard) -> StoredShard:
        """Return the shard's current owner and number of saves."""
        ...

    def parts(self, shard: Shard, slots: Sequence[bytes]) -> list[Parts]:
        """Return the parts of each slot, all of one moment."""
        ...

    def outbox(self, shard: Shard) -> bytes:
        """Return the outbox; empty without one."""
        ...

    def close(self) -> None:
        """Close the connection. May be repeated."""
        ...


class CompactedStore(Protocol):
    """Partials to merge. Each call is one attempt; repeat it after StoreInterrupted."""

    def crowds(self, shard: Shard, more_than: int) -> Iterator[Sequence[Crowd]]:
        """Yield the slots with more than `more_than` partials, in batches."""
        ...

    def replace(self, shard: Shard, merged: Sequence[tuple[Crowd, bytes]]) -> int:
        """Replace each crowd that has not changed by one partial. Return the number of replacements."""
        ...

    def close(self) -> None:
        """Close the connection. May be repeated."""
        ...


class ReadStore(Protocol):
    """Reads for people and dashboards. They change nothing, not even an epoch. Repeat a call after StoreInterrupted."""

    def shape(self, shard: Shard) -> str | None:
        """Return the type of the state; None if the store does not know the shard.

        Raises:
            ForeignState: the shard has another format.
        """
        ...

    def slots(self, shard: Shard, key: bytes | None, limit: int | None) -> list[bytes]:
        """Return at most `limit` slots of a key, or of every key."""
        ...

    def parts(self, shard: Shard, slots: Sequence[bytes]) -> list[Parts]:
        """Return the parts of each slot, all of one moment."""
        ...

    def close(self) -> None:
        """Close the connection. May be repeated."""
        ...


class RebuiltStore(OwnedStore, ReadStore, Protocol):
    """Shards whose values are computed elsewhere and written by their owner. Repeat a call after StoreInterrupted."""
