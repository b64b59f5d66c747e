"""The brokers: categories, groups and transactions. Clients send requests through a network; a change here is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

from ...processors.declare import SIZE_SETTING, bucket_of
from ..category_spec import CategorySpec
from ..errors import MessageRefused, MissingCategory
from ..messages import BY_KEY, MESSAGE_LIMIT, Bucket, Outgoing, size_of
from .groups import MemoryGroup
from .log import BucketLog
from .transactions import Transactions


@dataclass
class MemoryTopic:
    """A stored category.

    Args:
        spec: its settings.
        topic_id: its unique id; a later category of the same name has another id.
        logs: its buckets.
        uses_arrival_time: whether timestamps are arrival times instead of the writers' times.
    """

    spec: CategorySpec
    topic_id: str
    logs: list[BucketLog]
    uses_arrival_time: bool = True


class MemoryCluster:
    """The brokers of one cluster.

    Args:
        now_ms: returns the time (milliseconds since 1970, UTC).
    """

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self.now_ms = now_ms or _wall_clock_ms
        self.topics: dict[str, MemoryTopic] = {}
        self.groups: dict[str, MemoryGroup] = {}
        self.transactions = Transactions()
        self.message_limit = MESSAGE_LIMIT
        self._topic_ids = count(1)

    def tick(self) -> int:
        """End expired sessions and transactions, and return the time."""
        now_ms = self.now_ms()
        self.transactions.expire(now_ms)
        for group in self.groups.values():
            group.tick(now_ms)
        return now_ms

    def add(self, spec: CategorySpec) -> None:
        """Add a category."""
        self.topics[spec.name] = MemoryTopic(
            spec, f"topic-{next(self._topic_ids)}", [BucketLog(number) for number in range(spec.buckets)]
        )

    def topic(self, name: str) -> MemoryTopic:
        """Return a category."""
        try:
            return self.topics[name]
        except KeyError:
            raise MissingCategory(
                f"There is no category {name} on the bus. Nothing was changed. Create it first."
            ) from None

    def log(self, bucket: Bucket) -> BucketLog:
        """Return a bucket."""
        return self.topic(bucket.category).logs[bucket.number]

    def limit_of(self, name: str) -> int:
        """Return the size limit of a category's messages: its setting, or the cluster's."""
        return int(self.topic(name).spec.settings.get(SIZE_SETTING, self.message_limit))

    def group(self, name: str) -> MemoryGroup:
        """Return a group; create a missing one."""
        return self.groups.setdefault(name, MemoryGroup(self._buckets))

    def bucket_of(self, name: str, message: Outgoing) -> Bucket:
        """Return the bucket of a message."""
        return Bucket(name, _number(message, self.topic(name).logs))

    def append(
        self, name: str, message: Outgoing, writer: str | None = None, *, sent_ms: int | None = None
    ) -> BucketLog:
        """Store a message; return its bucket.

        Args:
            name: the category.
            message: the message.
            writer: the writer of its transaction; None without a transaction.
            sent_ms: the writer's timestamp; by default the arrival time.
        """
        limit = self.limit_of(name)
        if size_of(message) > limit:
            raise MessageRefused(
                f"A message to {name} has {size_of(message):,} bytes, but the limit is {limit:,}. It was not stored. Make it smaller."
            )
        topic = self.topic(name)
        log = topic.logs[_number(message, topic.logs)]
        is_sent = not topic.uses_arrival_time and sent_ms is not None
        log.append(message, sent_ms if is_sent and sent_ms is not None else self.now_ms(), writer, is_sent=is_sent)
        return log

    def _buckets(self, names: Iterable[str]) -> set[Bucket]:
        return {
            Bucket(name, number)
            for name in names
            if name in self.topics
            for number in range(len(self.topics[name].logs))
        }


def _number(message: Outgoing, logs: Sequence[BucketLog]) -> int:
    if message.bucket != BY_KEY:
        return message.bucket
    if message.key is None:
        return min(range(len(logs)), key=lambda number: logs[number].end)
    return bucket_of(message.key, len(logs))


def _wall_clock_ms() -> int:
    return int(datetime.now(tz=UTC).timestamp() * 1000)
