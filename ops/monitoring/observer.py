"""The observer of processors: combines the reports of workers with figures from the bus.

reports    -> workers, throughput, ages of checkpoints and backups
watermarks -> event time
the bus    -> backlog and lag, correct also without workers
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from ...processors.time.watermarks import NEVER_MS
from ...transport.bus import Bus
from ...transport.category_spec import CategoryState
from ...transport.errors import BusError, MissingCategory
from ...transport.internal_topics import create_missing_categories
from ...transport.messages import Bucket, Position
from ...transport.tables.registrations import Registration, registrations_on
from ...transport.tables.upstream_watermarks import WATERMARKS, WatermarkOwner, WatermarkStatement, WatermarkTable
from ..clock import SystemClock
from .findings import findings_of
from .reports import (
    LOOK_BACK,
    RATES_OVER_S,
    REPORTS,
    SILENT_AFTER_S,
    Node,
    Report,
    ReportedOffsets,
    Reports,
    ShardReport,
)
from .status import ClusterStatus, ProcessorStatus, ShardStatus, WorkerStatus

HOUR_MS = 3_600_000
REGISTRATIONS_EVERY_MS = 10_000
"""The interval between reads of the processors' registrations."""


class Observer:
    """Observes all processors of a bus, or some. One thread; close it.

    Args:
        bus: the bus of the processors.
        nodes: processors to observe, also before their first run.
        others: whether to observe all other processors that report.
        now_ms: returns the time in milliseconds since 1970, UTC; by default the machine's.
        rates_over_s: the time over which rates are averaged.
    """

    def __init__(
        self,
        bus: Bus,
        nodes: Iterable[Node] = (),
        *,
        others: bool = True,
        now_ms: Callable[[], int] | None = None,
        rates_over_s: float = RATES_OVER_S,
    ) -> None:
        create_missing_categories(bus, WATERMARKS, REPORTS)
        self._bus = bus
        self._nodes = {node.name: node for node in nodes}
        self._others = others
        self._now_ms = now_ms or SystemClock().now_ms
        since = datetime.fromtimestamp(self._now_ms() / 1000, timezone.utc) - LOOK_BACK
        self._reports = Reports(bus, since, rates_over_s)
        self._watermarks = WatermarkTable(bus)
        self._waiting: dict[Position, int] = {}
        self._stalls = StallDetector()
        self._registered: dict[str, Registration] = {}
        self._registered_ms: int | None = None

    def look(self) -> ClusterStatus:
        """Return the current status of all processors."""
        self._read()
        now_ms = self._now_ms()
        stretches = self._reports.stretches(now_ms)
        nodes = self._known(stretch.last for stretch in stretches.values())
        on_bus = self._on_bus(nodes)
        standings = tuple(
            self._stalls.observe(
                _standing(
                    node,
                    now_ms,
                    [stretch for (processor, _), stretch in stretches.items() if processor == node.name],
                    on_bus,
                    self._watermarks.newest,
                )
            )
            for node in nodes
        )
        return ClusterStatus(now_ms, standings, findings_of(standings))

    def _read(self) -> None:
        """Read new reports and watermarks; the first time, all of them."""
        self._reports.read()
        self._watermarks.read_to_end()

    def _known(self, reports: Iterable[Report]) -> list[Node]:
        """Return the observed processors, upstream first; a worker's report overrides the declaration."""
        nodes = dict(self._nodes)
        for report in reports:
            if self._others or report.node.name in nodes:
                nodes[report.node.name] = report.node
        return in_order(nodes.values())

    def _on_bus(self, nodes: Sequence[Node]) -> OnBus:
        """Query the bus figure by figure, so that a failed query affects no other figure.

        Raises:
            BusError: the bus answers no query.
        """
        catalog, queries = self._bus.catalog, _Queries()
        existing = set(catalog.names())
        categories: dict[str, CategoryState] = {}
        committed: dict[tuple[str, str], Mapping[int, int]] = {}
        for name in sorted(existing.intersection(name for node in nodes for name in (*node.inputs, node.dead_letters))):
            readers = [node.name for node in nodes if name in (*node.inputs, node.dead_letters)]
            with (
                queries.isolated(f"category {name}", readers, category=name),
                suppress(MissingCategory),
            ):  # deleted since
                categories[name] = catalog.describe(name)
        for node in nodes:
            for name in categories.keys() & set(node.inputs):
                with queries.isolated(f"its committed offsets in {name}", [node.name]):
                    committed[node.name, name] = catalog.committed(node.name, name)
        self._read_registrations(nodes, queries)
        found = OnBus(categories, committed, {}, queries.failed, self._recreated(nodes, categories))
        return found._replace(waiting_ms=self._waiting_since(nodes, found, queries))

    def _read_registrations(self, nodes: Sequence[Node], queries: _Queries) -> None:
        """Read the registrations of processors at intervals, because they change rarely."""
        now_ms = self._now_ms()
        if self._registered_ms is None or now_ms - self._registered_ms >= REGISTRATIONS_EVERY_MS:
            with queries.isolated("the topics of its committed offsets", [node.name for node in nodes]):
                self._registered, self._registered_ms = registrations_on(self._bus), now_ms

    def _recreated(self, nodes: Sequence[Node], categories: Mapping[str, CategoryState]) -> dict[str, list[str]]:
        """Return the recreated inputs of each processor."""
        records = {name: list(known.shards.values()) for name, known in self._registered.items()}
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

    def _waiting_since(self, nodes: Sequence[Node], on_bus: OnBus, queries: _Queries) -> dict[Position, int | None]:
        """Return the arrival times of the first unread events, None if unknown; query only positions that moved."""
        waiting = {node.name: on_bus.unread(node) for node in nodes}
        positions = {position for unread in waiting.values() for position in unread}
        known = {position: at_ms for position, at_ms in self._waiting.items() if position in positions}
        unknown = positions - known.keys()
        try:
            known |= self._bus.catalog.waiting_since(unknown) if unknown else {}
        except BusError:  # find the categories that fail
            for name in sorted({position.bucket.category for position in unknown}):
                of_category = {position for position in unknown if position.bucket.category == name}
                readers = [reader for reader, unread in waiting.items() if not of_category.isdisjoint(unread)]
                with queries.isolated(f"its lag in {name}", readers):
                    known |= self._bus.catalog.waiting_since(of_category)
                    unknown -= of_category
        else:
            unknown = set()
        self._waiting = known
        return {**known, **dict.fromkeys(unknown)}

    def close(self) -> None:
        """Stop observing."""
        self._reports.close()
        self._watermarks.close()


