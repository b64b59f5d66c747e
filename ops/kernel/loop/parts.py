"""The parts of a worker, composed from its processor's declaration.

inputs:  InputQueues, BatchProcessor            outputs: OutputWriter, CheckpointExecutor
shards:  OpenShards, TopicWatch                 time:    WatermarkTracker
CheckpointScheduler and Ownership act on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass, field

from ....processors.apps import Loop, loops_of
from ....processors.declare import Processor, plan_of
from ....processors.lookups import LookupJoin
from ....processors.shard import Gap, expect_equal_message_keys, steps_of
from ....state import StateFolder
from ....transport import Bucket, Bus
from ....transport.codecs import Codecs
from ...shell import MachineClock
from ..checkpoint import (
    CheckpointCoordinator,
    CheckpointExecutor,
    CheckpointScheduler,
    NoRevocationNotes,
    OutputSizes,
    OutputWriter,
    PauseDetector,
    RevocationNotes,
)
from ..event_time import WatermarkTracker
from ..shards import (
    Backups,
    NoBackups,
    OpenShards,
    OpenSink,
    RowLetters,
    ShardLoader,
    SinkWriters,
    TopicWatch,
    open_sink,
)
from ..telemetry import CONTEXT_FORWARDER, EventTracer, LoopTime, Metrics, Waits
from .batch_processor import BatchProcessor
from .dead_letter_guard import DeadLetterGuard
from .input_queues import InputQueues
from .offset_limits import OffsetLimits, RunLimits
from .ownership import Ownership


@dataclass(frozen=True)
class WorkerConfig:
    """A worker's resources.

    Args:
        bus: contains its processor's categories; all of them exist.
        states: contains the states of its shards.
        identity: the worker's name, the same after a restart; used by one process at a time.
        backups: backs up the states.
        revocations: records that the worker is releasing buckets.
        takes_snapshots: whether it takes part in snapshots of its app; their category exists then.
        tracer: traces the events.
        open_sink: opens a sink.
        loop: the loop that its processor is a member of; None without one, or if it is the only member.
        waits: what it waits for.
    """

    bus: Bus
    states: StateFolder
    identity: str
    backups: Backups = field(default_factory=NoBackups)
    revocations: RevocationNotes = field(default_factory=NoRevocationNotes)
    takes_snapshots: bool = False
    tracer: EventTracer = CONTEXT_FORWARDER
    open_sink: OpenSink = open_sink
    loop: Loop | None = None
    waits: Waits = field(default_factory=Waits)


@dataclass(frozen=True)
class WorkerThreads:
    """The threads beside a worker's loop.

    Args:
        opening: open shards and writers.
        saver: saves checkpoints, one at a time.
        requests: requests end offsets and publishes watermarks, one call at a time.
    """

    opening: Executor
    saver: Executor
    requests: Executor


class WorkerParts:
    """The parts of one worker.

    Args:
        processor: open.
        config: its resources.
        threads: the threads beside its loop.
        clock: returns the time.
        limits: where its buckets end for it.
        from_earliest: whether expired events may be skipped.
        at_gap: called in each gap of a checkpoint.
    """

    def __init__(
        self,
        processor: Processor,
        config: WorkerConfig,
        threads: WorkerThreads,
        clock: MachineClock,
        *,
        limits: RunLimits,
        from_earliest: bool,
        at_gap: Callable[[Gap], None],
    ) -> None:
        self._processor, self._kind = processor, type(processor)
        self._config, self._threads, self._clock = config, threads, clock
        self.metrics = self._new_metrics()
        self._codecs = self._open_codecs()
        self.sinks = SinkWriters(self._kind, config.open_sink, self.metrics.waits)
        self.topics = TopicWatch(self._kind, config.bus, threads.opening, clock, self.metrics.waits)
        self.time = self._new_time(limits)
        self.queues = InputQueues(self._kind, OffsetLimits(limits.offsets), clock)
        self._guard = self._new_guard()
        self.shards = self._new_shards(from_earliest=from_earliest)
        self.pauses = PauseDetector(clock)
        self._sizes = OutputSizes(config.bus, self._codecs)
        processor.limit_outputs(self._sizes)
        self.executor = self._new_executor()
        self._outputs = self._new_outputs()
        self.checkpoints = self._new_checkpoints(at_gap)
        self.ownership = self._new_ownership()
        self.batches = self._new_batches()

    def _new_metrics(self) -> Metrics:
        processor = self._processor
        return Metrics(
            lookups=processor.metrics() if isinstance(processor, LookupJoin) else None,
            spans=self._config.tracer.metrics,
            loop=LoopTime(self._clock),
            waits=self._config.waits,
        )

    def _open_codecs(self) -> Codecs:
        codecs, processor = Codecs(self._config.bus), self._processor
        codecs.open([*plan_of(processor).sources, *plan_of(processor).outputs])
        codecs.prepare(plan_of(processor).outputs)
        expect_equal_message_keys(self._kind)
        return codecs

    def _new_time(self, limits: RunLimits) -> WatermarkTracker:
        loop = self._config.loop or next(iter(loops_of([self._kind])), None)
        return WatermarkTracker(
            self._processor, self._config.bus, self._threads.requests, self._clock, loop, passed_ms=limits.times_ms
        )

    def _new_guard(self) -> DeadLetterGuard | None:
        limit = self._kind.dead_letter_limit
        return None if limit is None else DeadLetterGuard(self._kind, limit, self._config.bus, self._codecs)

    def _new_shards(self, *, from_earliest: bool) -> OpenShards:
        config = self._config
        loader = ShardLoader(
            self._processor,
            config.bus,
            config.states,
            config.backups,
            self._threads.opening,
            worker=config.identity,
            from_earliest=from_earliest,
            now_ms=self._clock.now_ms,
            sinks=self.sinks,
            waits=self.metrics.waits,
        )
        return OpenShards(loader, config.backups, self._clock, [self.time.drop, self._drop])

    def _drop(self, numbers: Collection[int]) -> None:
        """Drop what is kept of the buckets of closed shards."""
        buckets = [Bucket(category.name, number) for category in plan_of(self._kind).inputs for number in numbers]
        self.queues.drop(buckets)
        if self._guard is not None:
            self._guard.drop(buckets)

    def _new_executor(self) -> CheckpointExecutor:
        return CheckpointExecutor(
            self._processor,
            self._config.bus,
            self._config.identity,
            self._threads.opening,
            pauses=self.pauses,
            owned=lambda: self.shards,
            sinks=self.sinks,
            row_letters=RowLetters(self._kind, self._codecs, self._clock, self.metrics),
            sizes=self._sizes,
        )

    def _new_outputs(self) -> OutputWriter:
        return OutputWriter(
            self._processor,
            self._codecs,
            self.executor,
            sizes=self._sizes,
            clock=self._clock,
            metrics=self.metrics,
            record_sent=self.time.record_sent,
        )

    def _new_checkpoints(self, at_gap: Callable[[Gap], None]) -> CheckpointScheduler:
        return CheckpointScheduler(
            self._processor,
            self.shards,
            CheckpointCoordinator(steps_of(self._kind), self.executor, self._threads.saver, at_gap),
            outputs=self._outputs,
            pace=self.executor.pace,
            time=self.time,
            metrics=self.metrics,
            clock=self._clock,
        )

    def _new_ownership(self) -> Ownership:
        return Ownership(
            self._config.bus,
            self._kind.name,
            [category.name for category in plan_of(self._kind).inputs],
            self._config.identity,
            shards=self.shards,
            checkpoints=self.checkpoints,
            executor=self.executor,
            notes=self._config.revocations,
            clock=self._clock,
        )

    def _new_batches(self) -> BatchProcessor:
        return BatchProcessor(
            self._processor,
            self._codecs,
            outputs=self._outputs,
            guard=self._guard,
            time=self.time,
            checkpoints=self.checkpoints,
            metrics=self.metrics,
            clock=self._clock,
            tracer=self._config.tracer,
        )
