"""Promotions of clones: the app continues with the states and the code of its clone, and its readers receive each record once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cloned_shop import Sums, app_of, clone_of, expected_totals, history, make, run, summed, sums
from support.machines import YEAR_2100_MS, Machine, create_categories, read, write
from support.maintenance import Killed, environment, worker_backups
from support.resets import EXACT, Reading, Total, generate_readings, readings, totals
from support.snapshots import Timed, Totals, checked, stopped_snapshot

import penstock as ps
from penstock.ops.change.clones.clone_removal import plan_removal, remove_clone
from penstock.ops.change.clones.cloning import CloneRefused
from penstock.ops.change.clones.deployed_apps import lag_s
from penstock.ops.change.clones.promoting import PromotionProgress, PromotionRefused, RunToLimits, plan_promotion
from penstock.ops.change.clones.promotion_run import promote
from penstock.ops.kernel import RunLimits
from penstock.ops.kernel.shards.preflight import MissingClone
from penstock.ops.kernel.shards.resume_checks import MaintenanceUnfinished
from penstock.ops.shell import SteeredClock
from penstock.processors.apps import App
from penstock.processors.declare import plan_of
from penstock.state.files import LocalFileStore
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import MaintenanceRefused, MaintenanceStep

Hook = Callable[[str], None]
"""Called before each step of a promotion, with its name."""


halves = ps.Category("halves", Reading, key="meter", event_time="at", buckets=2)


class Doubled(Timed):
    """A version that counts each reading twice."""

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        """Add a reading."""
        total = (state or 0) + 2 * event.litres
        return total, [Total(event.meter, event.at, total)]


class MachineWorkers:
    """The workers of an app and its clone on a machine, which run only when a test lets them.

    Args:
        machine: the machine.
        app: the app, as it was deployed before the promotion.
        before: called before each step.
    """

    def __init__(self, machine: Machine, app: App, before: Hook) -> None:
        self._machine = machine
        self._deployed = {processor.name: processor for processor in app.processors}
        self._before = before
        self.started = ""

    @property
    def run_to(self) -> RunToLimits:
        """Run processors up to limits."""
        return self._run_to

    def _run_to(self, limits: Mapping[type[ps.Processor], RunLimits]) -> None:
        for processor, limit in limits.items():
            self._before("drain")
            deployed = self._deployed.get(processor.name, processor)
            self._machine.run(deployed, worker_backups(self._machine), limits=limit)

    def stop(self) -> None:
        """Stop all."""
        self._before("stop")

    def start_again(self) -> None:
        """Note it."""
        self.started = "again"

    def start_promoted(self) -> None:
        """Note it."""
        self._before("start")
        self.started = "promoted"


def change_over(machine: Machine, app: App, clone: App, before: Hook = lambda _: None) -> str:
    """Promote a clone and remove it; return how its workers were started last."""
    plan, workers = plan_promotion(clone, machine.bus), MachineWorkers(machine, app, before)

    def remove() -> None:
        before("remove")
        place = str(machine.place.location)
        remove_clone(
            plan_removal(clone, machine.bus, machine.folder, place), machine.bus, machine.folder, lambda _: None
        )

    promote(plan, environment(machine), workers, remove, lambda gap: before(gap.before.value))
    return workers.started


def kill_at(count: int) -> Hook:
    """Return a hook that kills the command before a step, counted from 0."""
    steps: list[str] = []

    def before(step: str) -> None:
        steps.append(step)
        if len(steps) > count:
            raise Killed

    return before


def kill_before(name: str, nth: int = 0) -> Hook:
    """Return a hook that kills the command before the nth step of a name."""
    steps: list[str] = []

    def before(step: str) -> None:
        steps.append(step)
        if step == name and steps.count(name) > nth:
            raise Killed

    return before


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a backup store."""
    return Machine(tmp_path / "machine", MemoryBus(), LocalFileStore(tmp_path / "place"))


