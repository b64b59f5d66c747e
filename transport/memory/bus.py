"""A client of the bus in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from ...processors import counted
from ..bus import OwnershipListener, Reader
from ..category_spec import CategorySpec, CategoryState, Durability, Topic
from ..errors import BusError, BusUnreachable, CategoryExists, MissingCategory
from ..messages import Bucket, Outgoing, Position
from .cluster import MemoryCluster
from .log import BucketLog, StoredMessage
from .network import Network
from .readers import MemoryReader, MemoryScanner
from .writers import DELIVERY_LIMIT_S, MemoryTransactionalWriter, MemoryWriter

DECISION_LIMIT_S = 120.0
"""The time limit for transactions with a group's positions to be decided."""


class MemoryBus:
    """A bus that exists as long as the object. It is its own catalog.

    Args:
        now_ms: returns the arrival time of messages (milliseconds since 1970, UTC); by default the wall clock.
        cluster: the cluster, which clients may share; by default a new one.
        network: the network to it.
    """

    def __init__(
        self,
        now_ms: Callable[[], int] | None = None,
        *,
        cluster: MemoryCluster | None = None,
        network: Network | None = None,
    ) -> None:
        self.cluster = cluster or MemoryCluster(now_ms)
        self._network = network or Network()

    @property
    def catalog(self) -> MemoryBus:
        """The categories: this object."""
        return self

    def create(self, spec: CategorySpec) -> None:
        """Create a category."""

        def create() -> None:
            if spec.name in self.cluster.topics:
                raise CategoryExists(
                    f"Category {spec.name} exists already. Nothing was changed. Delete it first, or use another name."
                )
            self.cluster.add(spec)

        self._network.request("create", create)

    def delete(self, name: str) -> None:
        """Delete a category and its events; the positions of groups stay."""

        def delete() -> None:
            self.cluster.topic(name)
            del self.cluster.topics[name]

        self._network.request("delete", delete)

    def resize(self, name: str, buckets: int) -> None:
        """Raise the number of buckets."""

        def resize() -> None:
            topic = self.cluster.topic(name)
            if buckets <= topic.spec.buckets:
                raise BusError(
                    f"Category {name} has {counted(topic.spec.buckets, 'bucket')}; the number can only grow, not change to {buckets}. Nothing was changed. Use a "
                    "greater number."
                )
            topic.logs.extend(map(BucketLog, range(topic.spec.buckets, buckets)))
            topic.spec = replace(topic.spec, buckets=buckets)

        self._network.request("resize", resize)

    def names(self) -> list[str]:
        """Return the names of all categories, sorted."""
        return self._network.request("names", lambda: sorted(self.cluster.topics))

    def describe(self, name: str) -> CategoryState:
        """Return the present state of a category."""

        def describe() -> CategoryState:
            self.cluster.tick()
            topic = self.cluster.topic(name)
            starts = {number: log.start for number, log in enumerate(topic.logs)}
            ends = {number: log.end for number, log in enumerate(topic.logs)}
            return CategoryState(topic.spec, starts, ends, topic.topic_id)

        self._wait_for_leaders("describe", name)
        return self._network.request("describe", describe)

    def describe_all(self, names: Collection[str]) -> dict[str, CategoryState]:
        """Return the present states of categories, without missing ones."""
        found: dict[str, CategoryState] = {}
        for name in names:
            with suppress(MissingCategory):
                found[name] = self.describe(name)
        return found

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return the ids and sizes of categories, without missing ones."""

        def read() -> dict[str, Topic]:
            found = {name: self.cluster.topics[name] for name in names if name in self.cluster.topics}
            return {name: Topic(topic.topic_id, len(topic.logs)) for name, topic in found.items()}

        return self._network.request("describe", read)

    def durability(self, name: str) -> Durability:
        """Return safe settings: messages are durable as long as the object exists."""
        return Durability(3, 2, unclean_election=False, uses_arrival_time=self.cluster.topic(name).uses_arrival_time)

    def message_limit(self, name: str) -> int:
        """Return the size limit of a message."""
        return self.cluster.limit_of(name)

    def ends(self, name: str) -> dict[int, int]:
        """Return the offset after the last event of each bucket, including open transactions."""
        return self._offsets(name, lambda log: log.end)

    def ends_of(self, buckets: Collection[Bucket]) -> dict[Bucket, int]:
        """Return the offset after the last event of each bucket, including open transactions, with one request."""

        def read() -> dict[Bucket, int]:
            self.cluster.tick()
            return {bucket: self.cluster.log(bucket).end for bucket in buckets}

        self._network.wait_for_leaders("ends", buckets)
        return self._network.request("ends", read)

    def stable_ends(self, name: str) -> dict[int, int]:
        """Return the end of each bucket for readers, before the first open transaction."""
        return self._offsets(name, lambda log: log.stable_end)

    def at_time(self, name: str, time: datetime) -> dict[int, int]:
        """Return, by bucket, the offset of the first event that arrived at `time` or later; the end if there is none."""
        since_ms = int(time.timestamp() * 1000)
        return self._offsets(name, lambda log: log.first_since(since_ms))

    def _offsets(self, name: str, offset_in: Callable[[BucketLog], int]) -> dict[int, int]:
        def read() -> dict[int, int]:
            self.cluster.tick()
            return {number: offset_in(log) for number, log in enumerate(self.cluster.topic(name).logs)}

        self._wait_for_leaders("ends", name)
        return self._network.request("ends", read)

    def _wait_for_leaders(self, what: str, name: str) -> None:
        topic = self.cluster.topics.get(name)
        numbers = range(0 if topic is None else len(topic.logs))
        self._network.wait_for_leaders(what, [Bucket(name, number) for number in numbers])

    def waiting_since(self, positions: Collection[Position]) -> dict[Position, int]:
        """Return when the first event at or after each position arrived at the bus, also one of an open transaction."""
        arrived_ms = {
            position: self.cluster.log(position.bucket).arrived_ms(position.offset or 0) for position in positions
        }
        return {position: at_ms for position, at_ms in arrived_ms.items() if at_ms is not None}

    def committed(self, group: str, name: str) -> dict[int, int]:
        """Return a group's committed positions in a category, by bucket."""
        return {position.bucket.number: position.offset or 0 for position in self.positions(group, name)}

    def committed_of(self, readers: Collection[tuple[str, str]]) -> dict[tuple[str, str], dict[int, int]]:
        """Return the committed positions of several groups, each in a category."""
        return {reader: self.committed(*reader) for reader in readers}

    def positions(self, group: str, name: str) -> list[Position]:
        """Return a group's committed positions in a category, each with the checkpoint that committed it.

        Waits for open transactions with positions in the category.
        """
        self.cluster.topic(name)  # a missing one is an error, as on Kafka
        if group not in self.cluster.groups:
            return []
        consumer_group = self.cluster.group(group)

        def decided() -> bool:
            self.cluster.tick()
            return not any(
                position.bucket.category == name
                for positions in consumer_group.undecided.values()
                for position in positions
            )

        if not (decided() or self._network.wait(decided, DECISION_LIMIT_S)):
            raise BusUnreachable(
                f"The positions of group {group} in {name} were not read: a transaction is still undecided. Nothing was changed. Try again."
            )
        return self._network.request(
            "positions",
            lambda: sorted(
                position for bucket, position in consumer_group.committed.items() if bucket.category == name
            ),
        )

    def set_committed(self, group: str, positions: Sequence[Position]) -> None:
        """Set the positions of a group without members."""

        def record() -> None:
            self.cluster.tick()
            self.cluster.group(group).expect_empty(group)
            self.cluster.group(group).record(positions)

        self._network.request("set positions", record)

    def forget_group(self, group: str) -> None:
        """Delete a group without members, and its positions."""

        def forget() -> None:
            self.cluster.tick()
            self.cluster.group(group).expect_empty(group)
            del self.cluster.groups[group]

        self._network.request("forget group", forget)

    def reader(
        self, group: str, categories: Sequence[str], ownership: OwnershipListener, identity: str | None = None
    ) -> MemoryReader:
        """Join a consumer group."""
        return MemoryReader(self.cluster, self._network, group, categories, ownership, identity=identity)

    def scanner(self, positions: Sequence[Position]) -> MemoryScanner:
        """Return a reader of buckets from given offsets, outside of any group."""
        return MemoryScanner(self.cluster, self._network, positions)

    def writer(self, limit_s: float | None = None) -> MemoryWriter:
        """Return a writer."""
        return MemoryWriter(self.cluster, self._network, DELIVERY_LIMIT_S if limit_s is None else limit_s)

    def expect_transactions(self, identity: str) -> None:
        """Return: this bus always has transactions."""

    def transactional_writer(
        self,
        identity: str,
        member: Reader | None,
        timeout_s: float,
        writes: Collection[str],
    ) -> MemoryTransactionalWriter:
        """Return a writer whose commits include the positions of `member`.

        Fences earlier writers of the identity, and aborts their open transactions in the categories.

        Raises:
            TypeError: `member` is not a member of a group on this bus.
        """
        if member is not None and not isinstance(member, MemoryReader):
            raise TypeError(
                f"{member!r} is not a group reader of this bus, so transactions cannot include its positions"
            )
        return MemoryTransactionalWriter(self.cluster, self._network, identity, member, timeout_s, writes=writes)

    def kill_members(self, group: str) -> None:
        """Remove all members of a group, as if their processes were killed and their sessions had ended."""
        self.cluster.group(group).members.clear()

    def append(self, name: str, message: Outgoing) -> None:
        """Store one message."""
        self.cluster.append(name, message)

    def slice(self, bucket: Bucket, start: int, limit: int) -> list[StoredMessage]:
        """Return up to `limit` committed messages of a bucket from an offset on."""
        return self.cluster.log(bucket).committed(start, limit)

    def trim(self, bucket: Bucket, start: int) -> None:
        """Delete messages before an offset, as retention does."""
        self.cluster.log(bucket).trim(start)
