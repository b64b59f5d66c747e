"""Detection of transactions whose markers a restarted broker has lost.

A restarted broker ends expired and decided transactions by markers in their buckets. During its first seconds it may not know the leader of a
bucket, especially of one with a single replica. It then treats the bucket as deleted and skips its marker (observed with Kafka 4.3.0:
"Couldn't find leader endpoint for partitions … these partitions are likely deleted already and hence can be skipped"). Readers of committed
data then wait before these messages forever. Worse, the next marker of the same producer, which commits other messages, commits them a
second time.

So a new writer checks the buckets of its identity for open transactions. If it finds any, it aborts a transaction of its own in these
buckets, whose markers end all open transactions of the identity. Transactions of other identities stay unchanged.

An overloaded broker that its controller takes for dead does the same with a commit that it has confirmed to the client. So a commit counts when
the group's positions show it, and not before: until then, the next writer may abort it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ..errors import MissingCategory
from ..messages import Bucket
from .catalog import SETTLE_STEP_S, KafkaCatalog
from .error_translation import translate
from .kept_client import KeptClient, brief_client
from .reader import GroupCategories
from .settings import KafkaSettings

ABORTED_KEY = b"penstock.aborted"
"""The key of messages in such aborted transactions."""
DECISION_LIMIT_S = 2.0
"""The time limit for a group's positions to be decided; later they count as left open."""


_UNDECIDED = frozenset({KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT})


@dataclass(frozen=True)
class LeftOpen:
    """Buckets and positions with open transactions, possibly of another identity.

    Args:
        buckets: the buckets with an open transaction.
        offset: an undecided position of the group; None if all are decided.
        group: the group's metadata for a transaction.
    """

    buckets: tuple[Bucket, ...]
    offset: TopicPartition | None = None
    group: Any = None


class OpenTransactions:
    """Finds open transactions in the categories and positions of a writer.

    Args:
        settings: the cluster.
        catalog: its categories.
        writes: the categories of the writer.
        group: the group whose positions the transactions include; None for none.
    """

    def __init__(
        self, settings: KafkaSettings, catalog: KafkaCatalog, writes: Collection[str], group: GroupCategories | None
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._writes = writes
        self._group = group
        self._kept: KeptClient[Consumer] | None = None

    def are_in_force(self, committed: Sequence[TopicPartition], limit_s: float) -> bool:
        """Return whether the group's positions are those of a transaction, or later ones; False if they stay undecided for the limit.

        Raises:
            BusError: the positions cannot be read.
        """
        wanted = {(each.topic, each.partition): each.offset for each in committed}
        deadline = time.monotonic() + limit_s
        while True:
            try:
                found = self._positions.committed([TopicPartition(*bucket) for bucket in wanted], limit_s)
            except KafkaException as error:
                if error.args[0].code() not in _UNDECIDED:
                    raise translate(error.args[0], "The positions of a transaction were not read") from error
                if time.monotonic() > deadline:
                    return False
                time.sleep(SETTLE_STEP_S)
            else:
                return all(each.offset >= wanted[each.topic, each.partition] for each in found)

    @property
    def _positions(self) -> Consumer:
        """The client of the group's positions. It lives as long as the writer, which its user replaces after an outage."""
        if self._group is None:
            raise TypeError("a writer without a member was asked for the positions of its group")
        if self._kept is None:
            configuration = self._settings.for_positions(self._group.name)
            self._kept = KeptClient(self._settings, Consumer, configuration, _purpose(self._group))
        return self._kept.client

    def close(self) -> None:
        """Close the client of the group's positions. May be repeated."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def find(self) -> LeftOpen | None:
        """Return the open transactions; None without any.

        Raises:
            BusUnreachable: the bus does not answer.
        """
        buckets = tuple(self._open_buckets())
        found = LeftOpen(buckets) if self._group is None else self._with_positions(buckets, self._group)
        return found if found.buckets or found.offset is not None else None

    def _open_buckets(self) -> Iterator[Bucket]:
        for name in self._writes:
            with suppress(MissingCategory):
                stable, ends = self._catalog.stable_ends(name), self._catalog.ends(name)
                yield from (Bucket(name, number) for number, end in ends.items() if stable[number] < end)

    def _with_positions(self, buckets: tuple[Bucket, ...], group: GroupCategories) -> LeftOpen:
        """Add an undecided position of the group, if there is one."""
        partitions = [TopicPartition(name, number) for name in group.categories for number in self._catalog.ends(name)]
        with brief_client(Consumer, self._settings.for_positions(group.name), _purpose(group)) as client:
            try:
                client.committed(partitions, DECISION_LIMIT_S)
            except KafkaException as error:
                if error.args[0].code() not in _UNDECIDED:
                    raise translate(error.args[0], f"The positions of group {group.name} were not read") from error
                first = partitions[0]  # the transaction is aborted, so any offset works
                undecided = TopicPartition(first.topic, first.partition, 0)
                return LeftOpen(buckets, undecided, client.consumer_group_metadata())
        return LeftOpen(buckets)


def _purpose(group: GroupCategories) -> str:
    return f"The positions of group {group.name}"
