"""The seam to a database that keeps shards: what is written and read, and in which order it counts.

What is kept at a slot is the combination of its parts, in this order:

    whole      an encoded value that replaced all there was before
    total      numbers that the store adds up itself       (Count, Sum, Mean)
    extreme    the value of the largest rank so far        (Min, Max)
    partials   encoded partials, in the order of their saves, until somebody merges them

Each shard has an owner, an epoch, which grows with every owner, and a number of saves, which grows with every write. A write is
conditional on all three. So an older owner changes nothing; and a write whose answer was lost is repeated as it is: had it been carried out, the number of
saves has moved on by one, and nothing is written twice. That holds for every write, not only for those that carry a position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ...processors.shard.position import StatePosition
from ..protocols import ShardIdentity

FORMAT = 1
"""The version of what stores hold; another one is refused."""


class Shard(NamedTuple):
    """A processor's shard by its name in the store."""

    processor: str
    bucket: int

    def __str__(self) -> str:
        return f"{self.processor}/{self.bucket}"


class StoredShard(NamedTuple):
    """Who owned a shard and how often it was saved; nobody and zeros where the store does not know it.

    Args:
        owner: what no other claim has. An epoch alone may be given twice: a failover that loses a claim takes its epoch back.
        epoch: how often the shard was claimed.
        saves: how often it was written.
    """

    owner: str
    epoch: int
    saves: int


UNKNOWN = StoredShard("", 0, 0)


class Claim(NamedTuple):
    """What an owner finds: its own epoch, and the position of the last save."""

    standing: StoredShard
    position: StatePosition


class Total(NamedTuple):
    """Numbers that add up.

    Args:
        whole: the sum of the whole numbers.
        fraction: the sum of the floats; None where there was none, so that a sum of whole numbers stays one.
        observed: how many observations, where the monoid counts them beside the sum.
    """

    whole: int
    fraction: float | None
    observed: int


class Parts(NamedTuple):
    """What is kept at a slot; its value is their combination, in this order."""

    whole: bytes | None = None
    total: Total | None = None
    extreme: bytes | None = None
    partials: Sequence[bytes] = ()


class TotalRow(NamedTuple):
    """A partial that the store adds to the slot's total; `encoded` is the same as bytes, should it not fit."""

    slot: bytes
    total: Total
    encoded: bytes


class ExtremeRow(NamedTuple):
    """A value that the store keeps if its rank is larger, byte by byte, than that of the one it has."""

    slot: bytes
    rank: bytes
    encoded: bytes


@dataclass(frozen=True)
class SlotChanges:
    """What one save does to slots, each of which it names once."""

    removed: Sequence[bytes] = ()
    wholes: Sequence[tuple[bytes, bytes]] = ()
    totals: Sequence[TotalRow] = ()
    extremes: Sequence[ExtremeRow] = ()
    partials: Sequence[tuple[bytes, bytes]] = ()

    @property
    def appends(self) -> bool:
        """Whether it leaves a slot with anything else than a whole value."""
        return bool(self.totals or self.extremes or self.partials)


@dataclass(frozen=True)
class Write:
    """One save, which takes effect as a whole.

    Args:
        changes: what it does to slots.
        position: the whole position that holds after it.
        outbox: replaces the outbox; None leaves it, empty bytes drop it.
        shape: what the shard is from now on; None leaves it what it is.
    """

    changes: SlotChanges
    position: StatePosition
    outbox: bytes | None = None
    shape: str | None = None


class Crowd(NamedTuple):
    """The partials of a slot that has too many.

    Args:
        slot: where they are.
        last: what the store calls the last of them; 0 where it has no name for it.
        partials: all of them, in order.
    """

    slot: bytes
    last: int
    partials: Sequence[bytes]


class OwnedStore(Protocol):
    """Shards and their owners. Any thread; one attempt per call, durable on return; StoreInterrupted: repeat the call."""

    def claim(self, identity: ShardIdentity) -> Claim:
        """Become the owner: raise the epoch, and make the shard where there is none.

        Raises:
            ForeignState: what is there is another shard's; nothing was changed.
        """
        ...

    def commit(self, shard: Shard, standing: StoredShard, write: Write) -> StoredShard:
        """Write if the shard stands as `standing` says; return how it stood before, so that equal means written."""
        ...

    def stored(self, shard: Shard) -> StoredShard:
        """Return the shard's current owner and number of saves."""
        ...

    def parts(self, shard: Shard, slots: Sequence[bytes]) -> list[Parts]:
        """Return what is kept at each slot, all as of one moment."""
        ...

    def outbox(self, shard: Shard) -> bytes:
        """Return the outbox; empty where there is none."""
        ...

    def close(self) -> None:
        """Let go of the connection. May be repeated."""
        ...


class CompactedStore(Protocol):
    """Partials that wait for being merged. One attempt per call; StoreInterrupted: repeat the call."""

    def crowds(self, shard: Shard, more_than: int) -> Iterator[Sequence[Crowd]]:
        """Give the slots that have more partials than that, some at a time."""
        ...

    def replace(self, shard: Shard, merged: Sequence[tuple[Crowd, bytes]]) -> int:
        """Put one partial in the place of a crowd, where it is still there as it was read; return where it was."""
        ...

    def close(self) -> None:
        """Let go of the connection. May be repeated."""
        ...


class ReadStore(Protocol):
    """What people may ask. Changes nothing, not even an epoch. StoreInterrupted: repeat the call."""

    def shape(self, shard: Shard) -> str | None:
        """Return what the bytes mean; None where the store does not know the shard.

        Raises:
            ForeignState: it is in another format.
        """
        ...

    def slots(self, shard: Shard, key: bytes | None, limit: int | None) -> list[bytes]:
        """Return the slots of a key, or of every key, not more than `limit`."""
        ...

    def parts(self, shard: Shard, slots: Sequence[bytes]) -> list[Parts]:
        """Return what is kept at each slot, all as of one moment."""
        ...

    def close(self) -> None:
        """Let go of the connection. May be repeated."""
        ...


class RebuiltStore(OwnedStore, ReadStore, Protocol):
    """Shards whose values are computed anew elsewhere: written as their owner, by what they hold. StoreInterrupted: repeat the call."""
