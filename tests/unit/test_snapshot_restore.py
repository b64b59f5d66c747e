"""Restores of a snapshot: killed before each step and repeated, with messages in flight; and the ones that are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from support.cloned_shop import clone_of, make
from support.machines import Machine, create_categories, read, write
from support.maintenance import Killed, environment, kill_before, worker_backups
from support.resets import EXACT, Reading, Total, generate_readings, readings, totals
from support.snapshots import CASES, Timed, Totals, checked, stopped_snapshot

import penstock as ps
from penstock.ops.change.maintenance.reset import ResetPlan, perform_reset
from penstock.ops.change.snapshots.restoring import RestorePlan, perform_restore, plan_restore, plan_restore_alone
from penstock.ops.change.snapshots.snapshot import Snapshot, SnapshotError
from penstock.ops.dead_letters.letters import LetterState, read_letters
from penstock.ops.kernel.shards.resume_checks import MaintenanceUnfinished
from penstock.processors.apps import App
from penstock.processors.time import NEVER_MS
from penstock.state.files import LocalFileStore
from penstock.transport import Bucket, GroupInUse, Position
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import AtGap, MaintenanceRefused, MaintenanceStep, no_gap, watermarks_on

copies = ps.Category("copies", Reading, key="meter", event_time="at", buckets=2)


class Check(ps.Stateless):
    """Passes readings on."""

    name = "check"
    reads, writes = readings, checked

    def process(self, event: Reading) -> list[Reading]:
        """Pass one on."""
        return [event]


class Copy(ps.Stateless):
    """Also reads the checked readings, and is ahead of `Totals` at the cut."""

    name = "copy"
    reads, writes = checked, copies

    def process(self, event: Reading) -> list[Reading]:
        """Copy one."""
        return [event]


Three = tuple[type[ps.Processor], type[ps.Processor], type[ps.Processor]]


def app_of(base: type[Totals], state: ps.Semantics, output: ps.Semantics) -> Three:
    """Return the processors with some semantics."""
    outputs = {"output_semantics": output}
    totals_kind = type("Totals", (base,), {"state_semantics": state, **outputs})
    return type("Check", (Check,), outputs), totals_kind, type("Copy", (Copy,), outputs)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a backup store."""
    return Machine(tmp_path / "machine", MemoryBus(), LocalFileStore(tmp_path / "place"))


def history(machine: Machine, app: Three) -> Snapshot:
    """Let an app read 50 readings, and all but `Totals` 20 more. After the snapshot, all read 30 more."""
    create_categories(machine.bus, app)
    write(machine.bus, readings, generate_readings(0, 50))
    run(machine, app)
    write(machine.bus, readings, generate_readings(50, 70))
    run(machine, (app[0], app[2]))
    snapshot = stopped_snapshot(machine, app)
    write(machine.bus, readings, generate_readings(70, 100))
    run(machine, app)
    return snapshot


def run(machine: Machine, processors: Sequence[type[ps.Processor]]) -> None:
    """Let processors read to the end, one after another."""
    for processor in processors:
        machine.run(processor, worker_backups(machine))


def restore(machine: Machine, app: Three, snapshot: Snapshot, at_gap: AtGap = no_gap) -> RestorePlan:
    """Plan and perform a restore."""
    plan = plan_restore(snapshot, app, environment(machine))
    perform_restore(plan, environment(machine), at_gap)
    return plan


def restore_alone(machine: Machine, app: Three, snapshot: Snapshot, at_gap: AtGap = no_gap) -> ResetPlan:
    """Plan and perform a restore of the totals alone."""
    plan = plan_restore_alone(snapshot, app[1], environment(machine))
    perform_reset(plan, environment(machine), at_gap)
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
    """Each reading counts once afterwards: before the cut, in flight at the cut, and later. Later ones are read again."""
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

    assert sum(flight.end - flight.start for flight in plan.flights) >= 20  # plus the ends of transactions
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


@pytest.mark.parametrize("is_cloned", [False, True])
def test_a_processor_without_state_publishes_the_watermark_of_the_cut(machine: Machine, *, is_cloned: bool) -> None:
    """It needs no further event, so event time advances after a restore and in a clone."""
    app = App("shop", app_of(Totals, EXACT, EXACT))
    create_categories(machine.bus, app.processors)
    write(machine.bus, readings, generate_readings(0, 50))
    run(machine, app.processors)
    snapshot, continued = stopped_snapshot(machine, app.processors, app.name), app
    before = lows(machine, app.processors[0])
    if is_cloned:
        continued = clone_of(app)
        make(machine, continued, snapshot)
    else:
        perform_restore(plan_restore(snapshot, app.processors, environment(machine)), environment(machine))
        assert lows(machine, app.processors[0]) == {}
    run(machine, [continued.processors[0]])

    assert before
    assert min(before.values()) > NEVER_MS
    assert lows(machine, continued.processors[0]) == before


class Refused(ps.Stateless):
    """Refuses every tenth reading, also at its second attempt."""

    name = "refused"
    reads, writes = readings, checked
    output_semantics = EXACT
    on_error = ps.Retry(after=timedelta(seconds=1), attempts=2)

    def process(self, event: Reading) -> list[Reading]:
        """Pass one on."""
        if event.at % 10_000 == 0:
            raise ValueError("refused")
        return [event]


