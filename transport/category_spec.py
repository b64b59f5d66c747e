"""Categories on the bus: their declaration and their present state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from ..processors.declare import AnyCategory
from .errors import SettingNotReported

_CLEANUP, _DELETE_RETENTION, _RETENTION = "cleanup.policy", "delete.retention.ms", "retention.ms"
_DELETIONS_BY_DEFAULT = timedelta(days=1)


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
        preferred: the names of those without which a cluster that refuses them may create the topic.
    """

    name: str
    buckets: int
    retention: timedelta | None = None
    compacted: bool = False
    delete_retention: timedelta | None = None
    replicas: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)
    preferred: frozenset[str] = frozenset()

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
        unknown: settings that the bus does not report, each with the reason; `spec` has defaults in their place.
    """

    spec: CategorySpec
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    topic_id: str
    unknown: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def events(self) -> int:
        """The number of offsets between start and end, which includes the markers of transactions."""
        return sum(self.ends.values()) - sum(self.starts.values())

    @property
    def retention_is_unknown(self) -> bool:
        """Whether the bus does not report how long it keeps events."""
        return _RETENTION in self.unknown

    @property
    def may_be_compacted(self) -> bool:
        """Whether the bus keeps only the last message of each key, or does not report it."""
        return self.spec.compacted or _CLEANUP in self.unknown

    @property
    def least_delete_retention(self) -> timedelta | None:
        """How long a compacted category keeps deletions at least, Kafka's default if the bus does not report it; None for the bus's default."""
        return _DELETIONS_BY_DEFAULT if _DELETE_RETENTION in self.unknown else self.spec.delete_retention

    def expect_known_cleanup(self) -> None:
        """Raise SettingNotReported if it is unknown whether the category is compacted."""
        if _CLEANUP in self.unknown:
            raise SettingNotReported(
                f"It is unknown whether category {self.spec.name} is compacted ({_CLEANUP}): {self.unknown[_CLEANUP]}."
            )


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
    """The replication and timestamp settings of a category; None where the bus does not report one.

    Args:
        replicas: the number of brokers that store each bucket.
        min_in_sync: the number of replicas that must have a message before the bus acknowledges it.
        unclean_election: whether a replica that lacks messages may become the leader.
        uses_arrival_time: whether timestamps are the bus's arrival times instead of the writers' times.
        unknown: the settings that the bus does not report, each with the reason.
    """

    replicas: int
    min_in_sync: int | None
    unclean_election: bool | None
    uses_arrival_time: bool | None
    unknown: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_safe(self) -> bool | None:
        """Whether every acknowledged message survives the loss of one broker; None if unknown."""
        found = (
            self.replicas >= 3,
            None if self.min_in_sync is None else self.min_in_sync >= 2,
            None if self.unclean_election is None else not self.unclean_election,
        )
        return False if False in found else None if None in found else True

    def timestamp_warning(self, category: str) -> str:
        """Return what it means that a category has its producers' timestamps, or may have; empty if it has the broker's."""
        if self.uses_arrival_time:
            return ""
        if self.uses_arrival_time is None:
            return (
                f"It was not checked whether arrival times of {category} come from its producers: message.timestamp.type is unknown, because "
                f"{self.unknown['message.timestamp.type']}."
            )
        return (
            f"Arrival times of {category} come from its producers (message.timestamp.type=CreateTime). Its lag, `max_future` and the merge order of several "
            "inputs depend on their clocks. Set message.timestamp.type=LogAppendTime on the topic to use the broker's time."
        )
