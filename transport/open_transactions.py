"""Transactions that block readers: the bus returns nothing after the start of an open transaction until it has ended."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from .bus import Bus
from .messages import Bucket, Position

BLOCKED_AFTER_S = 10.0
"""The age from which an open transaction is reported. Transactions of workers usually end within seconds."""


class OpenTransaction(NamedTuple):
    """The oldest open transaction of a bucket.

    Args:
        bucket: the bucket.
        offset: the offset from which on readers get nothing.
        since_ms: when its first message arrived (milliseconds since 1970, UTC).
    """

    bucket: Bucket
    offset: int
    since_ms: int

    def age_s(self, now_ms: int) -> float:
        """Return how long it has been open, in seconds."""
        return max(0.0, (now_ms - self.since_ms) / 1000)

    def report(self, now_ms: int) -> str:
        """Return what it blocks, and how it ends."""
        return (
            f"{self.bucket} cannot be read from offset {self.offset:,} on: a transaction has been open there for {self.age_s(now_ms):.0f} s. Nothing is "
            "lost or skipped. It ends when its producer commits, aborts or starts again, or when its transaction.timeout.ms is over. To find the "
            f"producer: `kafka-transactions.sh --bootstrap-server HOST:PORT describe-producers --topic {self.bucket.category} --partition "
            f"{self.bucket.number}`; its command `abort` ends a transaction whose producer does not return."
        )


def old_transactions(bus: Bus, categories: Collection[str], now_ms: int) -> list[OpenTransaction]:
    """Return the open transactions that block buckets for longer than usual.

    Args:
        bus: contains the categories.
        categories: existing categories.
        now_ms: the time (milliseconds since 1970, UTC).

    Raises:
        BusError: the bus does not answer.
    """
    blocked = []
    for name in sorted(categories):
        stable = bus.catalog.stable_ends(
            name
        )  # before the ends, so that a transaction that ends meanwhile is not reported
        ends = bus.catalog.ends(name)
        blocked += [
            Position(Bucket(name, number), offset) for number, offset in stable.items() if offset < ends[number]
        ]
    arrived_ms = bus.catalog.waiting_since(blocked) if blocked else {}
    found = [OpenTransaction(at.bucket, at.offset or 0, since_ms) for at, since_ms in arrived_ms.items()]
    return sorted(transaction for transaction in found if transaction.age_s(now_ms) >= BLOCKED_AFTER_S)
