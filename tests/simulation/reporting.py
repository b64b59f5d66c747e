"""What a worker says of itself in a run, and how it ends what others left open that say nothing any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING

import penstock as ps
from penstock.ops.monitoring.reports import REPORT_INTERVAL_S, REPORTS, Counts, Report, node_of, report_message
from penstock.ops.worker.transaction_sweeper import SweepThread
from penstock.ops.worker.worker import Worker

if TYPE_CHECKING:
    from .machines import Machine
    from .world import World


class Reporting:
    """Reports of a worker's life, without its figures.

    Args:
        world: where it lives.
        machine: its machine.
        processor: what it runs.
    """

    def __init__(self, world: World, machine: Machine, processor: type[ps.Processor]) -> None:
        self._world = world
        self._machine = machine
        self._node = node_of(processor)
        self._started_ms = world.clock.now_ms()
        self._due_s = 0.0

    def look(self, _: Worker) -> None:
        """Report, if that is wanted in this run, and time to."""
        now_s = self._world.clock.monotonic_s()
        if self._world.scenario.sweeps and self._world.brokers.are_up and now_s >= self._due_s:
            self._due_s = now_s + REPORT_INTERVAL_S
            self._world.bus.append(REPORTS.name, report_message(self._report()))

    def _report(self) -> Report:
        now_ms = self._world.clock.now_ms()
        return Report(self._node, self._machine.identity, "", 0, self._started_ms, now_ms, (), Counts())

    @contextmanager
    def sweeping(self, worker: Worker) -> Iterator[None]:
        """Have what others left open ended in the block."""
        sweeper = worker.sweeper() if self._world.scenario.sweeps else None
        with nullcontext() if sweeper is None else closing(SweepThread(sweeper)):
            yield
