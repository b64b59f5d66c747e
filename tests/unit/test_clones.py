"""Clones: a second app from a snapshot, on its own categories, beside the original one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cloned_shop import (
    Processors,
    app_of,
    clone_of,
    expected_totals,
    flagged,
    history,
    make,
    own,
    run,
    spare,
    summed,
    sums,
)
from support.machines import Machine, create_categories, read, write
from support.maintenance import Killed, environment, kill_before, worker_backups
from support.resets import EXACT, Reading, Total, generate_readings, readings, reset, totals
from support.snapshots import CASES, Timed, Totals, checked, stopped_snapshot

import penstock as ps
from penstock.ops.change import ComparedTimes, compare_clone
from penstock.ops.change.clones.clone_removal import plan_removal, remove_clone
from penstock.ops.change.clones.cloning import CloneRefused
from penstock.ops.change.maintenance.migration import perform_migration
from penstock.ops.change.maintenance.migration_plan import plan_migration
from penstock.ops.change.maintenance.processor_positions import LocalStates
from penstock.ops.change.maintenance.reset_plan import StatePolicy
from penstock.ops.change.maintenance.reset_target import Edge
from penstock.ops.change.maintenance.state_conversion import StateFunction
from penstock.ops.change.snapshots.restoring import perform_restore, plan_restore
from penstock.ops.change.snapshots.snapshot import Snapshot, SnapshotError, new_id
from penstock.ops.kernel import RunLimits
from penstock.ops.kernel.shards.preflight import MissingClone
from penstock.ops.kernel.shards.resume_checks import MaintenanceUnfinished, StateSuperseded
from penstock.processors import PenstockError
from penstock.processors.apps import App, AppName, names_app
from penstock.processors.time import saved_watermarks
from penstock.state.backups import BackupId, ShardBackups, no_progress, opened_backup
from penstock.state.files import LocalFileStore
from penstock.state.local import current, opened_read_only
from penstock.transport import Bucket, CategorySpec, changelog_position
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import MaintenanceStep, newest_maintenance, registrations_on
from penstock.transport.tables.maintenance_protocol import MaintenanceGap


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a backup store."""
    return Machine(tmp_path / "machine", MemoryBus(), LocalFileStore(tmp_path / "place"))


@pytest.mark.parametrize("step", [step for step in MaintenanceStep if step is not MaintenanceStep.STAGE_STATE])
@pytest.mark.parametrize(
    ("base", "state", "output"),
    [CASES[-1], *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in CASES[:-1])],
)
def test_a_clone_that_is_killed_before_a_step_is_finished_by_its_repetition(
    machine: Machine, base: type[Totals], state: ps.Semantics, output: ps.Semantics, step: MaintenanceStep
) -> None:
    """It continues from the cut: with messages in flight, open windows, its own tables and without the original's later messages."""
    app = app_of(base, state, output)
    snapshot, clone = history(machine, app), clone_of(app)
    before = {one.name: dict(machine.bus.ends(one.name)) for one in app.categories()}
    with pytest.raises(Killed):
        make(machine, clone, snapshot, kill_before(step))
    if step not in {MaintenanceStep.RECORD_START, MaintenanceStep.RECORD_END}:
        with pytest.raises((MaintenanceUnfinished, PenstockError)):
            machine.run(clone.processors[1], worker_backups(machine))
    make(machine, clone, snapshot)
    machine.lose(clone.processors[1])
    run(machine, clone.processors)

    assert {one.name: dict(machine.bus.ends(one.name)) for one in app.categories()} == before
    assert summed(own(totals), machine) == expected_totals(50, 100)
    assert {one.litres for one in read(machine.bus, own(flagged))} == {7}
    assert len(read(machine.bus, own(flagged))) == 50
    by_original = summed(sums, machine)
    assert summed(own(sums), machine) <= by_original
    assert max(one.at for one in read(machine.bus, own(sums))) == max(one.at for one in read(machine.bus, sums))
    write(machine.bus, readings, generate_readings(100, 120))
    run(machine, [*clone.processors, *app.processors])
    assert summed(own(totals), machine) == expected_totals(50, 120)
    assert summed(totals, machine) == expected_totals(0, 120)


