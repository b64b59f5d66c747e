"""Schedule of a worker's checkpoints: the work since the last one, and the checkpoint in progress. There is at most one."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace

from ....processors.declare import Processor, plan_of
from ....processors.shard import Uncommitted, do_results_wait
from ....transport import CommitUnconfirmed
from ...shell import MachineClock
from ..event_time import WatermarkTracker
from ..shards import OpenShards
from ..telemetry import Metrics
from .checkpoint_coordinator import CheckpointCoordinator
from .output_pace import OutputPace
from .output_writer import OutputWriter

_LOG = logging.getLogger("penstock.worker")
FLUSH_EVERY_S = 0.2
"""The least time between two flushes, or a checkpoint and a flush, after which watermarks are published."""


class Hold:
    """A checkpoint after which the outputs of later events wait, so that a snapshot of the whole app can be taken."""

    def __init__(self) -> None:
        self.is_begun = False
        """Whether its checkpoint has begun."""
        self.is_complete = False
        """Whether its checkpoint is complete, and outputs wait."""
        self.has_ended = False
        """Whether outputs do not wait any more: it was released, or ended because shards were closed, moved or saved."""


class CheckpointScheduler:
    """Begins checkpoints when they are due, and completes them. One thread.

    Args:
        processor: declares when a checkpoint is due.
        shards: the open shards.
        coordinator: saves one checkpoint beside the loop.
        outputs: sends the outputs that a checkpoint causes.
        pace: limits the events of a checkpoint.
        time: publishes watermarks after a checkpoint, and between checkpoints as soon as their outputs are durable.
        metrics: counts checkpoints.
        clock: determines when a checkpoint is due.
    """

    def __init__(
        self,
        processor: Processor,
        shards: OpenShards,
        coordinator: CheckpointCoordinator,
        *,
        outputs: OutputWriter,
        pace: OutputPace,
        time: WatermarkTracker,
        metrics: Metrics,
        clock: MachineClock,
    ) -> None:
        adaptive = processor.checkpoint.adaptive and do_results_wait(type(processor))
        self._declared = replace(processor.checkpoint, adaptive=adaptive)
        self._every = self._declared.after(0.0)
        self._saving_s = math.inf
        """How long the last checkpoint was saved."""
        self._shards = shards
        self._coordinator = coordinator
        self._outputs = outputs
        self._pace = pace
        self._time = time
        self._metrics = metrics
        self._clock = clock
        self._uncommitted = Uncommitted(clock.monotonic_s())
        self._in_progress = self._uncommitted
        self._began_s = 0.0
        self._hold: Hold | None = None
        self._flushes_between = not do_results_wait(type(processor)) and not plan_of(processor).feedback_inputs
        self._flushed_s = clock.monotonic_s()
        self._flushing: Mapping[int, int] | None = None
        """The low watermarks to publish when the flush in progress has ended; None without one."""

    @property
    def are_outputs_waiting(self) -> bool:
        """Whether outputs wait for the end of a checkpoint or of a hold."""
        return self._coordinator.in_progress or self._hold is not None

    def add_work(self, events: int, size_bytes: int) -> None:
        """Count work for the next checkpoint."""
        self._uncommitted.add(events, size_bytes)

    def note_moved_position(self) -> None:
        """Let a checkpoint save a position that has moved without work: what is before it would count as a backlog for ever."""
        if not self._uncommitted.events:
            self._uncommitted.add(1, 0)

    def save_if_due(self) -> None:
        """Complete a saved checkpoint, and begin the next one when it is due."""
        self._coordinator.send_flushed()
        self._complete_saved()
        if self._hold is not None:
            self._advance_hold(self._hold)
        elif self._is_due():
            self.complete()
            self._begin()
            self._complete_saved()

    def flush_if_due(self) -> None:
        """Begin to flush outputs, so that the watermarks behind them need not wait for the next checkpoint.

        For a worker without further input: with a backlog, outputs that wait for a flush would cost throughput.
        """
        now_s = self._clock.monotonic_s()
        is_due = self._flushes_between and now_s - self._flushed_s >= FLUSH_EVERY_S
        if not is_due or self.are_outputs_waiting or self._is_due():
            return
        lows_ms = self._time.unpublished()
        if lows_ms:
            self._flushed_s, self._flushing = now_s, lows_ms
            self._coordinator.begin_flush()

    def _is_due(self) -> bool:
        """Return whether to begin a checkpoint. While one is in progress, the next one waits, unless too much work would gather."""
        now_s = self._clock.monotonic_s()
        most_events = self._pace.most_events
        if not self._uncommitted.due(self._every, now_s, most_events):
            return False
        return not self._coordinator.in_progress or self._uncommitted.overdue(self._every, now_s, most_events)

    def note_time_out(self, accepted: float) -> None:
        """Let the next checkpoints be smaller, because the bus accepted only a share of the outputs of the present one in time."""
        flushed = self._in_progress if self._flushing is None else self._uncommitted
        self._pace.note_time_out(flushed.events, accepted, self._clock.monotonic_s())

    def hold(self) -> Hold:
        """Save a checkpoint now, and then hold the outputs of later events and later checkpoints until `release`."""
        self.release()
        self._hold = Hold()
        return self._hold

    def release(self) -> None:
        """End the hold, if there is one: outputs and checkpoints go on."""
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.has_ended, hold.is_complete = True, False
            self._coordinator.release()

    def _advance_hold(self, hold: Hold) -> None:
        if not hold.is_begun:
            self._wait()
            hold.is_begun = True
            self._begin(hold=True)
            self._complete_saved()
        hold.is_complete = self._coordinator.is_held

    def _complete_saved(self) -> None:
        while self._coordinator.ready:
            self._advance()

    def save(self) -> bool:
        """Save a checkpoint and wait for it; return whether everything is saved.

        Also wait until its watermarks are published: when the shards are closed afterwards, their queued watermarks are dropped.
        """
        self.complete()
        self._begin()
        self.complete()
        self._time.flush()
        return not any(shard.has_news for shard in self._shards)

    def complete(self) -> None:
        """Wait for the checkpoint in progress, if any, and end a hold."""
        self._wait()
        self.release()

    def _wait(self) -> None:
        with self._metrics.loop.blocked():
            while self._coordinator.in_progress:
                self._advance()

    def abandon(self) -> None:
        """Wait for the running steps, and drop the checkpoint, because its shards will be closed."""
        self._coordinator.abandon()
        self._flushing = self._metrics.saving_since_s = None
        self._metrics.start_over()
        self.release()

    def _begin(self, *, hold: bool = False) -> None:
        for shard in self._shards:
            is_state_only, outputs = shard.is_state_only, shard.drain()
            if not is_state_only:
                self._outputs.send(shard, outputs)
        shards = [shard for shard in self._shards if shard.has_news]
        self._time.checkpoint_begun(shards)
        self._in_progress, self._uncommitted = self._uncommitted, Uncommitted(self._clock.monotonic_s())
        if shards or hold:
            self._began_s = self._metrics.saving_since_s = self._clock.monotonic_s()
            self._flushed_s = self._began_s
            self._metrics.begin_checkpoint()
            self._coordinator.begin(shards, hold=hold)

    def _advance(self) -> None:
        """Perform the next steps of the checkpoint in progress. The next checkpoint repeats an unconfirmed commit."""
        try:
            if not self._coordinator.advance():
                return
            lows_ms, self._flushing = self._flushing, None
            if lows_ms is None:
                self._note_complete()
            else:
                self._time.publish(lows_ms)
        except CommitUnconfirmed as error:
            _LOG.info("%s", error)
            self._uncommitted.put_back(self._in_progress)
            self._time.checkpoint_rolled_back()
            self._metrics.saving_since_s = None
            if self._hold is not None:
                self._hold.is_begun = False

    def _note_complete(self) -> None:
        self._metrics.complete_checkpoint()
        self._metrics.saving_since_s = None
        self._metrics.saved_ms = self._clock.now_ms()
        self._metrics.saving_s = self._clock.monotonic_s() - self._began_s
        self._metrics.timings.checkpoint.record_one(self._metrics.saving_s)
        # The quicker one of the last two, so that one slow checkpoint does not delay the next one.
        self._every = self._declared.after(min(self._saving_s, self._metrics.saving_s))
        self._saving_s = self._metrics.saving_s
        self._pace.note_saved(self._in_progress.events, self._saving_s, self._clock.monotonic_s())
        saved = self._coordinator.saved
        self._time.checkpoint_complete(saved)
        self._shards.record_committed([snapshot.number for snapshot in saved if snapshot.reached])
