"""A worker, which runs one process's share of a processor's buckets.

poll --InputQueues--> batches --BatchProcessor--> shards --OutputWriter, CheckpointExecutor--> bus
CheckpointScheduler begins checkpoints; Ownership follows the group; OpenShards opens and closes shards
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor

from ....processors import Deferred, raising_line
from ....processors.declare import Processor
from ....processors.shard import Gap
from ....transport import (
    Bucket,
    MembershipLost,
    MissingCategory,
    OffsetOutOfRange,
    Polled,
    Position,
    RawBatch,
    Reader,
)
from ...shell import MachineClock, SystemClock
from ..checkpoint import (
    SnapshotParticipant,
    TransactionSweeper,
)
from ..event_time import ShardWait
from ..shards import (
    LoadedShard,
    OpenShard,
    attempt_all,
)
from ..telemetry import LOOKUP, HotKey, Wait
from .event_stops import StopAtEvent
from .offset_limits import NO_LIMITS, RunLimits
from .ownership import ROLLED_BACK
from .parts import WorkerConfig, WorkerParts, WorkerThreads
from .user_exits import exits_named

POLL_WAIT_S = 0.1
SAVING_POLL_WAIT_S = 0.005
"""The longest poll while outputs wait for the end of a checkpoint."""
OPENING_POLL_WAIT_S = 0.02
"""The longest poll until all owned shards are open: each step of their opening takes a turn of the loop."""


class Worker:
    """Runs a processor on the buckets that its consumer group assigns to it. It joins the group in the first turn of its loop.

    Args:
        processor: open.
        config: its resources.
        threads: open shards.
        saver: saves checkpoints, one at a time.
        clock: determines when a checkpoint is due.
        at_gap: called in each gap of a checkpoint; a test may raise there.
        after_opening: called with each opened shard, before the loop processes its events.
        after_turn: called after each turn of the loop.
        from_earliest: whether expired events may be skipped.
        limits: where its buckets end for it, whatever comes after that.
        requests: requests end offsets and publishes watermarks, one call at a time; by default the saver.
    """

    def __init__(
        self,
        processor: Processor,
        config: WorkerConfig,
        threads: Executor,
        saver: Executor,
        *,
        clock: MachineClock | None = None,
        at_gap: Callable[[Gap], None] = lambda _: None,
        after_opening: Callable[[OpenShard], None] = lambda _: None,
        after_turn: Callable[[Worker], None] = lambda _: None,
        from_earliest: bool = False,
        limits: RunLimits = NO_LIMITS,
        requests: Executor | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self._kind = type(processor)
        self._config = config
        self._clock = clock
        self.processor_name, self._class_name = self._kind.name, self._kind.__name__
        self.at_gap = at_gap
        self._after_opening = after_opening
        self._after_turn = after_turn
        self._stopping = False
        self._keeps_place = False
        self.waits: Sequence[ShardWait] = ()
        """What the event time of each shard waited for at the end of `run`."""
        self._parts = WorkerParts(
            processor,
            config,
            WorkerThreads(threads, saver, requests or saver),
            clock,
            limits=limits,
            from_earliest=from_earliest,
            at_gap=self._pass_gap,
        )
        self.metrics = self._parts.metrics
        self._snapshots = self._participant() if config.takes_snapshots else None

    def _participant(self) -> SnapshotParticipant:
        return SnapshotParticipant(
            self._config.bus,
            self.processor_name,
            self._config.identity,
            shards=self._parts.shards,
            checkpoints=self._parts.checkpoints,
            confirm=lambda: self._parts.executor.confirm(self._parts.shards),
            clock=self._clock,
        )

    def _pass_gap(self, gap: Gap) -> None:
        self.at_gap(gap)

    def run(self, finished: Callable[[Worker], bool] = lambda _: False, *, keep_place: bool = False) -> None:
        """Run the loop until `stop` is called or `finished` returns True, then save a last checkpoint.

        Args:
            finished: called after each turn.
            keep_place: remain a member of the group, whose buckets wait for this worker's restart.
        """
        try:
            while not (self._stopping or finished(self)):
                self.run_once()
            if self.save():
                self._parts.time.publish_end()
            self.waits = self._parts.time.waits()
            if not (keep_place or self._keeps_place):
                self._parts.ownership.reader.leave()
        except BaseException:
            self._parts.ownership.abandon()  # the next owner of the buckets repeats all unsaved work
            raise
        finally:
            self._close()

    def run_once(self) -> None:
        """Start reading opened shards, poll once, process the batches, and begin a checkpoint if one is due."""
        self._parts.pauses.tick()
        try:
            with exits_named(self._class_name, raising_line):
                self._read_and_process()
        except MembershipLost as error:
            self._parts.ownership.rejoin(error)
        except ROLLED_BACK as error:
            self._parts.ownership.start_over(error)
        except StopAtEvent as stop:
            if stop.saves:
                self.save()
            raise stop.rejection() from stop.__cause__
        self._after_turn(self)

    def _read_and_process(self) -> None:
        self._parts.topics.check_if_due()
        self._start_reading()
        polled = self._poll()
        self._parts.topics.expect_declared(self._parts.ownership.owned)
        self._process(polled)
        self._pass_time()
        self._parts.checkpoints.save_if_due()
        if self._snapshots is not None:
            self._snapshots.advance(is_settled=self.is_settled)

    def tick(self) -> None:
        """Record that the process runs, and keep the membership while user code or a long checkpoint keeps the loop from polling. Any thread."""
        self._parts.pauses.tick()
        self._parts.ownership.keep_alive()

    def _start_reading(self) -> None:
        """Start reading the buckets of opened shards."""
        reader = self._parts.ownership.reader
        self._parts.shards.begin_opening(self._parts.executor.is_ready)
        for loaded in self._parts.shards.opened():
            self._complete_outputs(loaded)
            shard = loaded.shard
            self._parts.shards.back_up(shard)
            # If the state is ahead of the group's positions, a checkpoint commits them even without new events.
            self._parts.checkpoints.add_work(int(shard.has_news), 0)
            self._parts.time.begin(shard)
            self._parts.queues.drop([position.bucket for position in loaded.start_positions])
            self._parts.queues.catch_up(shard, loaded.start_positions)
            reader.start(loaded.start_positions)
            self._after_opening(shard)

    def _complete_outputs(self, loaded: LoadedShard) -> None:
        """Send the outputs of a shard's last checkpoint: its outbox and its changelog."""
        self._parts.topics.expect(loaded.topic_ids)
        if loaded.outbox is not None:
            self._parts.checkpoints.complete()
            self._parts.executor.send_outbox(loaded.shard, loaded.outbox)
        if loaded.needs_changelog:
            self._parts.checkpoints.complete()
            self._parts.executor.log_state(loaded.shard)

    def _poll(self) -> Polled:
        reader = self._parts.ownership.reader
        reader.poll_limit = min(
            self._parts.ownership.most_events, self._parts.batches.most_events, self._parts.executor.pace.most_events
        )
        try:
            return self._parts.queues.arranged(self._poll_or_wait(reader), reader)
        except (OffsetOutOfRange, MissingCategory):
            self._parts.topics.expect_same()  # raises a clearer error if the topic was recreated
            raise

    @property
    def _poll_wait_s(self) -> float:
        if self._parts.checkpoints.are_outputs_waiting:
            return SAVING_POLL_WAIT_S
        return POLL_WAIT_S if self._parts.ownership.is_assigned and self.is_settled else OPENING_POLL_WAIT_S

    def _poll_or_wait(self, reader: Reader) -> Polled:
        polled = reader.poll(0)
        if polled.batches or polled.ended:
            return polled
        self._parts.executor.send_now()
        self._parts.checkpoints.flush_if_due()
        with self.metrics.loop.idle():
            return reader.poll(self._poll_wait_s)

    @property
    def wait(self) -> Wait | None:
        """What it has waited for longest, for its reports; None without a wait, or without buckets."""
        return self.metrics.waits.longest_reported if self._parts.ownership.numbers else None

    def _process(self, polled: Polled) -> None:
        deferred = self._process_batches(polled.batches)
        for bucket, end in polled.ended:
            shard = self._parts.shards.get(bucket.number)
            if shard is not None and bucket not in deferred:
                self._parts.batches.reach_end(shard, bucket, end)

    def _process_batches(self, batches: Sequence[RawBatch]) -> set[Bucket]:
        """Process batches up to the first one that the processor defers. That one and the rest are read again.

        The rest is not tried, since each batch could delay the next poll.

        Returns:
            The buckets that are read again.
        """
        for at, batch in enumerate(batches):
            shard = self._parts.shards.get(batch.bucket.number)
            if shard is None:
                continue  # read before the bucket moved away; its new owner reads it
            try:
                self._parts.batches.process(shard, batch)
            except Deferred:
                if self.metrics.lookups is not None:
                    self.metrics.waits.begin(LOOKUP)
                self._read_again(batches[at:])
                return {batch.bucket for batch in batches[at:]}
            self.metrics.waits.end(LOOKUP)
            self._parts.checkpoints.save_if_due()
        return set()

    def _read_again(self, batches: Sequence[RawBatch]) -> None:
        offsets = {batch.bucket: batch.messages[0].offset() for batch in reversed(batches)}
        self._parts.queues.drop(offsets.keys())
        self._parts.ownership.reader.start([Position(bucket, offset) for bucket, offset in offsets.items()])
        for bucket in offsets:
            self._parts.time.record_events(bucket)  # a bucket with waiting events is not idle

    def _pass_time(self) -> None:
        self._parts.time.read()
        for shard in self._parts.shards:
            self._parts.batches.pass_time(shard)
        self._parts.time.send_pending()

    def save(self) -> bool:
        """Save a checkpoint and wait for it; return whether everything is saved. Unsaved work is saved later or repeated."""
        with exits_named(self._class_name, raising_line):
            return self._parts.ownership.save()

    @property
    def is_saved(self) -> bool:
        """Whether the last `save` saved everything."""
        return self._parts.ownership.is_saved

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def stop(self, *, keep_place: bool = False) -> None:
        """Ask `run` to end after its current turn; a signal handler may call this. A worker that was asked to leave does so.

        Args:
            keep_place: as for `run`.
        """
        self._keeps_place = keep_place and (self._keeps_place or not self._stopping)
        self._stopping = True

    @property
    def owned(self) -> tuple[int, ...]:
        """The numbers of the worker's buckets, in order, whether or not it reads them yet."""
        return self._parts.ownership.numbers

    @property
    def is_settled(self) -> bool:
        """Whether the worker reads all of its buckets."""
        return set(self._parts.shards.numbers) == set(self.owned)

    @property
    def shards(self) -> Collection[OpenShard]:
        """The open shards."""
        return list(self._parts.shards)

    def hot_key(self, number: int) -> HotKey | None:
        """Return the most frequent key of a bucket; None without enough events."""
        return self._parts.batches.hot_keys.of(number)

    @property
    def owns_nothing(self) -> bool:
        """Whether other workers own all buckets; False until the group has assigned them and the worker's earlier transaction has ended."""
        return self._parts.ownership.is_assigned and not self.owned and self._parts.executor.is_open

    def has_reached(self, targets: Mapping[Bucket, int]) -> bool:
        """Return whether every owned bucket is read up to its target, and all upstream watermarks are read; False without buckets."""
        owned = self._parts.ownership.owned
        return (
            bool(owned)
            and self._parts.time.is_read
            and all(self._has_reached(bucket, targets.get(bucket, 0)) for bucket in owned)
        )

    def has_read_watermarks(self, end: int) -> bool:
        """Return whether all upstream watermarks before an offset are read; True if the processor uses none."""
        return self._parts.time.is_read_to(end)

    def assume_silence(self) -> bool:
        """Let event time go on as if the inputs, which have ended, had been silent for long; return whether a turn has done so already."""
        return self._parts.time.assume_silence()

    @property
    def has_retries(self) -> bool:
        """Whether an event of an owned bucket waits for a retry."""
        return any(shard.in_flight.events for shard in self._parts.shards)

    def awaits_retries(self, targets: Mapping[Bucket, int]) -> bool:
        """Return whether every event in owned retry buckets up to a target is processed, or not due yet."""
        return all(
            self._parts.queues.is_waiting(bucket) or self._has_reached(bucket, target)
            for bucket, target in targets.items()
            if bucket.number in self.owned
        )

    def _has_reached(self, bucket: Bucket, target: int) -> bool:
        shard = self._parts.shards.get(bucket.number)
        return shard is not None and shard.position.get(bucket.category, -1) >= target

    def sweeper(self) -> TransactionSweeper | None:
        """Return a sweeper for transactions of the processor's vanished workers; None if the processor uses no transactions."""
        if not self._parts.executor.is_transactional:
            return None
        return TransactionSweeper(
            self._kind,
            self._config.bus,
            self._config.identity,
            self._parts.executor.written,
            limit_s=self._parts.executor.timeout_s,
            is_settled=lambda: self.is_settled,
            abort_open_transaction=self._parts.executor.abort_open_transaction,
            clock=self._clock,
        )

    def _close(self) -> None:
        ends = (
            self._parts.shards.stop,
            self._config.backups.close,
            self._parts.time.close,
            *([] if self._snapshots is None else [self._snapshots.close]),
            self._parts.ownership.close,
            self._parts.executor.close,
            self._parts.sinks.close,
        )
        error = attempt_all(ends)
        if error is not None and not self._parts.ownership.has_failed:
            raise error
