"""A checkpoint in progress: saved in a thread, while the loop continues to read and process; only effects wait.

Source: Chen et al., "Realtime Data Processing at Facebook", 2016, section 4.3.2 and figure 9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from itertools import groupby

from ....processors import PenstockError
from ....processors.shard import Gap, Step, Steps
from ....transport import CommitUnconfirmed
from ..shards import OpenShard, OpenSnapshot
from .checkpoint_executor import CheckpointExecutor

_LOG = logging.getLogger("penstock.worker")


class CheckpointCoordinator:
    """Saves the checkpoints of one worker, one at a time. One thread calls.

    The group's positions are committed in that thread: while the reader reports a change of ownership and the loop waits for the end of a
    checkpoint, the client lets no other thread commit.

    Args:
        steps: the steps of a checkpoint.
        executor: performs them.
        saver: the thread in which it does.
        at_gap: called in each gap between two steps.
    """

    def __init__(
        self, steps: Steps, executor: CheckpointExecutor, saver: Executor, at_gap: Callable[[Gap], None]
    ) -> None:
        self._step_groups = [tuple(steps) for _, steps in groupby(steps, lambda step: step is Step.COMMIT_OFFSETS)]
        self._executor = executor
        self._saver = saver
        self._at_gap = at_gap
        self._shards: list[tuple[OpenShard, OpenSnapshot]] = []
        self._remaining: list[Steps] = []
        self._future: Future[None] | None = None
        self._holds = False
        self.is_held = False
        """Whether the last checkpoint is complete, and the outputs of later events wait for `release`."""

    @property
    def in_progress(self) -> bool:
        """Whether a checkpoint or a flush has begun and not ended."""
        return self._future is not None

    @property
    def ready(self) -> bool:
        """Whether `advance` would not wait."""
        return self._future is not None and self._future.done()

    @property
    def saved(self) -> list[OpenSnapshot]:
        """The snapshots of the last checkpoint."""
        return [snapshot for _, snapshot in self._shards]

    def begin(self, shards: Sequence[OpenShard], *, hold: bool = False) -> None:
        """Begin a checkpoint of some shards as they are now. The previous checkpoint has ended.

        Args:
            shards: the shards; none only with `hold`.
            hold: whether the outputs of later events wait for `release`, not only for the end of the checkpoint.
        """
        self._holds = hold
        self._shards = [(shard, shard.snapshot()) for shard in shards]
        self._remaining = list(self._step_groups) if shards else []
        self._executor.begin(hold=hold)
        self._future = _done()

    def begin_flush(self) -> None:
        """Begin to flush the outputs so far, as a checkpoint does first, and save nothing. No gap is reported."""
        self._holds = False
        self._shards, self._remaining = [], []
        self._executor.begin()
        self._future = self._saver.submit(self._flush)

    def _flush(self) -> None:
        self._executor.perform(Step.FLUSH_OUTPUTS, [])

    def send_flushed(self) -> None:
        """Send the outputs of later events that need not wait for the end of the checkpoint."""
        self._executor.send_flushed()

    def release(self) -> None:
        """Send the outputs that were held after a checkpoint, or will be held after the running one."""
        self._holds = False
        if self.is_held:
            self.is_held = False
            self._executor.end()

    def _begin_steps(self) -> Future[None]:
        """Perform the next steps here, or begin them in the saver's thread."""
        steps = self._remaining.pop(0)
        if Step.COMMIT_OFFSETS not in steps:
            return self._saver.submit(self._perform, steps)
        self._perform(steps)
        return _done()

    def _perform(self, steps: Steps) -> None:
        shards = [snapshot for _, snapshot in self._shards]
        for step in steps:
            self._at_gap(Gap(step))
            self._executor.perform(step, shards)
        if not self._remaining:
            self._at_gap(Gap(None))

    def advance(self) -> bool:
        """Wait for the running steps, and begin the next ones; return whether the checkpoint or the flush is complete.

        Raises:
            CommitUnconfirmed: the checkpoint did not end; the next one saves the rest.
            PenstockError: the shards must be opened again.
        """
        future, self._future = self._future, None
        try:
            if future is not None:
                future.result()
            if self._remaining:
                self._future = self._begin_steps()
                return False
        except CommitUnconfirmed:
            for shard, snapshot in self._shards:
                shard.roll_back(snapshot)
            self._executor.end()
            raise
        finally:
            del future  # its error holds this frame, and would keep what the frames of the checkpoint hold
        for shard, snapshot in self._shards:
            shard.complete(snapshot)
        self.is_held = self._holds
        if not self.is_held:
            self._executor.end()
        return True

    def abandon(self) -> None:
        """Wait for the running steps, and record nothing, since the shards will be closed."""
        future, self._future = self._future, None
        self._holds = self.is_held = False
        error = None if future is None else future.exception()
        if isinstance(error, PenstockError):
            _LOG.info("%s", error)
        elif error is not None:
            raise error


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future
