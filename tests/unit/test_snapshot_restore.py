"""Restores of a snapshot: killed before each step and repeated, with messages in flight; and the ones that are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.machines import Machine, create_categories, read, write
from support.maintenance import Killed, environment, kill_before, worker_backups
from support.resets import EXACT, LEAST, MOST, Reading, Total, generate_readings, readings, totals

import penstock as ps
from penstock.ops.snapshots.restoring import RestorePlan, perform_restore, plan_restore
from penstock.ops.snapshots.snapshot import FORMAT, ProcessorCut, Snapshot, SnapshotError
from penstock.ops.worker.resume_checks import MaintenanceUnfinished
from penstock.processors.shard.position import StatePosition
from penstock.state.backups.shard import ShardBackups
from penstock.state.files.local_files import LocalFileStore
from penstock.transport.errors import GroupInUse
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Bucket
from penstock.transport.tables.maintenance_protocol import AtGap, MaintenanceStep, no_gap
from penstock.transport.tables.snapshot_requests import ShardCut

checked = ps.Category("checked", Reading, key="meter", event_time="at", buckets=2)
copies = ps.Category("copies", Reading, key="meter", event_time="at", buckets=2)


class Check(ps.Stateless):
    """Passes readings on."""

    name = "check"
    reads, writes = readings, checked

    def process(self, event: Reading) -> list[Reading]:
        """Pass one on."""
        return [event]


class Totals(ps.Stateful):
    """Sums the checked readings of each meter."""

    name = "totals"
    reads, writes, state = checked, totals, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        """Add a reading."""
        total = (state or 0) + event.litres
        return total, [Total(event.meter, event.at, total)]


class Timed(Totals):
    """The same with a changelog: its state also depends on the clock."""

    deterministic = False


class Copy(ps.Stateless):
    """Also reads the checked readings, and is ahead of `Totals` at the cut."""

    name = "copy"
    reads, writes = checked, copies

    def process(self, event: Reading) -> list[Reading]:
        """Copy one."""
        return [event]


App = tuple[type[ps.Processor], type[ps.Processor], type[ps.Processor]]
CASES = [(Totals, LEAST, LEAST), (Totals, EXACT, MOST), (Totals, EXACT, EXACT), (Timed, EXACT, EXACT)]


def app_of(base: type[Totals], state: ps.Semantics, output: ps.Semantics) -> App:
    """Return the processors with some semantics."""
    outputs = {"output_semantics": output}
    totals_kind = type("Totals", (base,), {"state_semantics": state, **outputs})
    return type("Check", (Check,), outputs), totals_kind, type("Copy", (Copy,), outputs)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a backup store."""
    return Machine(tmp_path / "machine", MemoryBus(), LocalFileStore(tmp_path / "place"))


def snapshot_of(machine: Machine, app: App) -> Snapshot:
    """Return the snapshot of an app that has stopped."""
    machine.back_up(app[1])
    cuts = {
        processor.name: ProcessorCut(
            tuple(category.name for category in processor.inputs()),
            tuple(category.name for category in processor.outputs()),
            processor.state_shape(),
            {number: cut_of(machine, processor, number) for number in range(2)},
        )
        for processor in app
    }
    ends = {name: dict(machine.bus.ends(name)) for name in ("checked", "totals", "copies")}
    return Snapshot(FORMAT, "app", "20261124T000000-0000", 0, 0.1, 0.2, cuts, ends)


def cut_of(machine: Machine, processor: type[ps.Processor], number: int) -> ShardCut:
    """Return the part of one shard."""
    if processor.state_shape() is not None:
        newest = ShardBackups(machine.place, processor.name, number).newest()
        assert newest is not None
        return ShardCut(newest.position, str(newest.id))
    name = processor.inputs()[0].name
    positions = [one for one in machine.bus.positions(processor.name, name) if one.bucket.number == number]
    return ShardCut(StatePosition({name: positions[0].offset or 0}))


