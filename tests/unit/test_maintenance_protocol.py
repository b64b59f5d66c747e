"""The protocol of maintenance operations: repeating an operation that was killed before any step finishes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from support import handoffs, migrations, resets, resizes
from support.machines import Machine
from support.maintenance import Killed, environment, kill_before, worker_backups

import penstock as ps
from penstock.ops.change.maintenance.reset import perform_reset, plan_reset
from penstock.ops.change.maintenance.reset_target import ExplicitOffsets
from penstock.ops.kernel.shards.resume_checks import MaintenanceUnfinished
from penstock.transport import Bucket, BucketMismatch, GroupInUse
from penstock.transport.tables import (
    AtGap,
    Bootstrap,
    MaintenanceOperation,
    MaintenanceRefused,
    MaintenanceStep,
    Migration,
    OperationKind,
    Reset,
    Resize,
    newest_maintenance,
    no_gap,
    operation_to_replace,
)
from penstock.transport.tables.maintenance_log import can_finish, record_maintenance
from penstock.transport.tables.maintenance_protocol import MaintenanceGap

Outputs = list[tuple[str, int, Any]]
RESIZED = resizes.with_buckets(resizes.PaidExactly, 6)


@dataclass(frozen=True)
class Scenario:
    """An operation on a processor that has state, a changelog, and backups.

    Args:
        before: the processor, as it is declared before.
        after: the processor, as it is declared after.
        prepare: lets it read the first events.
        perform: plans and performs the operation.
        finish: lets it read the remaining events, and returns all outputs.
        truth: returns the expected outputs.
    """

    before: type[ps.Processor]
    after: type[ps.Processor]
    prepare: Callable[[Machine], object]
    perform: Callable[[Machine, AtGap], object]
    finish: Callable[[Machine], Outputs]
    truth: Callable[[], Outputs]


def reset_to_middle(machine: Machine, at_gap: AtGap) -> None:
    """Reset to the position of the backups."""
    middle = {Bucket("readings", bucket): offset for bucket, offset in middles(machine).items()}
    perform_reset(
        plan_reset(resets.Balances, environment(machine), ExplicitOffsets(middle), None), environment(machine), at_gap
    )


def middles(machine: Machine) -> dict[int, int]:
    """Return the number of readings in each bucket among the first 50."""
    counts = {0: 0, 1: 0}
    for bucket in resets.buckets_of_readings(0, 50):
        counts[bucket.number] += 1
    return counts


def finish_reset(machine: Machine) -> Outputs:
    """Read the repeated events."""
    machine.run(resets.Balances)
    return resets.outputs_of(machine)


def finish_migration(machine: Machine) -> Outputs:
    """Read the rest on a new disk."""
    machine.lose(migrations.LOGGED.now)
    return migrations.finish(machine, migrations.LOGGED.now, worker_backups(machine))


def prepare_migration(machine: Machine) -> None:
    """Read half of the orders, and back up the states."""
    migrations.read_part(machine, migrations.LOGGED)
    machine.back_up(migrations.LOGGED.before)


def finish_bootstrap(machine: Machine) -> Outputs:
    """Read the events after the archive's end."""
    machine.run(handoffs.Balances, worker_backups(machine))
    return handoffs.outputs_of(machine)


SCENARIOS = {
    "reset": Scenario(
        resets.Balances,
        resets.Balances,
        lambda machine: resets.read_twice(machine, resets.Balances),
        reset_to_middle,
        finish_reset,
        lambda: sorted(resets.expected_totals() + resets.expected_totals(begin=50)),
    ),
    "resize": Scenario(
        resizes.PaidExactly,
        RESIZED,
        lambda machine: resizes.read_part(machine, resizes.PaidExactly),
        lambda machine, at_gap: resizes.resize(machine, resizes.PaidExactly, 6, at_gap),
        lambda machine: resizes.finish(machine, RESIZED),
        lambda: resizes.outputs_without_resize(resizes.PaidExactly),
    ),
    "migration": Scenario(
        migrations.LOGGED.before,
        migrations.LOGGED.now,
        prepare_migration,
        lambda machine, at_gap: migrations.migrate(machine, migrations.LOGGED, at_gap),
        finish_migration,
        lambda: migrations.outputs_without_migration(migrations.NUMBERS),
    ),
    "bootstrap": Scenario(
        handoffs.Balances,
        handoffs.Balances,
        lambda machine: handoffs.read_events(machine, handoffs.Balances),
        lambda machine, at_gap: handoffs.bootstrap(machine, handoffs.Balances, at_gap),
        finish_bootstrap,
        lambda: sorted(handoffs.STREAMED + handoffs.CONTINUED),
    ),
}
SHARED: list[MaintenanceStep] = [
    step for step in MaintenanceStep if step not in {MaintenanceStep.RECORD_START, MaintenanceStep.STAGE_STATE}
]
STAGED = [*SHARED, MaintenanceStep.STAGE_STATE]
STEPS: dict[str, list[MaintenanceStep]] = {"reset": SHARED, "resize": STAGED, "migration": STAGED, "bootstrap": SHARED}
PER_BUCKET = {
    MaintenanceStep.STAGE_STATE,
    MaintenanceStep.INSTALL_STATE,
    MaintenanceStep.STORE_BACKUP,
    MaintenanceStep.REWRITE_CHANGELOG,
}


