"""Status reports of a simulated worker, and its sweeps of open transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import penstock as ps
from penstock.ops.kernel import REPORT_INTERVAL_S, REPORTS, STOPPED, Report, Worker, node_of
from penstock.ops.kernel.checkpoint.transaction_sweeper import sweeping
from penstock.ops.kernel.telemetry.reports import report_message
from penstock.processors import Counts

if TYPE_CHECKING:
    from .machines import Machine
    from .world import World


class Reporting:
    """Reports that a worker is alive, without metrics.

    Args:
        world: its world.
        machine: its machine.
        processor: its processor.
        until_end: whether it stops at the end of its input.
    """

    def __init__(self, world: World, machine: Machine, processor: type[ps.Processor], *, until_end: bool) -> None:
        self._world = world
        self._machine = machine
        self._node = node_of(processor)
        self._started_ms = world.clock.now_ms()
        self._until_end = until_end
        self._due_s = 0.0

    def report_if_due(self, _: Worker) -> None:
        """Report if a report is due and the scenario contains reports."""
        now_s = self._world.clock.monotonic_s()
        if self._world.scenario.sweeps and self._world.brokers.are_up and now_s >= self._due_s:
            self._due_s = now_s + REPORT_INTERVAL_S
            self._send("")

    def report_start(self) -> None:
        """Report a run to the end of its input before its first turn, if the brokers are up."""
        if self._until_end and self._world.brokers.are_up:
            self._send("")

    def repeat(self) -> None:
        """Report while the loop waits in a call, as the thread beside it does."""
        while True:
            self._world.scheduler.sleep(REPORT_INTERVAL_S)
            if self._world.brokers.are_up and self._world.clock.monotonic_s() >= self._due_s + REPORT_INTERVAL_S:
                self._send("")

    def report_end(self) -> None:
        """Report that it has stopped, if the scenario contains reports and the brokers are up."""
        if self._world.scenario.sweeps and self._world.brokers.are_up:
            self._send(STOPPED)

    def _send(self, end_reason: str) -> None:
        now_ms, identity = self._world.clock.now_ms(), self._machine.identity
        report = Report(
            node=self._node,
            worker=identity,
            host="",
            pid=0,
            started_ms=self._started_ms,
            at_ms=now_ms,
            shards=(),
            counts=Counts(),
            end_reason=end_reason,
            until_end=self._until_end,
        )
        self._world.bus.append(REPORTS.name, report_message(report))

    @contextmanager
    def sweeping(self, worker: Worker) -> Iterator[None]:
        """Abort open transactions of vanished workers during the block."""
        with sweeping(worker.sweeper() if self._world.scenario.sweeps else None):
            yield