class StallDetector:
    """Measures how long event time stalls between observations."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[int | None, int]] = {}  # low watermark, and since when events wait for another

    def observe(self, it: ProcessorStatus) -> ProcessorStatus:
        """Return a status with the time that its low watermark has stalled despite a backlog."""
        before = self._since.pop(it.node.name, None)
        if not it.behind:
            return it
        since_ms = before[1] if before is not None and before[0] == it.low_ms else it.at_ms
        self._since[it.node.name] = (it.low_ms, since_ms)
        return replace(it, watermark_still_s=(it.at_ms - since_ms) / 1000)


class FailedQuery(NamedTuple):
    """A query that the bus did not answer.

    Args:
        subject: the figure that is unknown.
        error: the answer of the bus.
        category: the category that could not be described; None for other queries.
    """

    subject: str
    error: BusError
    category: str | None = None

    def __str__(self) -> str:
        return f"{self.subject} ({self.error})"


class _Queries:
    """Queries to the bus that fail independently, and the failures by processor."""

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


class OnBus(NamedTuple):
    """Figures of processors from the bus.

    Args:
        categories: the existing categories.
        committed: committed offsets by bucket, for each processor and input.
        waiting_ms: arrival times of the events at positions; None if unknown, absent if no event is readable yet.
        failed: the queries without an answer, by processor.
        recreated: the recreated inputs, by processor.
    """

    categories: Mapping[str, CategoryState]
    committed: Mapping[tuple[str, str], Mapping[int, int]]
    waiting_ms: Mapping[Position, int | None]
    failed: Mapping[str, Sequence[FailedQuery]]
    recreated: Mapping[str, Sequence[str]]

    def unread(self, node: Node) -> list[Position]:
        """Return the positions of a processor in buckets with a backlog."""
        return [
            Position(Bucket(name, bucket), offset)
            for name in node.inputs
            if (node.name, name) in self.committed
            for bucket, end in self.categories[name].ends.items()
            if (offset := self._reached(node, name, bucket)) < end
        ]

    def _reached(self, node: Node, category: str, bucket: int) -> int:
        return self.committed[node.name, category].get(bucket, self.categories[category].starts[bucket])

    def knows_positions(self, node: Node) -> bool:
        """Return whether the committed offsets in all existing inputs are known."""
        return all((node.name, name) in self.committed for name in node.inputs if name in self.categories)

    def buckets(self, node: Node) -> int:
        """Return the number of a processor's shards."""
        return max((self.categories[name].spec.buckets for name in node.inputs if name in self.categories), default=0)

    def dead_letters(self, node: Node) -> int | None:
        """Return the number of dead letters of a processor; None if the bus does not report it."""
        if node.dead_letters in self.categories:
            return self.categories[node.dead_letters].events
        return None if any(query.category == node.dead_letters for query in self.failed.get(node.name, ())) else 0


