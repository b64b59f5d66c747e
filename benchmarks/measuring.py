"""The measured side of every benchmark of workers: one worker works on its input, up to a checkpoint."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import penstock as ps
from penstock.ops.worker.assembly import Environment, assemble_worker, tune_gc
from penstock.ops.worker.metrics import Metrics
from penstock.ops.worker.preflight import prepare
from penstock.ops.worker.worker import Worker
from penstock.processors.shard.checkpoints import Gap
from penstock.transport.bus import Bus


class Stretch:
    """The part of a worker's work that is measured: what it handles after its first batch, or after warming up.

    Args:
        wanted: the number of events that the worker handles, including unmeasured events.
        warm_up: how many of them are handled, and saved, before any counts; with 0, the first batch is not saved apart.
        checkpoints: after how many checkpoints that count it ends, if that comes first.
    """

    def __init__(self, wanted: int, warm_up: int, checkpoints: int) -> None:
        self._wanted = wanted
        self._warm_up = warm_up
        self._checkpoints = checkpoints
        self._before: Metrics | None = None
        self._began_s = self._saved_s = 0.0

    def finished(self, worker: Worker) -> bool:
        """Tell whether the worker may end; called after each turn."""
        if self._before is None and worker.metrics.events_in > self._warm_up:
            if self._warm_up:
                worker.save()
            self._before = replace(worker.metrics)
            self._began_s = time.monotonic()
        saved = worker.metrics.checkpoints - self._before.checkpoints if self._before else 0
        return saved >= self._checkpoints or worker.metrics.events_in >= self._wanted

    def at_gap(self, gap: Gap) -> None:
        """Note when a checkpoint is complete."""
        if gap == Gap(None):
            self._saved_s = time.monotonic()

    def measured(self, worker: Worker) -> tuple[int, float]:
        """Return how many events it took, and the seconds until their last checkpoint was complete."""
        before = self._before or Metrics()
        return worker.metrics.events_in - before.events_in, self._saved_s - self._began_s


def measured(
    processor: type[ps.Processor],
    bus: Bus,
    wanted: int,
    *,
    warm_up: int = 0,
    checkpoints: int = sys.maxsize,
    store: str | None = None,
) -> tuple[int, float]:
    """Run one worker; return how many events were measured, and in how many seconds.

    Args:
        processor: what it runs, under a name that no worker has had.
        bus: where the events are, or will be.
        wanted: how many events it handles before it ends.
        warm_up: how many of them are handled, and saved, before any counts; the first batch never does.
        checkpoints: after how many measured checkpoints it ends, if that comes first.
        store: the address of the store for remote state.
    """
    stretch = Stretch(wanted, warm_up, checkpoints)
    tune_gc()
    with TemporaryDirectory() as folder:
        around = Environment(Path(folder), store=store)
        with assemble_worker(prepare(processor, bus), bus, around, at_gap=stretch.at_gap) as worker:
            worker.run(stretch.finished)
    return stretch.measured(worker)