@settings(max_examples=5, deadline=None)
@given(st.data())
def test_each_reading_counts_once_whatever_the_order_of_runs_kills_and_restores(data: st.DataObject) -> None:
    """The command of the clone was killed at any gap, and the original app may go back to the same snapshot meanwhile."""
    with TemporaryDirectory() as folder:
        machine = Machine(Path(folder) / "machine", MemoryBus(), LocalFileStore(Path(folder) / "place"))
        _Interleaved(data, machine).check()


class _Interleaved:
    """One random history of an app and its clone."""

    def __init__(self, data: st.DataObject, machine: Machine) -> None:
        self._draw = data.draw
        self._machine = machine
        base, state, output = self._draw(st.sampled_from(CASES))
        self._app = app_of(base, state, output)
        self._clone = clone_of(self._app)
        self._written = self._checked = 0
        self._counted = 0

    def check(self) -> None:
        """Let it happen, and compare with the truth."""
        create_categories(self._machine.bus, self._app.processors)
        self._go_on([self._app.processors])
        self._some_runs([self._app.processors])
        snapshot, counted = stopped_snapshot(self._machine, self._app.processors, self._app.name), self._counted
        self._some_runs([self._app.processors])
        self._make(snapshot)
        restored = self._maybe_restore(snapshot)
        self._some_runs([self._clone.processors, self._app.processors])
        if self._draw(st.booleans()):
            self._machine.lose(self._clone.processors[1])
        self._go_on([self._clone.processors, self._app.processors])

        assert summed(own(totals), self._machine) == expected_totals(counted, self._written)
        once = expected_totals(0, self._written)
        repeated = Counter[tuple[str, int, int]]() if restored is None else expected_totals(counted, restored)
        assert summed(totals, self._machine) == once + repeated

    def _go_on(self, apps: Sequence[Processors]) -> None:
        """Write readings, and run all processors."""
        count = self._draw(st.integers(5, 15))
        write(self._machine.bus, readings, generate_readings(self._written, self._written + count))
        self._written += count
        for processors in apps:
            self._run(processors)

    def _some_runs(self, apps: Sequence[Processors]) -> None:
        """Write readings, and run some processors in any order."""
        for _ in range(self._draw(st.integers(1, 3))):
            self._go_on([])
            chosen = self._draw(st.lists(st.sampled_from([each for app in apps for each in app]), max_size=5))
            self._run(chosen)

    def _run(self, processors: Processors) -> None:
        for processor in processors:
            self._machine.run(processor, worker_backups(self._machine))
            if processor.name == "check":
                self._checked = self._written
            elif processor.name == "totals":
                self._counted = max(self._counted, self._checked)

    def _make(self, snapshot: Snapshot) -> None:
        gaps: list[MaintenanceGap] = []

        def kill(gap: MaintenanceGap) -> None:
            gaps.append(gap)
            if len(gaps) == at:
                raise Killed

        at = self._draw(st.integers(1, 60))
        with suppress(Killed):
            make(self._machine, self._clone, snapshot, kill)
            return
        make(self._machine, self._clone, snapshot)

    def _maybe_restore(self, snapshot: Snapshot) -> int | None:
        """Let the original go back; return the number of readings that it had counted, or None without."""
        if not self._draw(st.booleans()):
            return None
        plan = plan_restore(snapshot, self._app.processors, environment(self._machine))
        perform_restore(plan, environment(self._machine))
        return self._counted