def _buckets_of(step: MaintenanceStep) -> list[int | None]:
    return [0, 1] if step in PER_BUCKET else [None]


KILLS = [(name, step, bucket) for name, steps in STEPS.items() for step in steps for bucket in _buckets_of(step)]


@pytest.mark.parametrize(("name", "step", "bucket"), KILLS, ids=str)
def test_repeating_a_killed_operation_finishes_it(
    machine: Machine, name: str, step: MaintenanceStep, bucket: int | None
) -> None:
    """No worker starts in between. The outputs are the same as without the kill."""
    scenario = SCENARIOS[name]
    scenario.prepare(machine)
    with pytest.raises(Killed):
        scenario.perform(machine, kill_before(step, bucket))
    for declared in dict.fromkeys((scenario.before, scenario.after)):
        with pytest.raises((MaintenanceUnfinished, BucketMismatch)):
            machine.run(declared)
    scenario.perform(machine, no_gap)
    newest = newest_maintenance(machine.bus, scenario.after.name)

    assert scenario.finish(machine) == scenario.truth()
    assert newest is not None
    assert (newest.is_done, newest.previous) == (True, None)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_the_kills_cover_every_step(machine: Machine, scenario: Scenario) -> None:
    """A new step of an operation needs a kill of its own."""
    gaps: list[MaintenanceGap] = []
    scenario.prepare(machine)
    scenario.perform(machine, gaps.append)
    name = next(name for name, other in SCENARIOS.items() if other is scenario)
    killed = {step for other, step, _ in KILLS if other == name}

    assert {gap.before for gap in gaps} == killed | {MaintenanceStep.RECORD_START}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_an_operation_changes_nothing_before_its_start_is_recorded(machine: Machine, scenario: Scenario) -> None:
    """Workers continue, and the operation can be performed later."""
    scenario.prepare(machine)
    with pytest.raises(Killed):
        scenario.perform(machine, kill_before(MaintenanceStep.RECORD_START))
    machine.run(scenario.before)
    assert newest_maintenance(machine.bus, scenario.before.name) is None
    scenario.perform(machine, no_gap)

    assert scenario.finish(machine) == scenario.truth()


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_an_operation_is_refused_while_a_worker_runs(machine: Machine, scenario: Scenario) -> None:
    """Nothing is recorded, and the worker continues."""
    scenario.prepare(machine)
    with machine.working(scenario.before) as worker:
        worker.run_once()
        with pytest.raises(GroupInUse):
            scenario.perform(machine, no_gap)
        worker.run_once()
    assert newest_maintenance(machine.bus, scenario.before.name) is None
    scenario.perform(machine, no_gap)

    assert scenario.finish(machine) == scenario.truth()


AUTO, EMPTY, KEEP = (Reset("earliest", state) for state in ("auto", "empty", "keep"))
KINDS: list[OperationKind] = [AUTO, EMPTY, KEEP, Resize(6), Resize(8), Migration("int"), Migration("str"), Bootstrap()]
FINISHES: dict[int, list[OperationKind]] = {0: [AUTO], 1: [AUTO, EMPTY, KEEP, Bootstrap()], 2: [AUTO, KEEP]}


@pytest.mark.parametrize("index", range(len(KINDS)))
def test_only_some_operations_finish_another(machine: Machine, index: int) -> None:
    """The same operation does, and so does a reset that replaces all of its states."""
    kind, processor = KINDS[index], resets.Totals
    finished = FINISHES.get(index, [kind])
    for unfinished in KINDS:
        record_maintenance(machine.bus, MaintenanceOperation(processor.name, unfinished, 0))
        if unfinished in finished:
            assert operation_to_replace(processor, machine.bus, kind) is not None
        else:
            with pytest.raises(MaintenanceRefused, match=f"a {unfinished} is unfinished.*Nothing was changed"):
                operation_to_replace(processor, machine.bus, kind)
        assert can_finish(kind, unfinished) == (unfinished in finished)
