"""Snapshots of apps in tests that have stopped, whose last checkpoints are a consistent cut; and the stateful processor of such apps."""

from __future__ import annotations

from collections.abc import Sequence

import penstock as ps
from penstock.ops.change.snapshots.snapshot import FORMAT, ProcessorCut, Snapshot
from penstock.ops.kernel.shards.resume_checks import event_times, positions_of_group
from penstock.processors.declare import plan_of
from penstock.processors.shard import StatePosition
from penstock.processors.time import NO_TIMES
from penstock.state.backups import ShardBackups
from penstock.transport.tables import ShardCut

from .machines import Machine
from .resets import EXACT, LEAST, MOST, Reading, Total, totals

checked = ps.Category("checked", Reading, key="meter", event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Sums the checked readings of each meter."""

    name = "totals"
    reads, writes, state = checked, totals, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        """Add a reading."""
        total = (state or 0) + event.litres
        return total, [Total(event.meter, event.at, total)]


class Timed(Totals):
    """Sums like `Totals`, but has a changelog, because it is declared as not deterministic."""

    deterministic = False


CASES = [(Totals, LEAST, LEAST), (Totals, EXACT, MOST), (Totals, EXACT, EXACT), (Timed, EXACT, EXACT)]
"""The stateful processor, with the semantics of its state and of its outputs."""


def stopped_snapshot(machine: Machine, app: Sequence[type[ps.Processor]], name: str = "app") -> Snapshot:
    """Return the snapshot of an app that has stopped."""
    for processor in app:
        if plan_of(processor).state_shape is not None:
            machine.back_up(processor)
    cuts = {
        processor.name: ProcessorCut(
            tuple(category.name for category in plan_of(processor).inputs),
            tuple(category.name for category in plan_of(processor).written_categories),
            plan_of(processor).state_shape,
            {number: _cut_of(machine, processor, number) for number in range(plan_of(processor).inputs[0].buckets)},
        )
        for processor in app
    }
    written = sorted({category.name for processor in app for category in plan_of(processor).written_categories})
    ends = {name: dict(machine.bus.ends(name)) for name in written}
    return Snapshot(FORMAT, name, "20261124T000000-0000", 0, 0.1, 0.2, cuts, ends)


def _cut_of(machine: Machine, processor: type[ps.Processor], number: int) -> ShardCut:
    """Return the part of one shard."""
    if plan_of(processor).state_shape is not None:
        newest = ShardBackups(machine.place, processor.name, number).newest()
        assert newest is not None
        return ShardCut(newest.position, str(newest.id))
    offsets = {
        category.name: position.offset or 0
        for category in plan_of(processor).inputs
        for position in machine.bus.positions(processor.name, category.name)
        if position.bucket.number == number
    }
    times = event_times(positions_of_group(processor, machine.bus)).get(number, NO_TIMES)
    return ShardCut(StatePosition(offsets), low_ms=times.low_ms, event_times=dict(times.inputs))