def cloned_history(machine: Machine, base: type[Totals], app_base: type[Totals] = Timed) -> tuple[App, App]:
    """Return an app that has read 120 readings, partly, and its clone of another version, which has read others of them."""
    app = app_of(app_base, EXACT, EXACT)
    snapshot, clone = history(machine, app), clone_of(app_of(base, EXACT, EXACT))
    make(machine, clone, snapshot)
    run(machine, clone.processors[:2])
    write(machine.bus, readings, generate_readings(100, 110))
    run(machine, app.processors[:1])
    write(machine.bus, readings, generate_readings(110, 120))
    run(machine, clone.processors[2:4])
    return app, clone


def expected_versions(begin: int, promoted: int, end: int) -> Counter[tuple[str, int, int]]:
    """Return the expected totals of a history whose readings count twice in the clone from `begin` on, and are written by it from `promoted` on."""
    found, sums_of, by_clone = Counter[tuple[str, int, int]](), Counter[str](), Counter[str]()
    for number in range(end):
        meter = f"m{number % 5}"
        sums_of[meter] += 1
        by_clone[meter] += 1 if number < begin else 2
        found[meter, 1_000 * number, sums_of[meter] if number < promoted else by_clone[meter]] += 1
    return found


def expect_each_window_once(machine: Machine, count: int) -> None:
    """Expect one sum of each meter and each of the first windows, of one reading each."""
    found = Counter((each.meter, each.at, each.litres) for each in read(machine.bus, sums))
    early = {key: times for key, times in found.items() if key[1] < 5_000 * count}

    assert early == dict.fromkeys(((f"m{meter}", 5_000 * at, 1) for meter in range(5) for at in range(count)), 1)
    assert set(found.values()) == {1}


STEPS = [
    "stop",
    "drain",
    *(step.value for step in MaintenanceStep if step is not MaintenanceStep.STAGE_STATE),
    "start",
    "remove",
]


