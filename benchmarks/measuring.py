"""The measured side of each benchmark of workers: one worker processes its input up to a checkpoint."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import penstock as ps
from penstock.ops.kernel import Environment, Worker, assemble_worker, prepare, tune_memory
from penstock.ops.kernel.telemetry.metrics import Metrics
from penstock.processors.shard import Gap
from penstock.transport import Bus


class Measured(NamedTuple):
    """What was measured.

    Args:
        events: the number of measured events.
        seconds: the seconds until their last checkpoint was complete.
        cpu_s: the processor time of the process in that time, in seconds.
    """

    events: int
    seconds: float
    cpu_s: float


class MeasuredRange:
    """The measured part of a worker's input: the events after its first batch, or after the warm-up.

    Args:
        wanted: the number of events that the worker handles, including unmeasured events.
        warm_up: the number of unmeasured events, which end with a checkpoint; 0 for the first batch without a checkpoint.
        checkpoints: the number of measured checkpoints after which it ends, if that comes first.
    """

    def __init__(self, wanted: int, warm_up: int, checkpoints: int) -> None:
        self._wanted = wanted
        self._warm_up = warm_up
        self._checkpoints = checkpoints
        self._before: Metrics | None = None
        self._began_s = self._saved_s = self._began_cpu_s = self._saved_cpu_s = 0.0

    def finished(self, worker: Worker) -> bool:
        """Tell whether the worker may end; called after each iteration."""
        if self._before is None and worker.metrics.events_in > self._warm_up:
            if self._warm_up:
                worker.save()
            self._before = replace(worker.metrics)
            self._began_s, self._began_cpu_s = time.monotonic(), time.process_time()
        saved = worker.metrics.checkpoints - self._before.checkpoints if self._before else 0
        return saved >= self._checkpoints or worker.metrics.events_in >= self._wanted

    def at_gap(self, gap: Gap) -> None:
        """Record the completion of a checkpoint."""
        if gap == Gap(None):
            self._saved_s, self._saved_cpu_s = time.monotonic(), time.process_time()

    def measured(self, worker: Worker) -> Measured:
        """Return the measurement, up to the last complete checkpoint."""
        before = self._before or Metrics()
        events = worker.metrics.events_in - before.events_in
        return Measured(events, self._saved_s - self._began_s, self._saved_cpu_s - self._began_cpu_s)


def measured(
    processor: type[ps.Processor],
    bus: Bus,
    wanted: int,
    *,
    warm_up: int = 0,
    checkpoints: int = sys.maxsize,
    store: str | None = None,
    state_cache_bytes: int | None = None,
) -> Measured:
    """Run one worker, and measure it.

    Args:
        processor: the processor, with an unused name.
        bus: the bus of the events.
        wanted: the number of events before the worker ends.
        warm_up: the number of unmeasured events, which end with a checkpoint; the first batch is never measured.
        checkpoints: the number of measured checkpoints after which it ends, if that comes first.
        store: the address of the store for remote state.
        state_cache_bytes: the memory for decoded states.
    """
    stretch = MeasuredRange(wanted, warm_up, checkpoints)
    tune_memory()
    with TemporaryDirectory() as folder:
        around = Environment(Path(folder), store=store, state_cache_bytes=state_cache_bytes)
        with assemble_worker(prepare(processor, bus), bus, around, at_gap=stretch.at_gap) as worker:
            worker.run(stretch.finished)
    return stretch.measured(worker)