def test_the_event_times_of_renamed_inputs_are_kept(machine: Machine) -> None:
    """A window that the original could close must not wait for its first event again."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot, clone = history(machine, app), clone_of(app)
    make(machine, clone, snapshot)
    for number, cut in snapshot.processors["sums"].shards.items():
        backups = ShardBackups(machine.place, "sums", number)
        with opened_backup(backups, backups.read(BackupId.parse(cut.backup)), no_progress) as state:
            before = saved_watermarks(["checked"], state)
        with opened_read_only(expect_current(machine, clone.processors[2], number)) as state:
            after = saved_watermarks(["checked", "staging.checked"], state)
            position = state.position()

        assert before
        assert after == {"staging.checked": before["checked"]}
        assert position.offsets.keys() == {"staging.checked"}


def expect_current(machine: Machine, processor: type[ps.Processor], number: int) -> Path:
    """Return the folder of a shard's state."""
    folder = current(LocalStates(processor, machine.states, None).folder(number))
    assert folder is not None
    return folder


def test_a_clone_is_restored_to_a_snapshot_of_its_own(machine: Machine) -> None:
    """It is an app like any other; the original one is not affected."""
    app = app_of(Totals, EXACT, EXACT)
    clone = clone_of(app)
    make(machine, clone, history(machine, app))
    run(machine, clone.processors)
    snapshot = stopped_snapshot(machine, clone.processors, clone.name)
    write(machine.bus, readings, generate_readings(100, 120))
    run(machine, clone.processors)
    perform_restore(plan_restore(snapshot, clone.processors, environment(machine)), environment(machine))
    run(machine, clone.processors)

    assert summed(own(totals), machine) == expected_totals(50, 120) + expected_totals(100, 120)
    assert summed(totals, machine) == expected_totals(0, 100)


def test_clones_are_refused_with_the_reason(machine: Machine) -> None:
    """The name is taken, the categories belong to others, the app has changed, or a program would run twice."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot = history(machine, app)
    make(machine, clone_of(app), snapshot)
    ends = {name: dict(machine.bus.ends(name)) for name in machine.bus.names()}
    with pytest.raises(CloneRefused, match="shop@staging exists already"):
        make(machine, clone_of(app), snapshot)
    machine.bus.create(CategorySpec("blue.totals", 1))
    with pytest.raises(CloneRefused, match=r"blue.totals exists already and does not belong to a clone"):
        make(machine, clone_of(app, "blue"), snapshot)
    changed = App("shop", (*app.processors[:1], type("Totals", (Totals,), {"state": float}), *app.processors[2:]))
    with pytest.raises(SnapshotError, match="totals did not exist"):
        make(machine, clone_of(changed, "green"), snapshot)
    pipe = type(
        "Pass", (ps.Pipe,), {"name": "check", "reads": readings, "writes": (checked, spare), "command": ("cat",)}
    )
    piped = App("shop", (pipe, *app.processors[1:]))
    with pytest.raises(CloneRefused, match="Pass runs an external program"):
        make(machine, clone_of(piped, "green"), snapshot)
    machine.bus.trim(Bucket("readings", 0), machine.bus.ends("readings")[0])
    with pytest.raises(SnapshotError, match="readings/0 has no offset"):
        make(machine, clone_of(app, "green"), snapshot)

    assert {name: dict(machine.bus.ends(name)) for name in ends} == ends


def test_a_clone_writes_no_rows_to_sinks(machine: Machine) -> None:
    """The original has written them already, or will; an exactly-once sink is refused, because it contains the positions."""
    rows = ps.sinks.MemorySink(Reading)
    store = type("Store", (ps.Stateless,), {"reads": checked, "writes": rows, "process": lambda _, event: [event]})
    app = App("shop", (*app_of(Totals, EXACT, EXACT).processors[:2], store))
    clone = clone_of(app)
    make(machine, clone, history(machine, app))
    written = len(rows.rows)
    run(machine, clone.processors)
    exact = App("shop", (*app.processors[:2], type("Store", (store,), {"output_semantics": EXACT})))
    snapshot = stopped_snapshot(machine, app.processors)
    with pytest.raises(CloneRefused, match=r"Store writes .* exactly once"):
        make(machine, clone_of(exact, "blue"), snapshot)

    assert written == len(rows.rows) == 100
    assert summed(own(totals), machine) == expected_totals(50, 100)


def test_a_worker_of_a_clone_that_was_never_made_does_not_start(machine: Machine) -> None:
    """It would read everything from the first event, into categories that no user wants."""
    app = app_of(Totals, EXACT, EXACT)
    history(machine, app)
    clone = clone_of(app, "misspelt")
    create_categories(machine.bus, clone.processors)
    with pytest.raises(MissingClone, match=r"There is no misspelt\.totals"):
        machine.run(clone.processors[1])

    assert not machine.bus.committed("misspelt.totals", "misspelt.checked")


@pytest.mark.parametrize("is_finished", [True, False])
def test_nothing_of_a_removed_clone_remains(machine: Machine, *, is_finished: bool) -> None:
    """The clone has run, or its command was killed. The original app continues."""
    app = app_of(Timed, EXACT, EXACT)
    snapshot, clone, folder = history(machine, app), clone_of(app), machine.folder
    if is_finished:
        make(machine, clone, snapshot)
        run(machine, clone.processors)
    else:
        with pytest.raises(Killed):
            make(machine, clone, snapshot, kill_before(MaintenanceStep.MOVE_POSITIONS))
    place = str(machine.place.location)
    remove_clone(plan_removal(clone, machine.bus, folder, place), machine.bus, folder, lambda _: None)

    assert not [name for name in machine.bus.names() if name.startswith("staging.")]
    assert not list(machine.states.glob("staging*"))
    assert not [path for path in Path(place).rglob("*") if path.is_file() and "staging" in str(path)]
    assert not any(is_known(machine, processor.name) for processor in clone.processors)
    with pytest.raises(CloneRefused, match="There is no clone shop@staging"):
        plan_removal(clone, machine.bus, folder, place)
    write(machine.bus, readings, generate_readings(100, 120))
    run(machine, app.processors)
    assert summed(totals, machine) == expected_totals(0, 120)


def is_known(machine: Machine, processor: str) -> bool:
    """Return whether the bus knows a processor."""
    return processor in registrations_on(machine.bus) or newest_maintenance(machine.bus, processor) is not None


@pytest.mark.parametrize("is_clone", [True, False])
def test_a_lost_state_of_a_cut_is_not_rebuilt_from_categories_that_lack_its_events(
    machine: Machine, *, is_clone: bool
) -> None:
    """Without a backup, the state cannot be known: messages before the cut are missing there, or are there twice."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot = history(machine, app)
    restored = app
    if is_clone:
        restored = clone_of(app)
        make(machine, restored, snapshot)
    else:
        perform_restore(plan_restore(snapshot, app.processors, environment(machine)), environment(machine))
    machine.lose(restored.processors[1])

    with pytest.raises(StateSuperseded, match="do not rebuild it"):
        machine.run(restored.processors[1])


