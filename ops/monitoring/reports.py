"""What workers say of themselves, a few times a minute, on the bus: who runs where, how far, how fast.

    penstock.reports, kept for a day    key  processor/worker    value  a report as JSON

Whoever watches reads the newest; the rate of anything is the difference between two reports of one process. Reports are told without
waiting: a worker whose bus does not answer says nothing, which is seen as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from ...processors.declare.dead_letters import dead_letters_of
from ...processors.declare.processor import Processor
from ...transport.bus import Bus
from ...transport.category_spec import CategorySpec
from ...transport.messages import Outgoing
from ...transport.tables.bus_table import BusTable, KeyFormat

REPORTS = CategorySpec("penstock.reports", buckets=1, retention=timedelta(days=1))
"""Where reports are kept."""
REPORT_EVERY_S = 2.0
SILENT_AFTER_S = 20.0
"""After how long a worker that said nothing is taken for one that hangs, or died without a word."""
RATES_OVER_S = 60.0
"""The time over which rates are taken, where nobody asks for another."""
LOOK_BACK = timedelta(hours=1)
"""How far back reports are read by whoever begins to watch: a worker that ended before is forgotten."""


class Node(msgspec.Struct, frozen=True):
    """What everybody has to know of a processor to watch it.

    Args:
        name: its name.
        kind: stateless, stateful, aggregator, …: what it derives from.
        inputs: the categories that it reads.
        outputs: those that it writes.
        dead_letters: where it puts what it could not process.
        checkpoint_s: how often it saves a checkpoint.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dead_letters: str
    checkpoint_s: float


class ShardReport(msgspec.Struct, frozen=True):
    """What a worker says of one shard.

    Args:
        bucket: its bucket number.
        position: next unread offset by input category.
        events_in: events read since the worker opened it.
        events_out: records written since then.
        low_ms: its low watermark (milliseconds since 1970, UTC).
        catching_up: whether it reads again, for its state alone, what was processed before.
        backup_age_s: how old its newest backup is (see `BackupAges`); None where none is made or known of.
    """

    bucket: int
    position: dict[str, int]
    events_in: int
    events_out: int
    low_ms: int
    catching_up: bool = False
    backup_age_s: float | None = None


class Counts(msgspec.Struct, frozen=True):
    """What a worker has done since it started; see `Tally`."""

    events_in: int = 0
    bytes_in: int = 0
    events_out: int = 0
    bytes_out: int = 0
    late: int = 0
    dropped: int = 0
    unmatched: int = 0
    dead_letters: int = 0
    checkpoints: int = 0


class Report(msgspec.Struct, frozen=True):
    """What one worker says of itself.

    Args:
        node: what it runs.
        worker: its name, the same when it is started again.
        host: the machine.
        pid: the process.
        started_ms: since when it runs (milliseconds since 1970, UTC).
        at_ms: when it said this.
        shards: those that it has open.
        counts: what it has done.
        saved_ms: when its last checkpoint was complete; None before the first.
        saving_s: how long that took.
        cpu_s: the processor time it has used.
        memory_bytes: the memory it holds.
        restarts_ms: when it was started again lately after an end that nobody had asked for.
        backup_every_s: how often backups are made; None for never.
        deployment: what deployed it, ``name@version``; empty where it was started by hand.
        ended: empty while it runs; then why it does not: "stopped", or the error.
    """

    node: Node
    worker: str
    host: str
    pid: int
    started_ms: int
    at_ms: int
    shards: tuple[ShardReport, ...]
    counts: Counts
    saved_ms: int | None = None
    saving_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    restarts_ms: tuple[int, ...] = ()
    backup_every_s: float | None = None
    deployment: str = ""
    ended: str = ""


STOPPED = "stopped"
"""How a report says that its worker ended as it was asked to."""

WorkerName = tuple[str, str]
"""A processor, and one of its workers."""


class ReportedOffsets(NamedTuple):
    """What one process said first, of the time that rates are taken over, and last."""

    first: Report
    last: Report

    @property
    def seconds(self) -> float:
        """How much time lies between both; 0 where there is only one."""
        return (self.last.at_ms - self.first.at_ms) / 1000

    def rate(self, count: Callable[[Counts], int]) -> float:
        """Return by how much a count has grown in a second."""
        return (count(self.last.counts) - count(self.first.counts)) / self.seconds if self.seconds else 0.0

    def shard_rate(self, bucket: int, count: Callable[[ShardReport], int]) -> float:
        """Return by how much a count of one shard has grown in a second; a shard that was opened again began anew."""
        before, now = (next((count(shard) for shard in report.shards if shard.bucket == bucket), 0) for report in self)
        return (now - before if now >= before else now) / self.seconds if self.seconds else 0.0


def _decode_name(key: bytes) -> WorkerName:
    processor, _, worker = key.decode().partition("/")
    return processor, worker


_TABLE: BusTable[WorkerName, Report] = BusTable(
    REPORTS, KeyFormat(lambda name: "/".join(name).encode(), _decode_name), msgspec.json.Decoder(Report).decode
)


def node_of(processor: type[Processor]) -> Node:
    """Return what is to be known of a processor."""
    kind = next(base.__name__ for base in processor.__mro__ if base.__module__.startswith("penstock."))
    return Node(
        processor.name,
        kind.lower(),
        tuple(category.name for category in processor.inputs()),
        tuple(category.name for category in processor.outputs()),
        dead_letters_of(processor).name,
        processor.checkpoint.time.total_seconds(),
    )


def outgoing(report: Report) -> Outgoing:
    """Return a report as it is sent."""
    return _TABLE.put((report.node.name, report.worker), report)


def last_heard_ms(bus: Bus, processor: str) -> dict[str, int]:
    """Return when each worker of a processor reported last, of those that are kept (milliseconds since 1970, UTC)."""
    with closing(_TABLE.follow(bus)) as reader:
        return {
            report.worker: report.at_ms
            for (name, _), report, _ in reader.read_to_end()
            if report is not None and name == processor
        }


class Reports:
    """The reports of the last while, as far as this has read. One thread.

    Args:
        bus: where they are; the category exists.
        since: from when on they are read.
        rates_over_s: the time over which rates are taken: a few reports' at least.
    """

    def __init__(self, bus: Bus, since: datetime, rates_over_s: float = RATES_OVER_S) -> None:
        self._rates_over_ms = rates_over_s * 1000
        begin = bus.catalog.at_time(REPORTS.name, since)[0]
        self._reader = _TABLE.follow(bus, begin)
        self._by_worker: dict[WorkerName, deque[Report]] = {}

    def read(self) -> None:
        """Read the reports since the last call; the first call waits for all reports so far (see `TableReader.read_to_end`)."""
        for _, report, _ in self._reader.read_to_end():
            if report is not None:
                self._note(report)

    def _note(self, report: Report) -> None:
        reports = self._by_worker.setdefault((report.node.name, report.worker), deque())
        if reports and reports[-1].started_ms != report.started_ms:
            reports.clear()  # another process: its counts begin anew
        reports.append(report)
        while reports[0].at_ms < report.at_ms - self._rates_over_ms:
            reports.popleft()

    def stretches(self, now_ms: int) -> dict[WorkerName, ReportedOffsets]:
        """Return what each worker said lately; those that have been silent for long are forgotten."""
        oldest_ms = now_ms - LOOK_BACK.total_seconds() * 1000
        self._by_worker = {name: told for name, told in self._by_worker.items() if told[-1].at_ms >= oldest_ms}
        return {name: ReportedOffsets(reports[0], reports[-1]) for name, reports in self._by_worker.items()}

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()
