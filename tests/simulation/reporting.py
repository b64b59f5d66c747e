"""Status reports of a simulated worker, and its sweeps of open transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import penstock as ps
from penstock.ops.monitoring.reports import REPORT_INTERVAL_S, REPORTS, Counts, Report, node_of, report_message
from penstock.ops.worker.transaction_sweeper import sweeping
from penstock.ops.worker.worker import Worker

if TYPE_CHECKING:
    from .machines import Machine
    from .world import World


class Reporting:
    """Reports that a worker is alive, without metrics.

    Args:
        world: its world.
        machine: its machine.
        processor: its processor.
    """

    def __init__(self, world: World, machine: Machine, processor: type[ps.Processor]) -> None:
        self._world = world
        self._machine = machine
        self._node = node_of(processor)
        self._started_ms = world.clock.now_ms()
        self._due_s = 0.0

    def report_if_due(self, _: Worker) -> None:
        """Report if a report is due and the scenario contains reports."""
        now_s = self._world.clock.monotonic_s()
        if self._world.scenario.sweeps and self._world.brokers.are_up and now_s >= self._due_s:
            self._due_s = now_s + REPORT_INTERVAL_S
            self._world.bus.append(REPORTS.name, report_message(self._report()))

    def _report(self) -> Report:
        now_ms = self._world.clock.now_ms()
        return Report(self._node, self._machine.identity, "", 0, self._started_ms, now_ms, (), Counts())

    @contextmanager
    def sweeping(self, worker: Worker) -> Iterator[None]:
        """Abort open transactions of vanished workers during the block."""
        with sweeping(worker.sweeper() if self._world.scenario.sweeps else None):
            yield