@pytest.mark.parametrize("nth", [0, pytest.param(3, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("step", STEPS)
def test_a_promotion_that_is_killed_before_a_step_is_finished_by_its_repetition(
    machine: Machine, step: str, nth: int
) -> None:
    """The new version continues with the states of the clone. The old outputs stay, and no output is missing or repeated."""
    app, clone = cloned_history(machine, Doubled)
    with suppress(Killed):
        change_over(machine, app, clone, kill_before(step, nth))
    if clone_exists(machine):
        change_over(machine, app, clone)
    write(machine.bus, readings, generate_readings(120, 200))
    run(machine, promoted(clone))

    assert summed(totals, machine) == expected_versions(50, 110, 200)
    expect_each_window_once(machine, 36)
    assert not clone_exists(machine)


def promoted(clone: App) -> list[type[ps.Processor]]:
    """Return the processors of the app with the code of the clone."""
    return [processor.cloned_from for processor in clone.processors if processor.cloned_from is not None]


def clone_exists(machine: Machine) -> bool:
    """Return whether anything of the clone is left on the bus."""
    return any(name.startswith("staging.") for name in machine.bus.names())


@pytest.mark.parametrize("step", ["stop", "drain"])
def test_before_the_change_over_a_killed_command_leaves_both_apps_as_they_were(machine: Machine, step: str) -> None:
    """The old version can be deployed again, continues where it was, and can be promoted later."""
    app, clone = cloned_history(machine, Doubled)
    with pytest.raises(Killed):
        change_over(machine, app, clone, kill_before(step, 1 if step == "drain" else 0))
    write(machine.bus, readings, generate_readings(120, 150))
    run(machine, [*app.processors, *clone.processors])
    before = summed(totals, machine)
    change_over(machine, app, clone)
    write(machine.bus, readings, generate_readings(150, 160))
    run(machine, promoted(clone))

    assert before == expected_totals(0, 150)
    assert summed(totals, machine) == expected_versions(50, 150, 160)


def test_apps_at_different_places_are_not_changed_and_start_again(machine: Machine) -> None:
    """A worker that was started by hand has read further meanwhile."""
    app, clone = cloned_history(machine, Doubled)

    steps: list[str] = []

    def read_on(step: str) -> None:
        steps.append(step)
        if steps.count(step) == 1 and step == MaintenanceStep.RECORD_START.value:
            machine.run(app.processors[0], worker_backups(machine))

    workers = MachineWorkers(machine, app, read_on)
    plan = plan_promotion(clone, machine.bus)
    with pytest.raises(
        MaintenanceRefused,
        match=r"check and staging\.check cannot change over here: their positions in readings differ",
    ):
        promote(plan, environment(machine), workers, lambda: None, lambda gap: read_on(gap.before.value))
    run(machine, [*app.processors, *clone.processors])

    assert workers.started == "again"
    assert plan_promotion(clone, machine.bus).progress is PromotionProgress.NOT_BEGUN
    assert summed(totals, machine) == expected_totals(0, 120)


def test_workers_of_both_apps_wait_while_states_change_over(machine: Machine) -> None:
    """Afterwards, a clone that was kept does not start, and an old state is not used."""
    app, clone = cloned_history(machine, Timed)
    machine.back_up(app.processors[1])
    with pytest.raises(Killed):
        change_over(machine, app, clone, kill_before(MaintenanceStep.STORE_BACKUP.value))
    for processor in (app.processors[1], clone.processors[1]):
        with pytest.raises(MaintenanceUnfinished, match="promotion of shop@staging"):
            machine.run(processor, worker_backups(machine))
    with pytest.raises(CloneRefused, match="promotion of shop@staging is unfinished"):
        plan_removal(clone, machine.bus, machine.folder, str(machine.place.location))
    with pytest.raises(Killed):
        change_over(machine, app, clone, kill_before("remove"))
    with pytest.raises(MissingClone, match="was promoted"):
        machine.run(clone.processors[1], worker_backups(machine))
    machine.lose(app.processors[1])
    write(machine.bus, readings, generate_readings(120, 130))
    run(machine, promoted(clone))

    assert summed(totals, machine) == expected_totals(0, 130)


class Copied(ps.Stateless):
    """Passes checked readings on, at least once."""

    name = "copied"
    reads, writes = checked, ps.Category("copies", Reading, key="meter", event_time="at", buckets=2)

    def process(self, event: Reading) -> list[Reading]:
        """Pass one on."""
        return [event]


def test_promotions_are_refused_with_the_reason(machine: Machine) -> None:
    """The clone was never made, its outputs may repeat, or the app's buckets have changed."""
    app, clone = cloned_history(machine, Timed)
    with pytest.raises(PromotionRefused, match="it does not exist"):
        plan_promotion(clone_of(app, "misspelt"), machine.bus)
    repeating = App("shop", (*app.processors[:2], Copied))
    create_categories(machine.bus, [Copied])
    run(machine, [Copied])
    copy = clone_of(repeating, "blue")
    make(machine, copy, stopped_snapshot(machine, repeating.processors))
    with pytest.raises(PromotionRefused, match=r"Copied does not write copies exactly once: .* repeat"):
        plan_promotion(copy, machine.bus)
    accepted = plan_promotion(copy, machine.bus, best_effort=True)
    machine.bus.resize("checked", 3)
    with pytest.raises(PromotionRefused, match="the number of their buckets differ"):
        plan_promotion(clone, machine.bus)

    assert accepted.progress is PromotionProgress.NOT_BEGUN


merged = ps.Category("merged", Reading, key="meter", event_time="at", buckets=2)


class Merge(ps.Stateless):
    """Writes the readings of all shards to one bucket."""

    name = "merge"
    reads, writes = readings, merged
    output_semantics = EXACT

    def process(self, event: Reading) -> list[Reading]:
        """Pass one on as that of a common meter."""
        return [Reading("all", event.at, event.litres)]


merged_late = ps.Category("merged_late", Reading, key="meter", event_time="at", buckets=2)


class MergedSums(Sums):
    """Sums the merged readings of five seconds."""

    name = "merged_sums"
    reads, writes = merged, ps.Category("merged_sums", Total, key="meter", event_time="at", buckets=2)
    late, output_semantics = merged_late, EXACT


BOUNDED = ps.watermarks.BoundedOutOfOrderness(timedelta(seconds=1))


@pytest.mark.parametrize("watermark", [ps.watermarks.Confidence(), BOUNDED], ids=["estimated", "bounded"])
@pytest.mark.parametrize("is_ahead", [False, True], ids=["app", "clone"])
def test_apps_whose_estimates_of_event_time_differ_change_over_at_the_later_one(
    machine: Machine, watermark: ps.watermarks.Watermark, *, is_ahead: bool
) -> None:
    """In one of them, messages of several shards have arrived in another order. Each reading is in one window, or late, once."""
    app = App("shop", (Merge, type("MergedSums", (MergedSums,), {"watermark": watermark})))
    create_categories(machine.bus, app.processors)
    write(machine.bus, readings, generate_readings(0, 2))
    run(machine, app.processors)
    clone = clone_of(app)
    make(machine, clone, stopped_snapshot(machine, app.processors))
    in_order, in_bulk = (clone, app) if is_ahead else (app, clone)
    for begin in range(2, 62, 6):
        write(machine.bus, readings, generate_readings(begin, begin + 6))
        run(machine, in_order.processors)
    run(machine, in_bulk.processors)
    assert change_over(machine, app, clone) == "promoted"
    write(machine.bus, readings, generate_readings(62, 200))
    run(machine, promoted(clone))

    windows = read(machine.bus, MergedSums.writes)
    assert len({window.at for window in windows}) == len(windows)
    found = Counter({window.at: window.litres for window in windows})
    for reading in read(machine.bus, merged_late):
        found[reading.at - reading.at % 5_000] += reading.litres
    expected = Counter[int]()
    for reading in generate_readings(0, 200):
        expected[reading.at - reading.at % 5_000] += reading.litres
    closed = [at for at in expected if at < max(found)]
    assert len(closed) > 20
    assert {at: found[at] for at in closed} == {at: expected[at] for at in closed}


class Fetch(ps.Stateless):
    """Passes readings on; the first call for every tenth one fails."""

    name = "fetch"
    reads, writes = readings, checked
    output_semantics = EXACT
    on_error = ps.Retry(after=timedelta(seconds=1), attempts=3)
    failed: ClassVar[set[tuple[str, int]]] = set()

    def process(self, event: Reading) -> list[Reading]:
        """Pass one on."""
        if event.at % 10_000 == 0 and (self.name, event.at) not in self.failed:
            self.failed.add((self.name, event.at))
            raise TimeoutError("no answer")
        return [event]


class RunningClock(SteeredClock):
    """A clock that moves whenever it is read."""

    def now_ms(self) -> int:
        """Return the next moment."""
        self.advance(0.01)
        return super().now_ms()


def shuffled_readings(begin: int, end: int) -> list[Reading]:
    """Return readings in an order in which some are late, the same for each range of ten."""
    found = generate_readings(begin, end)
    return [found[at - at % 10 + (at * 7) % 10] for at in range(len(found))]


def run_retries(machine: Machine, processors: Sequence[type[ps.Processor]]) -> None:
    """Let processors read to the end, and until no event waits for a retry."""
    for processor in processors:
        run(machine, [processor])
        while any(
            machine.bus.committed(processor.name, each.name) != machine.bus.ends(each.name)
            for each in plan_of(processor).retry_categories
        ):
            run(machine, [processor])


class RetryingWorkers(MachineWorkers):
    """Workers that process what waits for a retry, too."""

    def _run_to(self, limits: Mapping[type[ps.Processor], RunLimits]) -> None:
        super()._run_to(limits)
        run_retries(self._machine, [self._deployed.get(one.name, one) for one in limits])


@pytest.mark.parametrize("watermark", [ps.watermarks.Confidence(), BOUNDED], ids=["estimated", "bounded"])
def test_restarts_while_events_wait_for_a_retry_change_no_event_time(
    tmp_path: Path, watermark: ps.watermarks.Watermark
) -> None:
    """A processor without state that was restarted often, and its clone that was not, let windows after them end at the same time."""
    machine = Machine(tmp_path / "machine", MemoryBus(), LocalFileStore(tmp_path / "place"), RunningClock(YEAR_2100_MS))
    Fetch.failed.clear()
    windows = {"watermark": ps.watermarks.UpstreamWatermark(), "output_semantics": EXACT}
    app = App("shop", (type("Fetch", (Fetch,), {"watermark": watermark}), type("Sums", (Sums,), windows)))
    create_categories(machine.bus, app.processors)
    write(machine.bus, readings, shuffled_readings(0, 50))
    run_retries(machine, app.processors)
    clone = clone_of(app)
    make(machine, clone, stopped_snapshot(machine, app.processors, app.name))
    for begin in range(50, 150, 20):
        write(machine.bus, readings, shuffled_readings(begin, begin + 20))
        run(machine, app.processors)
    run_retries(machine, clone.processors)
    plan = plan_promotion(clone, machine.bus)
    promote(plan, environment(machine), RetryingWorkers(machine, app, lambda _: None), lambda: None)

    assert plan_promotion(clone, machine.bus).progress is PromotionProgress.SWAPPED


def test_an_event_that_waits_for_a_retry_does_not_count_as_lag(tmp_path: Path) -> None:
    """Other events have failed in the clone than in the app, so with long waits, one of both would never catch up."""
    machine = Machine(tmp_path / "machine", MemoryBus(), LocalFileStore(tmp_path / "place"), SteeredClock(0))
    Fetch.failed.clear()
    create_categories(machine.bus, [Fetch])
    write(machine.bus, readings, generate_readings(0, 9))
    behind_s = lag_s(Fetch, machine.bus)
    run(machine, [Fetch])

    assert behind_s > 0
    assert sum(machine.bus.ends("fetch.retry_1").values()) > sum(
        machine.bus.committed("fetch", "fetch.retry_1").values()
    )
    assert lag_s(Fetch, machine.bus) == 0


class Halved(ps.Stateless):
    """Halves each reading until it is 1."""

    name = "halved"
    reads, feedback = (readings, halves), halves
    writes = halves
    output_semantics = EXACT

    def process(self, event: Reading) -> list[Reading]:
        """Pass on the half of one."""
        return [Reading(event.meter, event.at, event.litres // 2)] if event.litres > 1 else []


def test_the_clone_of_a_loop_is_not_promoted(machine: Machine) -> None:
    """What circulates has no offset at which both apps could stop."""
    looping = App.of("shop", [Halved])

    with pytest.raises(PromotionRefused, match="contains a loop: Halved -> Halved"):
        plan_promotion(clone_of(looping, "blue"), machine.bus)


@settings(max_examples=5, deadline=None)
@given(st.data())
def test_each_reading_counts_once_whatever_was_read_and_wherever_the_command_was_killed(data: st.DataObject) -> None:
    """Both apps have read any part of the input, and of what is on its way between their processors."""
    with TemporaryDirectory() as folder:
        machine = Machine(Path(folder) / "machine", MemoryBus(), LocalFileStore(Path(folder) / "place"))
        app, clone = cloned_history(machine, Timed, data.draw(st.sampled_from([Timed, Totals])))
        written = 120
        for _ in range(data.draw(st.integers(1, 3))):
            write(machine.bus, readings, generate_readings(written, written + 10))
            written += 10
            run(machine, data.draw(st.lists(st.sampled_from([*app.processors, *clone.processors]), max_size=6)))
        with suppress(Killed):
            change_over(machine, app, clone, kill_at(data.draw(st.integers(0, 80))))
        if clone_exists(machine):
            change_over(machine, app, clone)
        write(machine.bus, readings, generate_readings(written, written + 20))
        run(machine, promoted(clone))

        assert summed(totals, machine) == expected_totals(0, written + 20)
        expect_each_window_once(machine, written // 5)
