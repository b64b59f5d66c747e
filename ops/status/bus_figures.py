"""Figures of processors from Kafka: backlog, lag, dead letters and recreated inputs. They are correct also without workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ...transport import (
    BLOCKED_AFTER_S,
    Bucket,
    Bus,
    BusError,
    CategoryState,
    MissingCategory,
    OpenTransaction,
    Position,
    old_transactions,
)
from ...transport.tables import Registration, registrations_on
from ..dead_letters import PendingLetters
from ..kernel import Node

REGISTRATIONS_INTERVAL_MS = 10_000
"""The interval between reads of the processors' registrations."""
DEFAULT_CHECKPOINT_S = 1.0
"""The interval between checkpoints of a processor that only its registration names. It matters only for running workers, which report theirs."""


class FailedQuery(NamedTuple):
    """A query that Kafka did not answer.

    Args:
        subject: the figure that is unknown.
        error: the error.
        category: the category that could not be described; None for other queries.
    """

    subject: str
    error: BusError
    category: str | None = None

    def __str__(self) -> str:
        return f"{self.subject} ({self.error})"


class BusFigures(NamedTuple):
    """Figures of processors from Kafka at one moment.

    Args:
        existing: the names of all categories.
        categories: the inputs and dead letters that exist.
        committed: committed offsets by bucket, for each processor and input.
        arrived_ms: arrival times of the first unread events (milliseconds since 1970, UTC), by position; None if unknown. Absent if no event is
            readable yet.
        failed: the queries without an answer, by processor.
        recreated: the inputs that were deleted and created again, by processor.
        registered: the names of the registered processors; None if unknown.
        pending_letters: the numbers of pending dead letters, by processor; absent if unknown or without a category.
        blocked: open transactions that block buckets with a backlog for long.
    """

    existing: frozenset[str]
    categories: Mapping[str, CategoryState]
    committed: Mapping[tuple[str, str], Mapping[int, int]]
    arrived_ms: Mapping[Position, int | None]
    failed: Mapping[str, Sequence[FailedQuery]]
    recreated: Mapping[str, Sequence[str]]
    registered: frozenset[str] | None
    pending_letters: Mapping[str, int]
    blocked: Mapping[Bucket, OpenTransaction] = {}

    def blocking(self, position: Position) -> OpenTransaction | None:
        """Return the open transaction that a reader at a position waits for; None without one, or if there are events before it."""
        transaction = self.blocked.get(position.bucket)
        return transaction if transaction is not None and (position.offset or 0) >= transaction.offset else None

    def unread_positions(self, node: Node) -> list[Position]:
        """Return the positions of a processor in buckets with a backlog."""
        return [
            Position(Bucket(name, bucket), offset)
            for name in node.inputs
            if (node.name, name) in self.committed
            for bucket, end in self.categories[name].ends.items()
            if (offset := self._next_offset(node, name, bucket)) < end
        ]

    def _next_offset(self, node: Node, category: str, bucket: int) -> int:
        return self.committed[node.name, category].get(bucket, self.categories[category].starts[bucket])

    def has_positions(self, node: Node) -> bool:
        """Return whether the committed offsets in all existing inputs are known."""
        return all((node.name, name) in self.committed for name in node.inputs if name in self.categories)

    def shard_count(self, node: Node) -> int:
        """Return the number of a processor's shards."""
        return max((self.categories[name].spec.buckets for name in node.inputs if name in self.categories), default=0)

    def dead_letters(self, node: Node) -> int | None:
        """Return the number of pending dead letters of a processor; None if unknown."""
        if node.dead_letters in self.categories:
            return self.pending_letters.get(node.name)
        return None if any(query.category == node.dead_letters for query in self.failed.get(node.name, ())) else 0


