"""Status reports of workers: each worker publishes one every few seconds.

    penstock.reports, retained for a day    key  processor/worker    value  a report as JSON

Observers read the newest reports. A rate is the difference between two reports of one process, divided by the time between them.
The age of a report follows from its arrival at the bus, because the clock of a worker's machine may be wrong.
A worker publishes without waiting for an answer. While Kafka does not answer, its reports are missing. Observers that noticed the outage do not
count that time as silence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import closing
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict

from ....processors import Counts, ReportedFigures, ShardFigures
from ....processors.declare import Processor, dead_letters_of, plan_of
from ....processors.lookups import TableSize
from ....transport import Bus, CategorySpec, Outgoing
from ....transport.tables import BusTable, TableKeys, TableReader
from .outages import SILENT_AFTER_S, Outage

REPORTS = CategorySpec("penstock.reports", buckets=1, retention=timedelta(days=1))
"""The category of reports."""
REPORT_INTERVAL_S = 2.0
"""The interval between two reports of a worker."""
RATE_WINDOW_S = 60.0
"""The default time over which rates are averaged."""
RECENT = timedelta(minutes=5)
"""The age of reports that may be the last ones of running workers: more than the difference between the clocks of two machines."""
REPORT_HISTORY = timedelta(hours=1)
"""The oldest report that an observer reads. It omits workers whose last report is older."""


class Node(msgspec.Struct, frozen=True):
    """A processor in the graph of processors and categories.

    Args:
        name: its name.
        kind: its base class in lower case: "stateless", "stateful", "aggregator", …
        inputs: its input categories.
        outputs: its output categories.
        dead_letters: the category of its dead letters.
        checkpoint_s: the interval between its checkpoints in seconds.
        sinks: the names of its sinks.
        local_outputs: its outputs on the cluster of its inputs; empty in reports of earlier versions.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dead_letters: str
    checkpoint_s: float
    sinks: tuple[str, ...] = ()
    local_outputs: tuple[str, ...] = ()


class ShardReport(ShardFigures, frozen=True, kw_only=True):
    """The part of a report about one open shard, with its figures.

    Args:
        bucket: its bucket number.
        position: the next unread offset by input category.
        events_in: events read since the worker opened it.
        events_out: records written since then.
        low_ms: its low watermark (milliseconds since 1970, UTC).
        catching_up: whether it processes events again to rebuild its state, without outputs.
        hot_key: the most frequent key of its recent events; empty without enough events.
    """

    bucket: int
    position: dict[str, int]
    events_in: int
    events_out: int
    low_ms: int
    catching_up: bool = False
    hot_key: str = ""


class Report(ReportedFigures, frozen=True, kw_only=True):
    """A report of one worker about itself, with its figures.

    Args:
        node: its processor.
        worker: its name; a restart keeps it.
        host: its machine.
        pid: its process ID.
        started_ms: its start (milliseconds since 1970, UTC).
        at_ms: the time of the report.
        shards: its open shards.
        counts: its counts since its start.
        last_checkpoint_ms: the end of its last checkpoint; None before the first.
        cpu_s: the CPU time that it has used, in seconds.
        idle_s: the seconds for which its loop had no events to process.
        blocked_s: the seconds for which its loop waited until a checkpoint ended.
        restarts_ms: its recent restarts after failures.
        table: the size of its lookup table in memory; None without one.
        waits_for: the sink, store or other service for whose answer it has waited longest, or `OWN_CODE` with a line; empty without one.
        waits_s: for how long, in seconds.
        deployment: the deployment that started it, as ``name@version``; empty if a user started it.
        end_reason: empty while it runs; then "stopped", or its error.
        until_end: whether it stops at the end of its input.
    """

    node: Node
    worker: str
    host: str
    pid: int
    started_ms: int
    at_ms: int
    shards: tuple[ShardReport, ...]
    counts: Counts
    last_checkpoint_ms: int | None = None
    cpu_s: float = 0.0
    idle_s: float = 0.0
    blocked_s: float = 0.0
    restarts_ms: tuple[int, ...] = ()
    deployment: str = ""
    end_reason: str = ""
    table: TableSize | None = None
    waits_for: str = ""
    waits_s: float = 0.0
    until_end: bool = False


OWN_CODE = "the processor's code"
"""The beginning of what a worker waits for while its loop is in a call of the processor."""
STOPPED = "stopped"
"""The end reason of a worker that stopped on request."""

WorkerName = tuple[str, str]
"""The name of a processor, and the name of one of its workers."""


class ReportInterval(NamedTuple):
    """The first and the last report of one process within the time over which rates are averaged.

    Args:
        first: the first report.
        last: the last report; the same one if there is only one.
        arrived_ms: when the bus received the last one (milliseconds since 1970, UTC).
    """

    first: Report
    last: Report
    arrived_ms: int

    def silent_s(self, now_ms: int, outage: Outage) -> float:
        """Return the seconds since the last report, without those of an outage."""
        return outage.silent_s(self.arrived_ms, now_ms)

    def worker_ms(self, now_ms: int) -> int:
        """Return the current time by the clock of the worker's machine."""
        return now_ms + self.last.at_ms - self.arrived_ms

    @property
    def seconds(self) -> float:
        """The time between both reports; 0 with only one."""
        return (self.last.at_ms - self.first.at_ms) / 1000

    @property
    def per_s(self) -> Counts:
        """The growth of each count per second; 0 with only one report."""
        before, now, seconds = asdict(self.first.counts), asdict(self.last.counts), self.seconds
        return Counts(**{name: (now[name] - before[name]) / seconds if seconds else 0.0 for name in now})

    def share(self, seconds: Callable[[Report], float]) -> float | None:
        """Return the share of the time by which a sum of seconds has grown, from 0 to 1; None with only one report."""
        if not self.seconds:
            return None
        return min(1.0, max(0.0, (seconds(self.last) - seconds(self.first)) / self.seconds))

    def shard_rate(self, bucket: int, count: Callable[[ShardReport], int]) -> float:
        """Return the growth per second of a count of one shard. A shard that was opened again counts from zero."""
        before, now = (
            next((count(shard) for shard in report.shards if shard.bucket == bucket), 0)
            for report in (self.first, self.last)
        )
        return (now - before if now >= before else now) / self.seconds if self.seconds else 0.0