def history(machine: Machine, app: App) -> Snapshot:
    """Let an app read 50 readings, and all but `Totals` 20 more. After the snapshot, all read 30 more."""
    create_categories(machine.bus, app)
    write(machine.bus, readings, generate_readings(0, 50))
    run(machine, app)
    write(machine.bus, readings, generate_readings(50, 70))
    run(machine, (app[0], app[2]))
    snapshot = snapshot_of(machine, app)
    write(machine.bus, readings, generate_readings(70, 100))
    run(machine, app)
    return snapshot


def run(machine: Machine, processors: Sequence[type[ps.Processor]]) -> None:
    """Let processors read to the end, one after another."""
    for processor in processors:
        machine.run(processor, worker_backups(machine))


def restore(machine: Machine, app: App, snapshot: Snapshot, at_gap: AtGap = no_gap) -> RestorePlan:
    """Plan and perform a restore."""
    plan = plan_restore(snapshot, app, environment(machine))
    perform_restore(plan, environment(machine), at_gap)
    return plan


def last_totals(machine: Machine) -> dict[str, int]:
    """Return the last total of each meter."""
    return {one.meter: one.litres for one in read(machine.bus, totals)}


def truth(end: int) -> dict[str, int]:
    """Return the expected totals."""
    return dict(Counter(one.meter for one in generate_readings(0, end)))


@pytest.mark.parametrize("step", [step for step in MaintenanceStep if step is not MaintenanceStep.STAGE_STATE])
@pytest.mark.parametrize(("base", "state", "output"), CASES)
def test_a_restore_that_is_killed_before_a_step_is_finished_by_its_repetition(
    machine: Machine, base: type[Totals], state: ps.Semantics, output: ps.Semantics, step: MaintenanceStep
) -> None:
    """Each reading counts once afterwards: the ones before the cut, the ones in flight, and the later ones, which are read again."""
    app = app_of(base, state, output)
    snapshot = history(machine, app)
    with pytest.raises(Killed):
        restore(machine, app, snapshot, kill_before(step))
    if step not in {MaintenanceStep.RECORD_START, MaintenanceStep.RECORD_END}:
        with pytest.raises(MaintenanceUnfinished):
            machine.run(app[1], worker_backups(machine))
    plan = restore(machine, app, snapshot)
    machine.lose(app[1])
    run(machine, app)

    assert sum(flight.end - flight.begin for flight in plan.flights) >= 20  # plus the ends of transactions
    assert plan.reprocessed == {"readings": 30}
    assert last_totals(machine) == truth(100)
    copied = Counter(one.at // 1_000 for one in read(machine.bus, copies))
    assert copied == {number: 1 if number < 70 else 2 for number in range(100)}
    write(machine.bus, readings, generate_readings(100, 120))
    run(machine, app)
    assert last_totals(machine) == truth(120)


def test_a_snapshot_is_restored_twice(machine: Machine) -> None:
    """The second restore starts from the same cut, whatever the first one has appended."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot = history(machine, app)
    for _ in range(2):
        restore(machine, app, snapshot)
        run(machine, app)

    assert last_totals(machine) == truth(100)


def test_restores_are_refused_with_the_reason(machine: Machine, tmp_path: Path) -> None:
    """While a worker runs, for another app, with a damaged state, and when messages of the cut have expired. Nothing changes."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot = history(machine, app)
    ends = dict(machine.bus.ends("checked"))
    with machine.working(app[1]) as worker:
        worker.run_once()
        with pytest.raises(GroupInUse):
            restore(machine, app, snapshot)
    changed = type("Totals", (Totals,), {"state": float})
    with pytest.raises(SnapshotError, match="totals did not exist"):
        restore(machine, (app[0], changed, app[2]), snapshot)
    file = next(path for path in (tmp_path / "place" / "totals" / "00000" / "files").iterdir())
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(SnapshotError, match="is damaged"):
        restore(machine, app, snapshot)
    file.write_bytes(content)
    machine.bus.trim(Bucket("checked", 0), ends[0])
    with pytest.raises(SnapshotError, match="checked/0 has no offset"):
        restore(machine, app, snapshot)

    assert machine.bus.ends("checked") == ends
    machine.run(app[1])
    assert last_totals(machine) == truth(100)