def test_a_lost_state_of_a_clone_is_rebuilt_from_its_changelog(machine: Machine) -> None:
    """The changelog of the clone contains the state at the cut, without a backup."""
    app = app_of(Timed, EXACT, EXACT)
    snapshot, clone = history(machine, app), clone_of(app)
    make(machine, clone, snapshot)
    machine.lose(clone.processors[1])
    for processor in clone.processors[:2]:
        machine.run(processor)

    assert summed(own(totals), machine) == expected_totals(50, 100)


def test_state_changelog_and_group_of_a_clone_name_the_checkpoint_of_the_cut(machine: Machine) -> None:
    """A worker compares their ids to see whether the changelog contains the last committed checkpoint. Offsets do not show that."""
    app = app_of(Timed, EXACT, EXACT)
    snapshot, clone = history(machine, app), clone_of(app)
    make(machine, clone, snapshot)
    at_cut = {number: cut.position.checkpoint_id for number, cut in snapshot.processors["totals"].shards.items()}
    states = {}
    for number in at_cut:
        with opened_read_only(expect_current(machine, clone.processors[1], number)) as state:
            states[number] = state.position().checkpoint_id
    changelogs = {
        number: changelog_position(machine.bus, Bucket("staging.totals.changelog", number)).checkpoint_id
        for number in at_cut
    }
    positions = machine.bus.positions("staging.totals", "staging.checked")

    assert all(at_cut.values())
    assert states == changelogs == {at.bucket.number: at.checkpoint_id for at in positions} == at_cut


