"""The status of processors at one moment: backlog, throughput, event time and owners."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

from ...processors import Counts, Figure, ShardFigures, WorkerFigures, together
from ...processors.lookups import TableSize
from ...processors.time import NEVER_MS
from ...state.backups import is_late
from ..deploy import DeployedProcessor
from ..kernel import OWN_CODE, SILENT_AFTER_S, STOPPED, Node
from .finding import Finding
from .servers import ServerStatus
from .states import ProcessorState, state_of

MIN_SKEW_SHARDS = 2
"""The number of shards from which one of them can be skewed."""


WAITS_S = 20.0
"""The time from which a call of a sink or a store counts as an outage, in seconds."""


class ShardStatus(ShardFigures, frozen=True, kw_only=True):
    """The status of a shard. A figure that only its worker measures has its default without a recent report.

    Args:
        bucket: its bucket number.
        owner: the worker that owns it; empty if no worker reports it.
        idle: whether its worker reports that all its inputs are idle. An idle shard does not hold back other shards.
        held_by: the input or processor that holds back its low watermark; empty if its own events do.
        catching_up: whether it processes events again to rebuild its state, without outputs.
        hot_key: the most frequent key of its recent events, as its worker reports it; empty without enough events.
        blocked_by: the open transaction that it waits for, and how to end it; empty without one.
    """

    bucket: int
    owner: str
    backlog_events: Annotated[int | None, Figure("input events after the committed offsets")]
    backlog_bytes: Annotated[int | None, Figure("size of the backlog, estimated from the mean size of earlier events")]
    lag_s: Annotated[float | None, Figure("seconds that the oldest event of the backlog has waited")]
    retention_remaining_s: Annotated[float | None, Figure("seconds until the oldest event of the backlog expires")]
    events_in_per_s: Annotated[float, Figure("events read per second")]
    events_out_per_s: Annotated[float, Figure("records written per second")]
    low_watermark_ms: Annotated[int | None, Figure("low watermark at the last checkpoint, as seconds since 1970")]
    idle: bool
    held_by: str
    catching_up: bool = False
    hot_key: str = ""
    blocked_by: str = ""


class WorkerStatus(WorkerFigures, frozen=True, kw_only=True):
    """The status of a worker, from its reports.

    Args:
        worker: its name.
        host: its machine.
        pid: its process ID.
        deployment: the deployment that started it, as ``name@version``; empty if a user started it.
        started_ms: its start (milliseconds since 1970, UTC).
        report_age_s: seconds since its last report.
        outage_s: the seconds of these for which Kafka did not answer, as far as the observer noticed it.
        buckets: the buckets that it owns.
        counts: its counts since its start.
        per_s: the counts per second.
        crash_loop_since_ms: the first restart of its crash loop (milliseconds since 1970, UTC); None without one.
        end_reason: empty while it runs; then "stopped", or its error.
        table: the size of its lookup table in memory; None without one.
        waits_for: the sink, store or other service for whose answer it has waited longest, or the processor's code; empty without one.
        waits_s: for how long, in seconds.
    """

    worker: str
    host: str
    pid: int
    deployment: str
    started_ms: int
    report_age_s: float
    buckets: tuple[int, ...]
    counts: Counts
    per_s: Counts
    crash_loop_since_ms: int | None
    end_reason: str
    table: TableSize | None = None
    outage_s: float = 0.0
    waits_for: str = ""
    waits_s: float = 0.0

    @property
    def is_in_code(self) -> bool:
        """Whether it waits for the processor's code, and not for a service."""
        return self.waits_for.startswith(OWN_CODE)

    @property
    def version(self) -> int | None:
        """The version that its deployment started; None if a user started it."""
        number = self.deployment.rpartition("@")[2]
        return int(number) if number.isdecimal() else None

    @property
    def is_stopped(self) -> bool:
        """Whether it stopped on request."""
        return self.end_reason == STOPPED

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an error."""
        return bool(self.end_reason) and not self.is_stopped

    @property
    def is_silent(self) -> bool:
        """Whether it neither reports nor has ended: it hangs, was killed, or cannot reach Kafka."""
        return not self.end_reason and self.report_age_s - self.outage_s > SILENT_AFTER_S


@dataclass(frozen=True)
class LoopStatus:
    """The status of a loop of processors.

    Args:
        members: their names.
        circulating: the number of messages in it that their readers have not processed; None if unknown.
    """

    members: tuple[str, ...]
    circulating: int | None

    def __str__(self) -> str:
        if self.circulating is None:
            return "unknown"
        return f"{self.circulating:,} in flight" if self.circulating else "drained"


@dataclass(frozen=True)
class ProcessorStatus:
    """The status of a processor.

    Args:
        node: the processor.
        at_ms: the time of the status (milliseconds since 1970, UTC).
        shards: its shards, by bucket.
        workers: its workers that run, or ended within the last hour.
        dead_letters: the number of pending dead letters, neither retried nor dropped; None if unknown.
        failed_queries: the figures that Kafka did not return, each with the error.
        watermark_stall_s: seconds without progress of the low watermark despite a backlog, as far as this observer has measured.
        recreated_inputs: inputs that were deleted and created again after the processor last read them.
        deleted_outputs: outputs that are not on the cluster of its inputs.
        deployed: its deployment on this machine; None if it is not deployed here.
        is_registered: whether it is registered in Kafka, as every processor that has run and was not purged; None if unknown.
        unread: the number of unread events by input; absent where it is unknown.
        loop: the loop that it is a member of; None without one.
    """

    node: Node
    at_ms: int
    shards: tuple[ShardStatus, ...]
    workers: tuple[WorkerStatus, ...]
    dead_letters: int | None
    failed_queries: tuple[str, ...] = ()
    watermark_stall_s: float = 0.0
    recreated_inputs: tuple[str, ...] = ()
    deleted_outputs: tuple[str, ...] = ()
    deployed: DeployedProcessor | None = None
    is_registered: bool | None = None
    unread: Mapping[str, int] = field(default_factory=dict)
    loop: LoopStatus | None = None

    @property
    def state(self) -> ProcessorState:
        """Its state."""
        return state_of(self)

    @property
    def missing_outputs(self) -> tuple[str, ...]:
        """The outputs without which its workers fail; empty if none should run."""
        return self.deleted_outputs if self.state.needs_outputs else ()

    @property
    def can_progress(self) -> bool:
        """Whether events can be processed. Otherwise, failures and lag are part of the incident that its state or a missing output describes."""
        return self.state.is_working and not self.missing_outputs

    @property
    def running_workers(self) -> tuple[WorkerStatus, ...]:
        """The workers with a recent report that have not ended."""
        return tuple(worker for worker in self.workers if not worker.end_reason and not worker.is_silent)

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that its running workers run, the last started one first; empty if users started them."""
        by_start = sorted(self.running_workers, key=lambda worker: worker.started_ms, reverse=True)
        return tuple(dict.fromkeys(worker.version for worker in by_start if worker.version is not None))

    @cached_property
    def shard_figures(self) -> ShardFigures:
        """The figures of its shards together."""
        return together(ShardFigures, self.shards)

    @cached_property
    def worker_figures(self) -> WorkerFigures:
        """The figures of its running workers together."""
        return together(WorkerFigures, self.running_workers)

    @cached_property
    def counts(self) -> Counts:
        """The counts of its running workers since their starts."""
        return together(Counts, [worker.counts for worker in self.running_workers])

    @cached_property
    def per_s(self) -> Counts:
        """The counts of its running workers per second."""
        return together(Counts, [worker.per_s for worker in self.running_workers])

    @property
    def lookup_tables(self) -> tuple[TableSize, ...]:
        """The lookup tables in the memory of its running workers."""
        return tuple(worker.table for worker in self.running_workers if worker.table is not None)

    @property
    def dead_letter_share(self) -> float:
        """Dead letters as a share of the events read, from 0 to 1."""
        return self._share_of_events(self.per_s.dead_letters)

    @property
    def dropped_share(self) -> float:
        """Events dropped as too late as a share of the events read, from 0 to 1."""
        return self._share_of_events(self.per_s.dropped)

    def _share_of_events(self, per_s: float) -> float:
        return min(per_s / self.per_s.events_in, 1.0) if self.per_s.events_in else 0.0

    @property
    def backlog_events(self) -> int | None:
        """Input events after the committed offsets; None if the backlog of a shard is unknown."""
        if self.failed_queries and not self.shards:
            return None
        counts = [shard.backlog_events for shard in self.shards if shard.backlog_events is not None]
        return sum(counts) if len(counts) == len(self.shards) else None

    @property
    def backlog_bytes(self) -> int | None:
        """The estimated size of the backlog in bytes; None if unknown."""
        sizes = [shard.backlog_bytes for shard in self.shards if shard.backlog_bytes is not None]
        return sum(sizes) if sizes or self.backlog_events == 0 else None

    @property
    def lag_s(self) -> float | None:
        """The longest known lag of a shard in seconds; None if none is known and the lag of a shard is unknown."""
        lags_s = [shard.lag_s for shard in self.shards if shard.lag_s is not None]
        longest_s = max(lags_s, default=0.0)
        is_complete = self.backlog_events is not None and len(lags_s) == len(self.shards)
        return longest_s if longest_s or is_complete else None

    @property
    def skewed_shard(self) -> ShardStatus | None:
        """The only shard with a long lag: most others have less than a tenth of it. None without one."""
        timed = sorted(
            (shard for shard in self.shards if shard.lag_s is not None), key=lambda shard: shard.lag_s or 0.0
        )
        if len(timed) < MIN_SKEW_SHARDS:
            return None
        slowest, median = timed[-1], timed[(len(timed) - 1) // 2]
        return slowest if (median.lag_s or 0.0) < (slowest.lag_s or 0.0) / 10 else None

    @property
    def backup_outage_s(self) -> float | None:
        """For how many seconds the backup store has answered no worker's attempt, if for `WAITS_S`; None otherwise."""
        outage_s = self.worker_figures.backup_outage_s
        return outage_s if outage_s is not None and outage_s >= WAITS_S else None

    @property
    def is_backup_late(self) -> bool | None:
        """Whether the newest backup of a shard is older than its interval allows, or the backup store does not answer; None without backups."""
        if self.backup_outage_s is not None:
            return True
        age_s, interval_s = self.shard_figures.backup_age_s, self.worker_figures.backup_interval_s
        return None if age_s is None or interval_s is None else is_late(age_s, interval_s)

    @property
    def low_watermark_ms(self) -> int | None:
        """The low watermark (milliseconds since 1970, UTC); None before the first."""
        return self.slowest_shard.low_watermark_ms if self.shards else None

    @property
    def watermark_lag_s(self) -> float | None:
        """Seconds between the low watermark and the current time; None without a low watermark, or if all shards are idle."""
        shard = self.slowest_shard if self.shards else None
        if shard is None or shard.low_watermark_ms is None or shard.idle:
            return None
        return (self.at_ms - shard.low_watermark_ms) / 1000

    @property
    def slowest_shard(self) -> ShardStatus:
        """The shard that determines the low watermark: the lowest one that is not idle; the highest if all are idle."""
        active = [shard for shard in self.shards if not shard.idle]
        return min(active, key=_event_time_ms) if active else max(self.shards, key=_event_time_ms)

    @property
    def waiting_worker(self) -> WorkerStatus | None:
        """The worker that has waited longest for a sink or a store; None if none has waited for `WAITS_S`."""
        return self._longest_wait(in_code=False)

    @property
    def slow_code_worker(self) -> WorkerStatus | None:
        """The worker whose loop has been in the processor's code for longest; None if none has been for `WAITS_S`."""
        return self._longest_wait(in_code=True)

    def _longest_wait(self, *, in_code: bool) -> WorkerStatus | None:
        waiting = [
            worker
            for worker in self.running_workers
            if worker.waits_for and worker.is_in_code is in_code and worker.waits_s >= WAITS_S
        ]
        return max(waiting, key=lambda worker: worker.waits_s, default=None)

    def unsaved_s(self, worker: WorkerStatus) -> float | None:
        """Return the seconds that a reading worker has waited for a checkpoint despite a backlog; None for other workers."""
        lags_s = [shard.lag_s or 0.0 for shard in self.shards if shard.owner == worker.worker and shard.backlog_events]
        if not lags_s or not worker.per_s.events_in or worker.checkpoint_age_s is None:
            return None
        return min(worker.checkpoint_age_s, max(lags_s))


def _event_time_ms(shard: ShardStatus) -> int:
    return NEVER_MS if shard.low_watermark_ms is None else shard.low_watermark_ms


@dataclass(frozen=True)
class ClusterStatus:
    """The status of all observed processors at one moment.

    Args:
        at_ms: the moment (milliseconds since 1970, UTC).
        processors: the processors, upstream ones first.
        findings: the problems of processors and servers, the most severe first.
        servers: the servers that are deployed on this machine.
    """

    at_ms: int
    processors: tuple[ProcessorStatus, ...]
    findings: tuple[Finding, ...]
    servers: tuple[ServerStatus, ...] = ()

    def without(self, states: Collection[ProcessorState]) -> ClusterStatus:
        """Return the status without the processors in some states."""
        left_out = {status.node.name for status in self.processors if status.state in states}
        return replace(
            self,
            processors=tuple(status for status in self.processors if status.node.name not in left_out),
            findings=tuple(finding for finding in self.findings if finding.processor not in left_out),
        )