def test_letters_about_readings_after_the_cut_are_dropped(machine: Machine) -> None:
    """One letter is about a reading that waited for a retry at the cut. All readings are processed, and refused, again."""
    create_categories(machine.bus, [Refused])
    write(machine.bus, readings, generate_readings(0, 10))
    run_twice(machine)
    write(machine.bus, readings, generate_readings(10, 20))
    run(machine, [Refused])
    snapshot = stopped_snapshot(machine, [Refused])
    write(machine.bus, readings, generate_readings(20, 30))
    run_twice(machine)
    before = states_of_letters(machine)
    plan = plan_restore(snapshot, [Refused], environment(machine))
    perform_restore(plan, environment(machine))
    after = states_of_letters(machine)
    run_twice(machine)

    assert before == Counter({LetterState.PENDING: 3})
    assert after == Counter({LetterState.PENDING: 1, LetterState.DROPPED: 2})
    assert states_of_letters(machine) == Counter({LetterState.PENDING: 3, LetterState.DROPPED: 2})


def run_twice(machine: Machine) -> None:
    """Let `Refused` read its input, and then what waits for a retry."""
    run(machine, [Refused])
    machine.clock.advance(60)
    run(machine, [Refused])


def states_of_letters(machine: Machine) -> Counter[LetterState]:
    """Count the letters of `Refused` by their states."""
    return Counter(letter.state for letter in read_letters(machine.bus, "refused"))


def lows(machine: Machine, processor: type[ps.Processor]) -> dict[int, int]:
    """Return the published low watermark of each shard."""
    return {
        number: found.low_ms for (name, number), found in watermarks_on(machine.bus).items() if name == processor.name
    }


def test_restores_are_refused_with_the_reason(machine: Machine, tmp_path: Path) -> None:
    """A worker runs, the app is another one, a state is damaged, or messages of the cut have expired. Nothing changes."""
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


def wrong_history(machine: Machine, app: Three) -> tuple[Snapshot, Three]:
    """As `history`, but a version of the totals with a fault has counted the readings after the snapshot tenfold."""

    def process(self: ps.Stateful, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        total = (state or 0) + 10 * event.litres
        return total, [Total(event.meter, event.at, total)]

    create_categories(machine.bus, app)
    write(machine.bus, readings, generate_readings(0, 50))
    run(machine, app)
    snapshot = stopped_snapshot(machine, app)
    write(machine.bus, readings, generate_readings(50, 100))
    run(machine, (app[0], type("Totals", (app[1],), {"process": process}), app[2]))
    machine.back_up(app[1])  # the newest backup is wrong, too
    return snapshot, app


@pytest.mark.parametrize("step", [step for step in MaintenanceStep if step is not MaintenanceStep.STAGE_STATE])
@pytest.mark.parametrize(("base", "state", "output"), [case for case in CASES if case[0] is Totals])
def test_a_processor_goes_back_alone(
    machine: Machine, base: type[Totals], state: ps.Semantics, output: ps.Semantics, step: MaintenanceStep
) -> None:
    """Its state forgets the effects of a faulty version on later readings. No output is written twice, and other processors continue.

    A repetition finishes a restore that was killed before any step. A worker that has lost its disk afterwards finds the same state.
    """
    snapshot, app = wrong_history(machine, app_of(base, state, output))
    with machine.working(app[0]) as other:
        other.run_once()
        with pytest.raises(Killed):
            restore_alone(machine, app, snapshot, kill_before(step))
        plan = restore_alone(machine, app, snapshot)
        other.run_once()
    written = len(read(machine.bus, totals))
    machine.lose(app[1])
    run(machine, app)

    assert plan.repeated == plan.skipped == 0
    assert 50 <= sum(shard.caught_up for shard in plan.shards) <= 60  # plus the ends of transactions
    assert len(read(machine.bus, totals)) == written
    write(machine.bus, readings, generate_readings(100, 120))
    run(machine, app)
    seen = Counter(one.meter for one in generate_readings(100, 120))
    assert len(read(machine.bus, totals)) == written + 20
    assert last_totals(machine).items() >= {meter: truth(120)[meter] for meter in seen}.items()


def test_restores_of_one_processor_are_refused_with_the_reason(machine: Machine) -> None:
    """It has no state, depends on more than its events, runs, or lacks events since the cut."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot = history(machine, app)
    with pytest.raises(MaintenanceRefused, match="has no state"):
        plan_restore_alone(snapshot, app[0], environment(machine))
    with machine.working(app[1]) as worker:
        worker.run_once()
        with pytest.raises(GroupInUse):
            restore_alone(machine, app, snapshot)
    machine.bus.trim(Bucket("checked", 0), machine.bus.ends("checked")[0] - 1)
    with pytest.raises(MaintenanceRefused, match="needs the events from"):
        restore_alone(machine, app, snapshot)

    run(machine, app)
    assert last_totals(machine) == truth(100)


def test_a_state_from_after_the_position_of_its_processor_is_not_restored_alone(machine: Machine) -> None:
    """It contains events that the processor reads again."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot = history(machine, app)
    machine.bus.catalog.set_committed("totals", [Position(Bucket("checked", 0), 1)])

    with pytest.raises(
        MaintenanceRefused, match=r"bucket 0: the snapshot is at checked \d+, .* gone back to checked 1 "
    ):
        restore_alone(machine, app, snapshot)


def test_a_state_with_a_changelog_does_not_go_back_alone(machine: Machine) -> None:
    """Its events could lead to another state."""
    app = app_of(Timed, EXACT, EXACT)
    snapshot = history(machine, app)

    with pytest.raises(MaintenanceRefused, match="cannot go back alone"):
        restore_alone(machine, app, snapshot)
