"""The observer of processors: combines the reports of workers with figures from Kafka.

reports    -> workers, throughput, ages of checkpoints and backups
watermarks -> event time
Kafka      -> backlog and lag, correct also without workers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from graphlib import CycleError, TopologicalSorter
from threading import Lock

from ...transport import Bus, BusError
from ...transport.tables import WatermarkTable
from ..deploy import DeployedProcessors, none_deployed
from ..kernel import (
    RATE_WINDOW_S,
    REPORT_HISTORY,
    REPORT_INTERVAL_S,
    SILENT_AFTER_S,
    Node,
    OutageTracker,
    Report,
    ReportReader,
)
from ..shell import SystemClock
from .bus_figures import BusFigureReader
from .findings import findings_of
from .servers import server_findings, servers_of
from .states import ProcessorState
from .status import ClusterStatus, LoopStatus, ProcessorStatus
from .status_builder import processor_status
from .unread import UnreadResults

FIRST_REPORT_PAUSES = 3
"""How many intervals between reports pass at most until a worker that could not reach Kafka reports again."""


class Observer:
    """Observes all processors of a Kafka cluster, or some. Open it with `open`, and close it. Threads may share it.

    Args:
        reports: the reports of workers.
        watermarks: the published watermarks.
        figures: the figures from Kafka.
        nodes: processors to observe, also before their first run.
        include_others: whether to observe all other processors that report.
        now_ms: returns the time in milliseconds since 1970, UTC.
        deployed: returns the deployments on this machine.
        unread: finds unread results.
        outages: tracks outages of Kafka.
    """

    def __init__(
        self,
        reports: ReportReader,
        watermarks: WatermarkTable,
        figures: BusFigureReader,
        nodes: Iterable[Node],
        *,
        include_others: bool,
        now_ms: Callable[[], int],
        deployed: DeployedProcessors,
        unread: UnreadResults,
        outages: OutageTracker,
    ) -> None:
        self._reports = reports
        self._watermarks = watermarks
        self._figures = figures
        self._nodes = {node.name: node for node in nodes}
        self._include_others = include_others
        self._now_ms = now_ms
        self._deployed = deployed
        self._unread = unread
        self._stalls = StallDetector()
        self._outages = outages
        self._one_at_a_time = Lock()

    @classmethod
    def open(
        cls,
        bus: Bus,
        nodes: Iterable[Node] = (),
        *,
        include_others: bool = True,
        now_ms: Callable[[], int] | None = None,
        rate_window_s: float = RATE_WINDOW_S,
        deployed: DeployedProcessors = none_deployed,
        outages: OutageTracker | None = None,
    ) -> Observer:
        """Return an observer of a cluster. It creates nothing: categories of reports and watermarks that are missing are empty.

        Args:
            bus: the bus of the processors.
            nodes: processors to observe, also before their first run.
            include_others: whether to observe all other processors that report.
            now_ms: returns the time in milliseconds since 1970, UTC; by default the machine's.
            rate_window_s: the time over which rates are averaged.
            deployed: returns the deployments on this machine.
            outages: tracks outages of Kafka, for observers that replace each other or wait for Kafka; by default for this one.

        Raises:
            BusError: Kafka does not answer.
        """
        now_ms, outages = now_ms or SystemClock().now_ms, outages or OutageTracker()
        since = datetime.fromtimestamp(now_ms() / 1000, UTC) - REPORT_HISTORY
        try:
            with ExitStack() as opened:
                reports = opened.enter_context(closing(ReportReader.open(bus, since, rate_window_s)))
                watermarks = opened.enter_context(closing(WatermarkTable(bus, may_be_missing=True)))
                opened.pop_all()
        except BusError:
            outages.note_failure()
            raise
        figures = BusFigureReader(bus, now_ms)
        return cls(
            reports,
            watermarks,
            figures,
            nodes,
            include_others=include_others,
            now_ms=now_ms,
            deployed=deployed,
            unread=UnreadResults(bus),
            outages=outages,
        )

    def observe(self) -> ClusterStatus:
        """Return the current status of all processors. The first call reads all earlier reports and watermarks.

        Threads that call it at the same time wait for each other, such as scrapes of two Prometheus servers.

        Raises:
            BusError: Kafka does not answer.
        """
        with self._one_at_a_time:
            try:
                return self._observe()
            except BusError:
                self.note_outage()
                raise

    def observe_once(self, pause: Callable[[float], None]) -> ClusterStatus:
        """Return the current status, for a process that has not observed before.

        If processors seem lost, and no worker of any processor has reported lately, Kafka may have been unreachable until now. If that is so,
        workers report again within seconds, so it waits for one.

        Args:
            pause: waits for some seconds.

        Raises:
            BusError: Kafka does not answer.
        """
        cluster, newest_ms = self.observe(), self._reports.newest_ms
        is_lost = any(status.state is ProcessorState.LOST for status in cluster.processors)
        if not is_lost or cluster.at_ms - newest_ms <= SILENT_AFTER_S * 1000:
            return cluster
        for _ in range(FIRST_REPORT_PAUSES):
            pause(REPORT_INTERVAL_S)
            cluster = self.observe()
            if self._reports.newest_ms > newest_ms:
                self._outages.note_unseen(newest_ms, cluster.at_ms)
                return self.observe()
        return cluster

    def note_outage(self) -> None:
        """Note that Kafka did not answer, or may not have: the time until the next observation is no silence of workers."""
        self._outages.note_failure()

    def _observe(self) -> ClusterStatus:
        self._reports.read()
        self._watermarks.read_to_end()
        now_ms = self._now_ms()
        intervals = self._reports.intervals(now_ms)
        nodes = self._observed(interval.last for interval in intervals.values())
        figures, deployed = self._figures.read(nodes), self._deployed()
        self._outages.note_answer(now_ms)
        observed = (
            self._stalls.observe(
                processor_status(
                    node,
                    now_ms,
                    [interval for (processor, _), interval in intervals.items() if processor == node.name],
                    figures,
                    self._watermarks.newest,
                    deployed=deployed.get(node.name),
                    outage=self._outages.last,
                )
            )
            for node in nodes
        )
        processors = with_loops([status for status in observed if self._is_known(status)])
        servers = servers_of(deployed, now_ms) if self._include_others else ()
        others = [*server_findings(servers)]
        if self._include_others:  # otherwise, the readers of the results may be unknown
            others += self._unread.findings([status.node for status in processors], now_ms)
        return ClusterStatus(now_ms, processors, findings_of(processors, others), servers)

    def _is_known(self, status: ProcessorStatus) -> bool:
        """Return whether a processor is declared, deployed or reporting, or could still read an input. The other ones left only a registration."""
        is_present = status.node.name in self._nodes or status.deployed is not None or bool(status.workers)
        return is_present or bool(status.shards) or bool(status.failed_queries)

    def _observed(self, reports: Iterable[Report]) -> list[Node]:
        """Return the observed processors, upstream ones first; a declaration overrides the registration, and a worker's report overrides both."""
        nodes = dict(self._nodes)
        if self._include_others:
            nodes = {node.name: node for node in self._figures.registered_nodes()} | nodes
        for report in reports:
            if self._include_others or report.node.name in nodes:
                nodes[report.node.name] = report.node
        return upstream_first(nodes.values())

    def close(self) -> None:
        """Close the connections to Kafka."""
        with closing(self._watermarks):
            self._reports.close()


