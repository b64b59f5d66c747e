"""What a broker that was killed leaves open in its log although it takes the transaction for ended.

A broker that starts again ends the transactions that ran out of time meanwhile, and those whose end was decided, by markers in the
buckets that they wrote to. While it does not know the leader of a bucket, which is so for the first seconds of one that holds the only
replica, it takes the bucket for deleted and leaves its marker out (seen with Kafka 4.3.0: "Couldn't find leader endpoint for partitions …
these partitions are likely deleted already and hence can be skipped"). Readers of committed data then wait in front of these messages for
ever; or, worse, the next marker of the same producer, which commits other messages, commits these as well, a second time.

So a writer that opens looks whether anything is open where its identity may have written. The marker of an aborted transaction of its own
ends everything that the identity has open in a bucket. Transactions of others, which may be what was seen, are not touched by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ..errors import MissingCategory
from ..messages import Bucket
from .catalog import KafkaCatalog
from .error_translation import translate
from .reader import Group
from .settings import KafkaSettings

ABORTED_KEY = b"penstock.aborted"
"""The key of messages that are written to be aborted."""
LOOK_S = 2.0
"""How long is waited for a group's positions to be decided before they are taken for left open."""


_UNDECIDED = frozenset({KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT})


@dataclass(frozen=True)
class Found:
    """What may be open.

    Args:
        buckets: those in which some transaction is open.
        offset: one of the positions of the group that are undecided; None where they are decided.
        group: the group, as a transaction needs to know it.
    """

    buckets: tuple[Bucket, ...]
    offset: TopicPartition | None = None
    group: Any = None


class OpenTransactions:
    """Looks for open transactions where a writer may write.

    Args:
        settings: the cluster.
        catalog: its categories.
        writes: the categories that are written to.
        group: the group whose positions the transactions carry; None for none.
    """

    def __init__(
        self, settings: KafkaSettings, catalog: KafkaCatalog, writes: Collection[str], group: Group | None
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._writes = writes
        self._group = group

    def find(self) -> Found | None:
        """Return what is open; None for nothing.

        Raises:
            BusUnreachable: the bus does not answer.
        """
        buckets = tuple(self._open())
        found = Found(buckets) if self._group is None else self._with_positions(buckets, self._group)
        return found if found.buckets or found.offset is not None else None

    def _open(self) -> Iterator[Bucket]:
        for name in self._writes:
            with suppress(MissingCategory):
                stable, ends = self._catalog.stable_ends(name), self._catalog.ends(name)
                yield from (Bucket(name, number) for number, end in ends.items() if stable[number] < end)

    def _with_positions(self, buckets: tuple[Bucket, ...], group: Group) -> Found:
        """Return the same, with a position of the group that is undecided, if there is one."""
        partitions = [TopicPartition(name, number) for name in group.categories for number in self._catalog.ends(name)]
        asking = Consumer(self._settings.for_asking(group.name))
        try:
            asking.committed(partitions, LOOK_S)
        except KafkaException as error:
            if error.args[0].code() not in _UNDECIDED:
                raise translate(error.args[0], f"The positions of group {group.name} were not read") from error
            undecided = TopicPartition(
                partitions[0].topic, partitions[0].partition, 0
            )  # aborted, so any offset will do
            return Found(buckets, undecided, asking.consumer_group_metadata())
        else:
            return Found(buckets)
        finally:
            asking.close()