class BusFigureReader:
    """Reads figures of processors from Kafka. One thread.

    Args:
        bus: the bus of the processors.
        now_ms: returns the time in milliseconds since 1970, UTC.
    """

    def __init__(self, bus: Bus, now_ms: Callable[[], int]) -> None:
        self._bus = bus
        self._now_ms = now_ms
        self._letters = PendingLetters(bus)
        self._arrived_ms: dict[Position, int] = {}
        self._registrations: dict[str, Registration] | None = None
        self._registrations_ms: int | None = None

    def read(self, nodes: Sequence[Node]) -> BusFigures:
        """Query Kafka figure by figure, so that a failed query affects no other figure.

        Raises:
            BusError: Kafka answers no query.
        """
        queries = _Queries()
        existing = frozenset(self._bus.catalog.names())
        categories = self._categories(nodes, existing, queries)
        committed = self._committed(nodes, categories, queries)
        self._read_registrations(nodes, queries)
        registered = None if self._registrations is None else frozenset(self._registrations)
        figures = BusFigures(
            existing,
            categories,
            committed,
            {},
            queries.failed,
            self._recreated(nodes, categories),
            registered,
            self._pending_letters(nodes, categories, queries),
        )
        figures = figures._replace(arrived_ms=self._arrivals(nodes, figures, queries))
        return figures._replace(blocked=self._blocked(figures, queries))

    def _blocked(self, figures: BusFigures, queries: _Queries) -> dict[Bucket, OpenTransaction]:
        """Return the open transactions in categories whose oldest unread event waits for longer than a transaction usually takes."""
        now_ms = self._now_ms()
        names = {
            position.bucket.category
            for position, arrived_ms in figures.arrived_ms.items()
            if arrived_ms is not None and now_ms - arrived_ms >= BLOCKED_AFTER_S * 1000
        }
        blocked: dict[Bucket, OpenTransaction] = {}
        for name in names:
            readers = [processor for processor, category in figures.committed if category == name]
            with queries.isolated(f"its open transactions in {name}", readers):
                blocked |= {found.bucket: found for found in old_transactions(self._bus, [name], now_ms)}
        return blocked

    def _categories(
        self, nodes: Sequence[Node], existing: frozenset[str], queries: _Queries
    ) -> dict[str, CategoryState]:
        names = sorted(existing.intersection(name for node in nodes for name in (*node.inputs, node.dead_letters)))
        try:
            return self._bus.catalog.describe_all(names)
        except BusError:
            return self._categories_one_by_one(nodes, names, queries)

    def _categories_one_by_one(
        self, nodes: Sequence[Node], names: Iterable[str], queries: _Queries
    ) -> dict[str, CategoryState]:
        """Find the categories that fail."""
        categories: dict[str, CategoryState] = {}
        for name in names:
            readers = [node.name for node in nodes if name in (*node.inputs, node.dead_letters)]
            # A category may be deleted after the list of names was read.
            with queries.isolated(f"category {name}", readers, category=name), suppress(MissingCategory):
                categories[name] = self._bus.catalog.describe(name)
        return categories

    def _committed(
        self, nodes: Sequence[Node], categories: Mapping[str, CategoryState], queries: _Queries
    ) -> dict[tuple[str, str], Mapping[int, int]]:
        readers = [(node.name, name) for node in nodes for name in sorted(categories.keys() & set(node.inputs))]
        committed: dict[tuple[str, str], Mapping[int, int]] = {}
        try:
            committed.update(self._bus.catalog.committed_of(readers))
        except BusError:  # find the groups that fail
            for group, name in readers:
                with queries.isolated(f"its committed offsets in {name}", [group]):
                    committed[group, name] = self._bus.catalog.committed(group, name)
        return committed

    def _pending_letters(
        self, nodes: Sequence[Node], categories: Mapping[str, CategoryState], queries: _Queries
    ) -> dict[str, int]:
        pending: dict[str, int] = {}
        for node in nodes:
            state = categories.get(node.dead_letters)
            if state is not None:
                with queries.isolated("its pending dead letters", [node.name]):
                    pending[node.name] = self._letters.count(node.name, node.dead_letters, state)
        return pending

    def registered_nodes(self) -> list[Node]:
        """Return the registered processors: all that have run and were not purged. A failed query returns the last known ones."""
        with suppress(BusError):  # `read` repeats the query, and records the failure
            self._refresh_registrations()
        return [
            Node(name, "", tuple(registration.inputs), (), f"{name}.dead_letters", DEFAULT_CHECKPOINT_S)
            for name, registration in (self._registrations or {}).items()
            if registration.inputs
        ]

    def _read_registrations(self, nodes: Sequence[Node], queries: _Queries) -> None:
        with queries.isolated("the topics of its committed offsets", [node.name for node in nodes]):
            self._refresh_registrations()

    def _refresh_registrations(self) -> None:
        """Read the registrations of processors at intervals, because they change rarely."""
        now_ms = self._now_ms()
        if self._registrations_ms is None or now_ms - self._registrations_ms >= REGISTRATIONS_INTERVAL_MS:
            self._registrations, self._registrations_ms = registrations_on(self._bus), now_ms

    def _recreated(self, nodes: Sequence[Node], categories: Mapping[str, CategoryState]) -> dict[str, list[str]]:
        """Return the inputs of each processor whose topic differs from the registered one."""
        registrations = self._registrations or {}
        records = {name: list(registration.shards.values()) for name, registration in registrations.items()}
        return {
            node.name: [
                name
                for name in node.inputs
                if name in categories
                and any(
                    record.topic_ids.get(name, categories[name].topic_id) != categories[name].topic_id
                    for record in records.get(node.name, ())
                )
            ]
            for node in nodes
        }

    def _arrivals(self, nodes: Sequence[Node], figures: BusFigures, queries: _Queries) -> dict[Position, int | None]:
        """Return the arrival times of the first unread events; query only positions that have changed."""
        unread = {node.name: figures.unread_positions(node) for node in nodes}
        positions = {position for of_node in unread.values() for position in of_node}
        arrived_ms = {position: at_ms for position, at_ms in self._arrived_ms.items() if position in positions}
        missing = positions - arrived_ms.keys()
        try:
            arrived_ms |= self._bus.catalog.waiting_since(missing) if missing else {}
        except BusError:  # find the categories that fail
            for name in sorted({position.bucket.category for position in missing}):
                of_category = {position for position in missing if position.bucket.category == name}
                readers = [reader for reader, of_node in unread.items() if not of_category.isdisjoint(of_node)]
                with queries.isolated(f"its lag in {name}", readers):
                    arrived_ms |= self._bus.catalog.waiting_since(of_category)
                    missing -= of_category
        else:
            missing = set()
        self._arrived_ms = arrived_ms
        return {**arrived_ms, **dict.fromkeys(missing)}


class _Queries:
    """Queries that fail independently, and the failures by processor."""

    def __init__(self) -> None:
        self.failed: dict[str, list[FailedQuery]] = defaultdict(list)

    @contextmanager
    def isolated(self, subject: str, processors: Iterable[str], *, category: str | None = None) -> Iterator[None]:
        """Record a failure of the block for each processor, and continue."""
        try:
            yield
        except BusError as error:
            for processor in processors:
                self.failed[processor].append(FailedQuery(subject, error, category))