class StallDetector:
    """Measures how long the low watermark of each processor stalls, from observation to observation."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[int | None, int]] = {}
        """The low watermark of each processor with a backlog, and the first observation of it (milliseconds since 1970, UTC)."""

    def observe(self, status: ProcessorStatus) -> ProcessorStatus:
        """Return a status with the time that its low watermark has stalled despite a backlog."""
        before = self._since.pop(status.node.name, None)
        if not status.backlog_events:
            return status
        low_ms = status.low_watermark_ms
        since_ms = before[1] if before is not None and before[0] == low_ms else status.at_ms
        self._since[status.node.name] = (low_ms, since_ms)
        return replace(status, watermark_stall_s=(status.at_ms - since_ms) / 1000)


def with_loops(statuses: Sequence[ProcessorStatus]) -> tuple[ProcessorStatus, ...]:
    """Return the status of processors with the status of their loops: what they write returns to them."""
    readers = {
        status.node.name: {other.node.name for other in statuses if set(status.node.outputs) & set(other.node.inputs)}
        for status in statuses
    }
    return tuple(replace(status, loop=_loop_of(status, statuses, readers)) for status in statuses)


def _loop_of(
    status: ProcessorStatus, statuses: Sequence[ProcessorStatus], readers: Mapping[str, set[str]]
) -> LoopStatus | None:
    name = status.node.name
    members = [
        other for other in statuses if _leads(name, other.node.name, readers) and _leads(other.node.name, name, readers)
    ]
    if not members:
        return None
    written = {category for member in members for category in member.node.outputs}
    counts = [
        member.unread.get(category) for member in members for category in written.intersection(member.node.inputs)
    ]
    known = [count for count in counts if count is not None]
    circulating = sum(known) if len(known) == len(counts) else None
    return LoopStatus(tuple(member.node.name for member in members), circulating)


def _leads(begin: str, end: str, readers: Mapping[str, set[str]]) -> bool:
    """Return whether outputs of a processor reach another, directly or through others."""
    found, ahead = set[str](), set(readers[begin])
    while ahead:
        found |= ahead
        ahead = {further for name in ahead for further in readers[name]} - found
    return end in found


def upstream_first(nodes: Iterable[Node]) -> list[Node]:
    """Return processors with upstream ones first; by name if they form a cycle."""
    named = sorted(nodes, key=lambda node: node.name)
    upstream = {node.name: [other.name for other in named if set(other.outputs) & set(node.inputs)] for node in named}
    by_name = {node.name: node for node in named}
    try:
        return [by_name[name] for name in TopologicalSorter(upstream).static_order()]
    except CycleError:
        return named