def _decode_name(key: bytes) -> WorkerName:
    processor, _, worker = key.decode().partition("/")
    return processor, worker


_TABLE: BusTable[WorkerName, Report] = BusTable(
    REPORTS, TableKeys(lambda name: "/".join(name).encode(), _decode_name), msgspec.json.Decoder(Report).decode
)


def node_of(processor: type[Processor]) -> Node:
    """Return the node of a declared processor."""
    plan = plan_of(processor)
    kind = next(base.__name__ for base in processor.__mro__ if base.__module__.startswith("penstock."))
    return Node(
        processor.name,
        kind.lower(),
        tuple(category.name for category in plan.sources),
        tuple(category.name for category in plan.outputs),
        dead_letters_of(processor).name,
        processor.checkpoint.time.total_seconds(),
        tuple(sink.name for sink in plan.sinks),
        tuple(category.name for category in plan.outputs if category.cluster is None),
    )


def report_message(report: Report) -> Outgoing:
    """Return the message that publishes a report."""
    return _TABLE.put((report.node.name, report.worker), report)


def last_reports_ms(bus: Bus, processor: str) -> dict[str, int]:
    """Return the arrival of the last retained report of each worker of a processor (milliseconds since 1970, UTC)."""
    with closing(_TABLE.follow(bus)) as reader:
        return {
            report.worker: arrived_ms
            for (name, _), report, _, arrived_ms in reader.read_to_end()
            if report is not None and name == processor
        }


class ReportReader:
    """The recent reports of all workers. One thread; close it.

    Args:
        reader: reads the category of reports.
        rate_window_s: the time over which rates are averaged; at least two report intervals.
    """

    def __init__(self, reader: TableReader[WorkerName, Report], rate_window_s: float) -> None:
        self._reader = reader
        self._rate_window_ms = rate_window_s * 1000
        self._by_worker: dict[WorkerName, deque[Report]] = {}
        self._arrived_ms: dict[WorkerName, int] = {}
        """The arrival of the last report of each worker."""

    @classmethod
    def open(cls, bus: Bus, since: datetime, rate_window_s: float = RATE_WINDOW_S) -> ReportReader:
        """Return a reader of the reports since a time; there are none before the category exists."""
        exists = REPORTS.name in bus.catalog.names()
        start = bus.catalog.at_time(REPORTS.name, since)[0] if exists else None
        return cls(_TABLE.follow(bus, start, may_be_missing=not exists), rate_window_s)

    def read(self) -> None:
        """Read the reports since the last call. The first call waits for all earlier reports (see `TableReader.read_to_end`)."""
        for name, report, _, arrived_ms in self._reader.read_to_end():
            if report is not None:
                self._add(name, report)
                self._arrived_ms[name] = arrived_ms

    @property
    def newest_ms(self) -> int:
        """The arrival of the newest report of any worker (milliseconds since 1970, UTC); 0 without one."""
        return max(self._arrived_ms.values(), default=0)

    def _add(self, name: WorkerName, report: Report) -> None:
        reports = self._by_worker.setdefault(name, deque())
        if reports and reports[-1].started_ms != report.started_ms:
            reports.clear()  # a new process counts from zero
        reports.append(report)
        while reports[0].at_ms < report.at_ms - self._rate_window_ms:
            reports.popleft()

    def intervals(self, now_ms: int) -> dict[WorkerName, ReportInterval]:
        """Return the report interval of each worker, and drop workers whose last report is older than `REPORT_HISTORY`."""
        oldest_ms = now_ms - REPORT_HISTORY.total_seconds() * 1000
        self._arrived_ms = {name: at_ms for name, at_ms in self._arrived_ms.items() if at_ms >= oldest_ms}
        self._by_worker = {name: self._by_worker[name] for name in self._arrived_ms}
        return {
            name: ReportInterval(reports[0], reports[-1], self._arrived_ms[name])
            for name, reports in self._by_worker.items()
        }

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def runs_to_end(bus: Bus, processors: Collection[str], since: datetime) -> bool:
    """Return whether a worker of one of these processors runs, and stops at the end of its input.

    A worker that has been silent for long counts as gone. A time without a report of any worker, the caller's included, is an outage of the bus
    and no silence of a worker.

    Args:
        bus: contains the reports. The caller reports itself.
        processors: the names of the processors.
        since: about the start of the caller.
    """
    last: dict[WorkerName, tuple[Report, float]] = {}
    answered_s, newest_ms = 0.0, 0
    with closing(_TABLE.follow(bus, bus.catalog.at_time(REPORTS.name, since - RECENT)[0])) as reader:
        for name, report, _, arrived_ms in reader.read_to_end():
            answered_s += min(max(arrived_ms - newest_ms, 0) / 1000, 2 * REPORT_INTERVAL_S)
            newest_ms = max(newest_ms, arrived_ms)
            if report is not None:
                last[name] = report, answered_s
    return any(
        processor in processors
        and report.until_end
        and not report.end_reason
        and answered_s - reported_s < SILENT_AFTER_S
        for (processor, _), (report, reported_s) in last.items()
    )
