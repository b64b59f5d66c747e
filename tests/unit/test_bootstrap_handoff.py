"""Bootstrap handoff: workers continue from states that a batch run built, on any machine and with any local state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.handoffs import (
    CONTINUED,
    FINAL_STATE,
    KINDS,
    STREAMED,
    Balances,
    Totals,
    another_machine,
    bootstrap,
    build_states,
    expected_totals,
    generate_readings,
    outputs_of,
    read_events,
    readings,
)
from support.machines import Machine, create_categories, write
from support.maintenance import Killed, environment, kill_before, worker_backups

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.run.bootstrap_handoff import BootstrapHandoff, plan_handoff
from penstock.ops.change.maintenance.reset import perform_reset, plan_reset
from penstock.ops.change.maintenance.reset_plan import StatePolicy
from penstock.ops.change.maintenance.reset_target import Edge
from penstock.ops.kernel.shards.resume_checks import StateSuperseded
from penstock.state.backups.errors import BackupFenced
from penstock.transport import GroupInUse
from penstock.transport.tables import (
    MaintenanceOperation,
    MaintenanceRefused,
    MaintenanceStep,
    Resize,
    StateLineage,
    newest_maintenance,
    watermarks_on,
)


@pytest.mark.parametrize("processor", KINDS)
def test_every_machine_continues_from_the_built_state(machine: Machine, processor: type[ps.Processor]) -> None:
    """The local state may be newer, older or missing."""
    behind, new = another_machine(machine, "behind"), another_machine(machine, "new")
    create_categories(machine.bus, [processor])
    write(machine.bus, readings, generate_readings(0, 20))
    behind.run(processor)
    write(machine.bus, readings, generate_readings(20, 100))
    machine.run(processor)
    bootstrap(machine, processor)
    for one in (machine, behind, new):
        one.run(processor, worker_backups(one))

    assert outputs_of(machine) == sorted(STREAMED + CONTINUED)
    assert [one.state(processor) for one in (machine, behind, new)] == [FINAL_STATE] * 3


@pytest.mark.parametrize("has_backups", [False, True])
def test_the_changelog_contains_the_built_state(machine: Machine, has_backups: bool) -> None:
    """A worker without local state restores the built state from the changelog, with or without a backup, and no earlier state."""
    read_events(machine, Balances)
    bootstrap(machine, Balances)
    machine.run(Balances, worker_backups(machine))
    write(machine.bus, readings, generate_readings(100, 105))
    other = another_machine(machine, "other")
    other.run(Balances, worker_backups(other) if has_backups else None)

    assert outputs_of(machine) == sorted(STREAMED + expected_totals(50, 105, each=100))
    assert other.state(Balances)[b"m4"] == b"\x64"


@pytest.mark.parametrize("processor", KINDS)
def test_a_bootstrap_replaces_the_state_of_a_reset(machine: Machine, processor: type[ps.Processor]) -> None:
    """The state's generation is later than the reset's; workers refuse an earlier one."""
    read_events(machine, processor)
    perform_reset(plan_reset(processor, environment(machine), Edge.LATEST, StatePolicy.EMPTY), environment(machine))
    bootstrap(machine, processor)
    machine.run(processor, worker_backups(machine))
    move = newest_maintenance(machine.bus, processor.name)

    assert machine.state(processor) == FINAL_STATE
    assert move is not None
    assert (move.is_done, move.lineage.generations) == (True, {0: 2, 1: 2})


def test_a_worker_without_backups_refuses_its_superseded_state(machine: Machine) -> None:
    """The worker refuses the state from before the bootstrap."""
    read_events(machine, Totals)
    bootstrap(machine, Totals)
    with pytest.raises(StateSuperseded, match="from before the bootstrap"):
        machine.run(Totals)


def test_a_bootstrap_removes_the_upstream_watermarks(machine: Machine) -> None:
    """Consumers that use upstream watermarks wait for new ones."""
    read_events(machine, Totals)
    before = {bucket for name, bucket in watermarks_on(machine.bus) if name == "totals"}
    bootstrap(machine, Totals)

    assert before == {0, 1}
    assert {bucket for name, bucket in watermarks_on(machine.bus) if name == "totals"} == set()


# Interrupted handoffs.


def test_a_built_state_has_no_effect_before_its_handoff(machine: Machine) -> None:
    """A bootstrap that dies earlier changes nothing, even for a worker that restores a backup."""
    read_events(machine, Totals)
    with pytest.raises(Killed):
        bootstrap(machine, Totals, kill_before(MaintenanceStep.RECORD_START))
    machine.lose(Totals)
    machine.run(Totals, worker_backups(machine))

    assert outputs_of(machine) == sorted(STREAMED)
    assert machine.state(Totals) == {meter.encode(): bytes([total]) for meter, _, total in STREAMED}


def test_a_retry_includes_every_bucket_of_a_failed_handoff(machine: Machine) -> None:
    """A retry that builds fewer buckets is refused."""
    read_events(machine, Totals)
    with pytest.raises(Killed):
        bootstrap(machine, Totals, kill_before(MaintenanceStep.STORE_BACKUP, 1))
    again = plan_handoff(Totals, machine.bus, machine.place)
    manifests = build_states(machine, again)
    with pytest.raises(MaintenanceRefused, match="does not include bucket 1"):
        again.perform({0: manifests[0]})


def test_an_unfinished_reset_blocks_a_bootstrap(machine: Machine) -> None:
    """A bootstrap is refused until the reset is complete."""
    read_events(machine, Totals)
    with pytest.raises(Killed):
        perform_reset(
            plan_reset(Totals, environment(machine), Edge.EARLIEST, None),
            environment(machine),
            kill_before(MaintenanceStep.MOVE_POSITIONS),
        )
    with pytest.raises(MaintenanceRefused, match="a reset to earliest is unfinished"):
        plan_handoff(Totals, machine.bus, machine.place)


# Concurrent workers and operations.


def test_a_running_worker_blocks_a_bootstrap(machine: Machine) -> None:
    """A worker that runs at the plan or at the handoff blocks it, and continues."""
    read_events(machine, Totals)
    handing_over = plan_handoff(Totals, machine.bus, machine.place)
    manifests = build_states(machine, handing_over)
    with machine.working(Totals) as worker:
        worker.run_once()
        with pytest.raises(GroupInUse):
            plan_handoff(Totals, machine.bus, machine.place)
        with pytest.raises(GroupInUse):
            handing_over.perform(manifests)

    assert newest_maintenance(machine.bus, "totals") is None


def has_run(machine: Machine) -> None:
    """Process further events, and stop."""
    write(machine.bus, readings, generate_readings(100, 110))
    machine.run(Totals)


def has_backed_up(machine: Machine) -> None:
    """Make backups, which may remove unfinished ones."""
    machine.back_up(Totals)


def was_reset(machine: Machine) -> None:
    """Reset the processor to the earliest events."""
    perform_reset(plan_reset(Totals, environment(machine), Edge.EARLIEST, None), environment(machine))


@pytest.mark.parametrize(
    ("meanwhile", "refused"),
    [(has_run, BackfillRefused), (has_backed_up, BackupFenced), (was_reset, BackfillRefused)],
)
def test_a_handoff_is_refused_after_a_concurrent_change(
    machine: Machine, meanwhile: Callable[[Machine], None], refused: type[Exception]
) -> None:
    """The refused handoff changes nothing, and workers start."""
    read_events(machine, Totals)
    handing_over = plan_handoff(Totals, machine.bus, machine.place)
    manifests = build_states(machine, handing_over)
    meanwhile(machine)
    before = newest_maintenance(machine.bus, "totals"), machine.bus.committed("totals", "readings")
    with pytest.raises(refused):
        handing_over.perform(manifests)

    assert (newest_maintenance(machine.bus, "totals"), machine.bus.committed("totals", "readings")) == before
    machine.run(Totals, worker_backups(machine))


def test_events_from_before_a_resize_are_refused(machine: Machine) -> None:
    """Keys were in other buckets then; later events are accepted."""
    borders: dict[str, dict[int, int]] = {"readings": {0: 30}}
    resized = MaintenanceOperation(
        "totals", Resize(2), 0, StateLineage({0: 1, 1: 1}, resize_offsets=borders), is_done=True
    )
    handing_over = BootstrapHandoff(Totals, machine.bus, machine.place, resized, committed={})
    behind: dict[int, Any] = {0: {"readings": 30}, 1: {"readings": 0}}
    handing_over.require_same_buckets(behind)
    with pytest.raises(BackfillRefused, match="Keys were in other buckets then"):
        handing_over.require_same_buckets({**behind, 0: {"readings": 29}})
