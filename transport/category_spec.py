"""Categories on the bus: their declaration and their present state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from ..processors.declare import AnyCategory


@dataclass(frozen=True)
class CategorySpec:
    """The settings of a category.

    Args:
        name: its name.
        buckets: the number of buckets.
        retention: how long the bus keeps events; None for ever.
        compacted: whether the bus keeps the last message of each key instead.
        delete_retention: how long a compacted category keeps deletions at least; None for the bus's default.
        replicas: the number of brokers that store each bucket; None for the default.
        settings: further settings of a new topic.
    """

    name: str
    buckets: int
    retention: timedelta | None = None
    compacted: bool = False
    delete_retention: timedelta | None = None
    replicas: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)

    @staticmethod
    def of(category: AnyCategory) -> CategorySpec:
        """Return the settings of a declared category."""
        return CategorySpec(
            category.name,
            category.buckets,
            category.retention,
            compacted=category.compacted,
            replicas=category.replicas,
            settings=category.settings,
        )


@dataclass(frozen=True)
class CategoryState:
    """The present state of a category.

    Args:
        spec: its settings on the bus.
        starts: the first kept offset, by bucket.
        ends: the offset after the last event, by bucket.
        topic_id: the id that the bus assigns; a category that was deleted and created again has a new id.
    """

    spec: CategorySpec
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    topic_id: str

    @property
    def events(self) -> int:
        """The number of offsets between start and end, which includes the markers of transactions."""
        return sum(self.ends.values()) - sum(self.starts.values())


class Topic(NamedTuple):
    """The identity and size of a category, which change when it is created again or resized.

    Args:
        id: the topic id; see `CategoryState`.
        buckets: the number of buckets.
    """

    id: str
    buckets: int


@dataclass(frozen=True)
class Durability:
    """The replication and timestamp settings of a category.

    Args:
        replicas: the number of brokers that store each bucket.
        min_in_sync: the number of replicas that must have a message before the bus acknowledges it.
        unclean_election: whether a replica that lacks messages may become the leader.
        uses_arrival_time: whether timestamps are the bus's arrival times instead of the writers' times.
    """

    replicas: int
    min_in_sync: int
    unclean_election: bool
    uses_arrival_time: bool

    @property
    def is_safe(self) -> bool:
        """Whether every acknowledged message survives the loss of one broker."""
        return self.replicas >= 3 and self.min_in_sync >= 2 and not self.unclean_election

    def timestamp_warning(self, category: str) -> str:
        """Return what it means that a category has its producers' timestamps, and how to use the broker's; empty if it has the broker's."""
        if self.uses_arrival_time:
            return ""
        return (
            f"Arrival times of {category} come from its producers (message.timestamp.type=CreateTime). Its lag, `max_future` and the merge order of several "
            "inputs depend on their clocks. Set message.timestamp.type=LogAppendTime on the topic to use the broker's time."
        )
