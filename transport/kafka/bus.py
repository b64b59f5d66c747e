"""Kafka as the bus."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cached_property

from ..bus import OwnershipListener, Reader
from ..errors import BusUnreachable
from ..messages import Position
from .catalog import KafkaCatalog
from .open_transactions import OpenTransactions
from .reader import BucketScanner, GroupReader
from .settings import KafkaSettings
from .transaction_check import expect_transactions
from .transactions import OPENING_LIMIT_S, STEP_LIMIT_S, KafkaTransactionalWriter
from .writer import KafkaWriter


class KafkaBus:
    """A Kafka cluster."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings

    @cached_property
    def catalog(self) -> KafkaCatalog:
        """The topics."""
        return KafkaCatalog(self.settings)

    def reader(
        self, group: str, categories: Sequence[str], ownership: OwnershipListener, identity: str | None = None
    ) -> GroupReader:
        """Join a consumer group."""
        return GroupReader(self.settings, group, categories, ownership, identity)

    def scanner(self, positions: Sequence[Position]) -> BucketScanner:
        """Return a reader of buckets from given offsets, outside of any group."""
        return BucketScanner(self.settings, positions)

    def writer(self, limit_s: float | None = None) -> KafkaWriter:
        """Return a producer."""
        return KafkaWriter(self.settings, self.settings.for_writer(limit_s))

    def expect_transactions(self, identity: str) -> None:
        """Check that the cluster coordinates transactions, within 30 s.

        Raises:
            NoTransactions: it has never coordinated any.
        """
        expect_transactions(self.settings, identity)

    def transactional_writer(
        self, identity: str, member: Reader | None, timeout_s: float, writes: Collection[str]
    ) -> KafkaTransactionalWriter:
        """Return a transactional producer.

        Raises:
            TypeError: `member` is not a member of a group on this bus.
            NoTransactions: the cluster has no transactions. It is asked only without a member: workers ask at their start, and later wait.
        """
        if member is None:
            with suppress(BusUnreachable):  # the writer waits for brokers
                expect_transactions(self.settings, identity)
        if not (member is None or isinstance(member, GroupReader)):
            raise TypeError(
                f"{member!r} is not a group reader of this bus, so transactions cannot include its positions"
            )
        open_transactions = OpenTransactions(
            self.settings, self.catalog, writes, None if member is None else member.group
        )
        membership = (lambda: None) if member is None else member.membership
        limit_s = OPENING_LIMIT_S if member is None else STEP_LIMIT_S  # a worker retries with its own backoff
        return KafkaTransactionalWriter(
            self.settings, identity, membership, timeout_s, open_transactions, opening_limit_s=limit_s
        )