def _standing(
    node: Node,
    now_ms: int,
    stretches: list[ReportedOffsets],
    on_bus: OnBus,
    promises: Mapping[WatermarkOwner, WatermarkStatement],
) -> ProcessorStatus:
    unread: dict[int, list[Position]] = {}
    for position in on_bus.unread(node):
        unread.setdefault(position.bucket.number, []).append(position)
    shards = tuple(
        _shard(
            bucket,
            now_ms,
            _Told.of(bucket, now_ms, stretches),
            _Left.of(unread.get(bucket, []), on_bus) if on_bus.knows_positions(node) else _UNKNOWN,
            promises.get((node.name, bucket)),
        )
        for bucket in range(on_bus.buckets(node))
    )
    workers = tuple(_worker(stretch, now_ms) for stretch in stretches)
    unknown = tuple(map(str, on_bus.failed.get(node.name, ())))
    recreated = tuple(on_bus.recreated.get(node.name, ()))
    return ProcessorStatus(node, now_ms, shards, workers, on_bus.dead_letters(node), unknown, recreated=recreated)


class _Told(NamedTuple):
    """What a worker says of a shard, where one has it open."""

    owner: str
    shard: ShardReport | None
    rate_in: float
    rate_out: float
    event_bytes: float | None

    @staticmethod
    def of(bucket: int, now_ms: int, stretches: list[ReportedOffsets]) -> _Told:
        heard = [stretch for stretch in stretches if now_ms - stretch.last.at_ms < SILENT_AFTER_S * 1000]
        for stretch in sorted(heard, key=lambda stretch: -stretch.last.at_ms):
            for shard in stretch.last.shards:
                if shard.bucket == bucket:
                    rate_in = stretch.shard_rate(bucket, lambda told: told.events_in)
                    rate_out = stretch.shard_rate(bucket, lambda told: told.events_out)
                    return _Told(stretch.last.worker, shard, rate_in, rate_out, _event_bytes(stretches))
        return _Told("", None, 0.0, 0.0, _event_bytes(stretches))


def _event_bytes(stretches: list[ReportedOffsets]) -> float | None:
    """Return the mean size of the events that were read lately."""
    events = sum(stretch.last.counts.events_in for stretch in stretches)
    return sum(stretch.last.counts.bytes_in for stretch in stretches) / events if events else None