class Doubled(Totals):
    """A version that counts each reading twice."""

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        """Add a reading."""
        total = (state or 0) + 2 * event.litres
        return total, [Total(event.meter, event.at, total)]


@pytest.mark.parametrize("base", [Totals, Doubled])
def test_the_outputs_of_a_clone_are_compared_with_those_of_the_original(machine: Machine, base: type[Totals]) -> None:
    """The comparison begins at the snapshot, even if the clone is behind. All outputs of a changed processor differ, and no others."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot, clone = history(machine, app), clone_of(app_of(base, EXACT, EXACT))
    make(machine, clone, snapshot)
    run(machine, clone.processors)
    write(machine.bus, readings, generate_readings(100, 120))
    run(machine, app.processors)
    found = {one.category: one for one in compare_clone(clone, machine.bus, ComparedTimes(), "staging")}
    early = compare_clone(clone, machine.bus, ComparedTimes(60_000, 80_000), "staging")

    # A bucket of the clone has reached reading 97, so its outputs from there on may be incomplete.
    counts = {name: (one.equal, one.only_left, one.only_right, one.different) for name, one in found.items()}
    assert counts.pop("totals") == ((47, 0, 0, 0) if base is Totals else (0, 0, 0, 47))
    assert counts.pop("checked") == counts.pop("flagged") == (47, 0, 0, 0)
    assert counts.pop("sums")[1:] == counts.pop("limits")[1:] == counts["spare"][1:] == (0, 0, 0)
    assert found["spare"].note == "spare: no outputs of original and staging since the snapshot."
    assert sum(one.equal + one.different for one in early if one.category == "totals") == 20


@pytest.mark.parametrize("bucket", [0, 1])
def test_a_clone_that_is_behind_in_one_bucket_is_compared_up_to_there(machine: Machine, bucket: int) -> None:
    """Its newest output comes from another bucket, and does not show that all earlier outputs are written."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot, clone = history(machine, app), clone_of(app)
    make(machine, clone, snapshot)
    behind = RunLimits({Bucket("readings", bucket): machine.bus.ends("readings")[bucket]})
    write(machine.bus, readings, generate_readings(100, 150))
    run(machine, app.processors)
    machine.run(clone.processors[0], worker_backups(machine), limits=behind)
    [found] = [
        each for each in compare_clone(clone, machine.bus, ComparedTimes(), "staging") if each.category == "checked"
    ]

    assert found.agrees
    assert 40 <= found.equal <= 50


def test_a_clone_that_has_not_run_yet_is_not_compared(machine: Machine) -> None:
    """Its categories contain the messages in flight, and the original app may have written earlier events since."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot, clone = history(machine, app), clone_of(app)
    make(machine, clone, snapshot)
    write(machine.bus, readings, generate_readings(0, 20))
    run(machine, app.processors)
    found = compare_clone(clone, machine.bus, ComparedTimes(), "staging")

    assert all(one.agrees for one in found)
    assert {one.note for one in found if one.category == "checked"} == {"checked: staging.check has not run yet."}


def test_a_clone_is_not_compared_with_an_app_that_has_gone_back(machine: Machine) -> None:
    """Its outputs since the snapshot are there twice."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot, clone = msgspec.structs.replace(history(machine, app), id=new_id()), clone_of(app)
    make(machine, clone, snapshot)
    run(machine, clone.processors)
    perform_restore(plan_restore(snapshot, app.processors, environment(machine)), environment(machine))
    run(machine, app.processors)

    with pytest.raises(CloneRefused, match=r"check has had a restore of snapshot .* since snapshot"):
        compare_clone(clone, machine.bus, ComparedTimes(), "staging")