class _Left(NamedTuple):
    """What is left of a shard's inputs.

    Args:
        events: how many; None where that is not known.
        since_ms: since when the first of them waits; None where none is readable yet.
        until_ms: until when it is kept.
        is_timed: whether since when is known.
    """

    events: int | None
    since_ms: int | None
    until_ms: int | None
    is_timed: bool

    def waits_s(self, now_ms: int) -> float | None:
        """Return for how long the first of them has waited."""
        if not self.is_timed:
            return None
        return 0.0 if self.since_ms is None else max(0.0, (now_ms - self.since_ms) / 1000)

    def bytes(self, of_one: float | None) -> int | None:
        """Return about how large they are, where events are that large on average."""
        return 0 if self.events == 0 else None if self.events is None or of_one is None else int(self.events * of_one)

    @staticmethod
    def of(unread: list[Position], on_bus: OnBus) -> _Left:
        events, since, until = 0, list[int](), list[int]()
        for position in unread:
            category = on_bus.categories[position.bucket.category]
            events += category.ends[position.bucket.number] - (position.offset or 0)
            arrived_ms = on_bus.waiting_ms.get(position)
            if arrived_ms is not None:
                since.append(arrived_ms)
                if category.spec.retention is not None:
                    until.append(arrived_ms + int(category.spec.retention.total_seconds() * 1000))
        is_timed = all(on_bus.waiting_ms.get(position, 0) is not None for position in unread)
        return _Left(events, min(since, default=None), min(until, default=None), is_timed)


_UNKNOWN = _Left(None, None, None, is_timed=False)


def _shard(bucket: int, now_ms: int, told: _Told, left: _Left, promise: WatermarkStatement | None) -> ShardStatus:
    low_ms = None if promise is None or promise.low_ms == NEVER_MS else promise.low_ms
    return ShardStatus(
        bucket,
        told.owner,
        left.events,
        left.bytes(told.event_bytes),
        left.waits_s(now_ms),
        None if left.until_ms is None else (left.until_ms - now_ms) / 1000,
        told.rate_in,
        told.rate_out,
        low_ms,
        promise is not None and promise.idle and told.shard is not None,
        "" if promise is None else promise.held_by,
        told.shard is not None and told.shard.catching_up,
        None if told.shard is None else told.shard.backup_age_s,
    )


def _worker(stretch: ReportedOffsets, now_ms: int) -> WorkerStatus:
    last = stretch.last
    return WorkerStatus(
        worker=last.worker,
        host=last.host,
        pid=last.pid,
        deployment=last.deployment,
        started_ms=last.started_ms,
        silent_s=max(0.0, (now_ms - last.at_ms) / 1000),
        buckets=tuple(shard.bucket for shard in last.shards),
        rate_in=stretch.rate(lambda counts: counts.events_in),
        bytes_in=stretch.rate(lambda counts: counts.bytes_in),
        rate_out=stretch.rate(lambda counts: counts.events_out),
        bytes_out=stretch.rate(lambda counts: counts.bytes_out),
        saved_s=None if last.saved_ms is None else (now_ms - last.saved_ms) / 1000,
        saving_s=last.saving_s,
        cpu=(last.cpu_s - stretch.first.cpu_s) / stretch.seconds if stretch.seconds else 0.0,
        memory_bytes=last.memory_bytes,
        restarts=sum(at > now_ms - HOUR_MS for at in last.restarts_ms),
        letters_rate=stretch.rate(lambda counts: counts.dead_letters),
        late=last.counts.late,
        dropped=last.counts.dropped,
        backup_every_s=last.backup_every_s,
        ended=last.ended,
    )


def in_order(nodes: Iterable[Node]) -> list[Node]:
    """Return processors with upstream ones first; in the order of their names where they feed one another in a circle."""
    named = sorted(nodes, key=lambda node: node.name)
    upstream = {node.name: [other.name for other in named if set(other.outputs) & set(node.inputs)] for node in named}
    by_name = {node.name: node for node in named}
    try:
        return [by_name[name] for name in TopologicalSorter(upstream).static_order()]
    except CycleError:
        return named