@pytest.mark.parametrize("of_clone", [False, True])
def test_an_operation_that_keeps_positions_neither_allows_nor_forbids_a_comparison(
    machine: Machine, *, of_clone: bool
) -> None:
    """The newest operation of a processor may hide an earlier reset, and alone it changes no output."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot, clone = msgspec.structs.replace(history(machine, app), id=new_id()), clone_of(app)
    make(machine, clone, snapshot)
    run(machine, clone.processors)
    changed = (clone if of_clone else app).processors[1]
    migrate_to_itself(machine, changed)
    found = {one.category: one for one in compare_clone(clone, machine.bus, ComparedTimes(), "staging")}
    reset(machine, changed, Edge.EARLIEST, StatePolicy.EMPTY)
    run(machine, [changed])
    migrate_to_itself(machine, changed)

    assert found["totals"].agrees
    with pytest.raises(CloneRefused, match=rf"{changed.name} has had a reset to earliest since"):
        compare_clone(clone, machine.bus, ComparedTimes(), "staging")


def migrate_to_itself(machine: Machine, processor: type[ps.Processor]) -> None:
    """Convert the states of a processor to equal ones."""
    plan = plan_migration(processor, environment(machine), force=True)
    perform_migration(plan, environment(machine), StateFunction(Path("same.py"), "same", lambda _, state: state))


def test_an_app_whose_output_has_more_buckets_now_is_compared(machine: Machine) -> None:
    """Its new buckets contain no output from before the snapshot."""
    app = app_of(Totals, EXACT, EXACT)
    snapshot, clone = history(machine, app), clone_of(app)
    make(machine, clone, snapshot)
    run(machine, clone.processors)
    machine.bus.resize("totals", 3)
    found = {one.category: one for one in compare_clone(clone, machine.bus, ComparedTimes(), "staging")}

    assert found["totals"].agrees


@pytest.mark.parametrize("clone", [None, "staging"])
@pytest.mark.parametrize("processor", [None, "Totals"])
def test_the_name_of_a_clone_is_read_as_it_is_written(processor: str | None, clone: str | None) -> None:
    """Commands pass it on to the processes of workers."""
    name = AppName(Path("shop/app.py"), processor, clone)

    assert AppName.parse(str(name)) == name
    assert names_app(str(name))


@pytest.mark.parametrize("path", ["me@work/app.py", "shop/app.py@a.b"])
def test_other_names_with_the_mark_are_paths(path: str) -> None:
    """The name of a clone has neither dots nor slashes."""
    assert AppName.parse(path).clone is None


class Patient(ps.Stateless):
    """Passes readings on; every third one at the second attempt."""

    name = "patient"
    reads, writes = readings, checked
    output_semantics = EXACT
    on_error = ps.Retry(attempts=3)
    asked: ClassVar[set[int]]

    def process(self, event: Reading) -> list[Reading]:
        """Pass one on."""
        if event.at % 3 == 0 and event.at not in self.asked:
            self.asked.add(event.at)
            raise TimeoutError
        return [event]


def test_events_that_wait_for_a_retry_wait_in_the_clone_too(machine: Machine) -> None:
    """They are in flight at the cut. Both apps process them, each once, and the removal of the clone deletes their copies."""
    Patient.asked = set()
    app = App("shop", (Patient,))
    create_categories(machine.bus, app.processors)
    given_readings = generate_readings(0, 30)
    write(machine.bus, readings, given_readings)
    run(machine, app.processors)
    at_once = read(machine.bus, checked)
    snapshot, clone = stopped_snapshot(machine, app.processors, app.name), clone_of(app)
    make(machine, clone, snapshot)
    run(machine, [*clone.processors, *app.processors])
    of_clone, place = read(machine.bus, own(checked)), str(machine.place.location)
    remove_clone(plan_removal(clone, machine.bus, machine.folder, place), machine.bus, machine.folder, lambda _: None)

    assert 0 < len(at_once) < 30
    assert Counter(map(str, of_clone)) == Counter(map(str, given_readings)) - Counter(map(str, at_once))
    assert Counter(map(str, read(machine.bus, checked))) == Counter(map(str, given_readings))
    assert [name for name in machine.bus.names() if name.startswith("staging.")] == []
