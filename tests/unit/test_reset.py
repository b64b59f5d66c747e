"""Resets: a processor resumes at another position with the matching state, even if the reset is interrupted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.machines import Machine, create_categories, read, write
from support.maintenance import Killed, environment, kill_before
from support.resets import (
    PAIRS,
    Balances,
    Copies,
    Totals,
    buckets_of_readings,
    expected_totals,
    generate_readings,
    of_pair,
    outputs_of,
    positions,
    read_twice,
    readings,
    reset,
    totals,
)

import penstock as ps
from penstock.ops.change.maintenance.reset import perform_reset, plan_reset
from penstock.ops.change.maintenance.reset_plan import ResetMethod, StatePolicy
from penstock.ops.change.maintenance.reset_target import Edge, ExplicitOffsets, ResetTarget, parse_offsets
from penstock.ops.kernel.shards.backups import WorkerBackups
from penstock.ops.kernel.shards.resume_checks import StateSuperseded
from penstock.state.files import LocalFileStore
from penstock.transport import GroupInUse
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import MaintenanceRefused, MaintenanceStep, newest_maintenance, watermarks_on

# Positions and state after a reset.


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_a_reset_restores_the_state_of_the_target_position(
    machine: Machine, pair: tuple[ps.Semantics, ps.Semantics]
) -> None:
    """The state comes from a backup and a replay without outputs; outputs repeat only from the target on."""
    processor = of_pair(pair)
    middle = read_twice(machine, processor)
    at_60 = {
        bucket: offset + sum(one.number == bucket.number for one in buckets_of_readings(50, 60))
        for bucket, offset in middle.items()
    }
    planned = reset(machine, processor, ExplicitOffsets(at_60))
    machine.run(processor)

    assert {shard.method for shard in planned.shards} == {ResetMethod.BACKUP}
    assert (planned.repeated, sum(shard.caught_up for shard in planned.shards)) == (40, 10)
    assert outputs_of(machine) == sorted(expected_totals() + expected_totals(begin=60))
    assert machine.state(processor) == {f"m{n}".encode(): b"\x14" for n in range(5)}


def test_without_a_backup_the_state_is_rebuilt_from_the_bus(machine: Machine) -> None:
    """The reset replays events up to the target without outputs."""
    middle = read_twice(machine, Totals)
    planned = reset(machine, Totals, ExplicitOffsets(middle), backups=False)
    machine.run(Totals)

    assert {shard.method for shard in planned.shards} == {ResetMethod.REBUILT}
    assert outputs_of(machine) == sorted(expected_totals() + expected_totals(begin=50))


def test_an_empty_state_counts_from_the_target(machine: Machine) -> None:
    """A worker on another machine, without the old state, may continue."""
    middle = read_twice(machine, Totals)
    reset(machine, Totals, ExplicitOffsets(middle), StatePolicy.EMPTY, backups=False)
    machine.lose(Totals)
    machine.run(Totals)

    assert outputs_of(machine) == sorted(expected_totals() + expected_totals(begin=50, counted_from=50))


def test_a_reset_to_earliest_starts_without_state(machine: Machine) -> None:
    """The processor reads all events again with an empty state."""
    read_twice(machine, Totals)
    reset(machine, Totals, Edge.EARLIEST)
    machine.run(Totals)

    assert outputs_of(machine) == sorted(expected_totals() + expected_totals())


def test_a_reset_to_latest_skips_outputs_but_updates_the_state(machine: Machine) -> None:
    """Skipped events are in the state, but produce no outputs."""
    read_twice(machine, Totals)
    write(machine.bus, readings, generate_readings(100, 120))
    planned = reset(machine, Totals, Edge.LATEST)
    write(machine.bus, readings, generate_readings(120, 130))
    machine.run(Totals)

    assert {shard.method for shard in planned.shards} == {ResetMethod.KEPT}
    assert planned.skipped == 20
    assert outputs_of(machine) == sorted(expected_totals() + expected_totals(begin=120, end=130))


def test_a_kept_state_excludes_skipped_events(machine: Machine) -> None:
    """Skipped events are in no output and no state, on any machine and from any backup."""
    read_twice(machine, Totals)
    write(machine.bus, readings, generate_readings(100, 120))
    reset(machine, Totals, Edge.LATEST, StatePolicy.KEEP)
    machine.lose(Totals)
    backups = WorkerBackups(machine.place, machine.states, timedelta(hours=1))
    write(machine.bus, readings, generate_readings(120, 125))
    machine.run(Totals, backups)

    assert outputs_of(machine) == sorted(expected_totals() + [(f"m{n % 5}", 1_000 * n, 21) for n in range(120, 125)])


def test_a_reset_to_a_time_uses_arrival_times(tmp_path: Path) -> None:
    """The option `--from` of `category tail` uses them, too."""
    now_ms = 1_000_000
    machine = Machine(tmp_path / "one", MemoryBus(lambda: now_ms), LocalFileStore(tmp_path / "place"))
    create_categories(machine.bus, [Copies])
    write(machine.bus, readings, generate_readings(0, 10))
    now_ms = 2_000_000
    write(machine.bus, readings, generate_readings(10, 30))
    machine.run(Copies)
    planned = reset(machine, Copies, datetime.fromtimestamp(1_500, UTC))
    machine.run(Copies)

    assert planned.repeated == 20
    assert {shard.method for shard in planned.shards} == {ResetMethod.NONE}
    assert len(read(machine.bus, totals)) == 50


def test_a_reset_to_offsets_moves_only_the_named_buckets(machine: Machine) -> None:
    """Other buckets keep their positions."""
    read_twice(machine, Copies)
    before = positions(machine, Copies)
    reset(machine, Copies, parse_offsets("1=3", ["readings"]))

    assert positions(machine, Copies) == {**before, 1: 3}


def test_a_reset_with_a_changelog_moves_to_the_position_of_a_backup(machine: Machine) -> None:
    """A replay would produce another state; a lost state is restored from the changelog."""
    middle = read_twice(machine, Balances)
    ahead = {bucket: offset + 1 for bucket, offset in middle.items()}
    planned = reset(machine, Balances, ExplicitOffsets(ahead))
    machine.lose(Balances)
    machine.run(Balances)

    assert {shard.target["readings"] for shard in planned.shards} == set(middle.values())
    assert outputs_of(machine) == sorted(expected_totals() + expected_totals(begin=50))
    assert machine.state(Balances) == {f"m{n}".encode(): b"\x14" for n in range(5)}


def test_a_reset_withdraws_the_watermarks_of_repeated_outputs(machine: Machine) -> None:
    """Consumers wait until the repeated outputs are complete."""
    read_twice(machine, Totals)
    before = {bucket for name, bucket in watermarks_on(machine.bus) if name == "totals"}
    reset(machine, Totals, parse_offsets("0=1", ["readings"]))

    assert before == {0, 1}
    assert {bucket for name, bucket in watermarks_on(machine.bus) if name == "totals"} == {1}


# Other machines and older backups.


def test_a_worker_with_an_older_state_is_refused_after_a_reset(machine: Machine, tmp_path: Path) -> None:
    """The error explains how to continue; with backups, the worker restores the right state."""
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    read_twice(other, Totals)
    other.back_up(Totals)
    reset(machine, Totals, Edge.EARLIEST)
    with pytest.raises(StateSuperseded, match="from before the reset to earliest"):
        other.run(Totals)
    other.run(Totals, WorkerBackups(other.place, other.states, timedelta(hours=1)))

    assert outputs_of(machine) == sorted(expected_totals() + expected_totals())


# Interrupted resets.


def test_an_interrupted_reset_must_be_finished_first(machine: Machine) -> None:
    """A reset to another target is refused until then."""
    middle = read_twice(machine, Totals)
    with pytest.raises(Killed):
        reset(
            machine,
            Totals,
            ExplicitOffsets(middle),
            StatePolicy.EMPTY,
            at_gap=kill_before(MaintenanceStep.INSTALL_STATE, 1),
        )
    for other in (Edge.LATEST, parse_offsets("0=1", ["readings"])):
        with pytest.raises(MaintenanceRefused, match="is unfinished"):
            reset(machine, Totals, other)


def test_an_interrupted_reset_is_finished_with_its_original_policy(machine: Machine) -> None:
    """Some shards may already skip events that another policy would count."""
    read_twice(machine, Totals)
    write(machine.bus, readings, generate_readings(100, 120))
    with pytest.raises(Killed):
        reset(machine, Totals, Edge.LATEST, StatePolicy.KEEP, at_gap=kill_before(MaintenanceStep.INSTALL_STATE, 1))
    with pytest.raises(MaintenanceRefused, match="is unfinished"):
        reset(machine, Totals, Edge.LATEST)
    reset(machine, Totals, Edge.LATEST, StatePolicy.KEEP)
    write(machine.bus, readings, generate_readings(120, 125))
    machine.run(Totals)

    assert outputs_of(machine) == sorted(expected_totals() + [(f"m{n % 5}", 1_000 * n, 21) for n in range(120, 125)])


def test_repeating_a_reset_changes_nothing(machine: Machine) -> None:
    """The second reset finds all positions in place."""
    middle = read_twice(machine, Totals)
    for _ in range(2):
        planned = reset(machine, Totals, ExplicitOffsets(middle))
    machine.run(Totals)

    assert planned.repeated == planned.skipped == 0
    assert outputs_of(machine) == sorted(expected_totals() + expected_totals(begin=50))


def test_a_plan_changes_nothing(machine: Machine) -> None:
    """Planning a reset changes neither positions nor state."""
    middle = read_twice(machine, Totals)
    before = positions(machine, Totals)
    plan_reset(Totals, environment(machine), ExplicitOffsets(middle), None)
    machine.run(Totals)

    assert positions(machine, Totals) == before
    assert newest_maintenance(machine.bus, "totals") is None
    assert outputs_of(machine) == expected_totals()


# Refused resets.


def test_a_reset_of_a_running_processor_is_refused(machine: Machine) -> None:
    """Nothing changes, and the worker continues."""
    read_twice(machine, Totals)
    with machine.working(Totals) as worker:
        planned = plan_reset(Totals, environment(machine), Edge.EARLIEST, None)
        worker.run_once()
        with pytest.raises(GroupInUse):
            perform_reset(planned, environment(machine))
        write(machine.bus, readings, generate_readings(100, 110))
        worker.run_once()
    machine.run(Totals)

    assert newest_maintenance(machine.bus, "totals") is None
    assert outputs_of(machine) == expected_totals(end=110)


def test_a_plan_is_refused_after_the_processor_has_read_further(machine: Machine) -> None:
    """A reset performs exactly the plan that was shown."""
    middle = read_twice(machine, Totals)
    planned = plan_reset(Totals, environment(machine), ExplicitOffsets(middle), None)
    write(machine.bus, readings, generate_readings(100, 110))
    machine.run(Totals)
    with pytest.raises(MaintenanceRefused, match="has been read further"):
        perform_reset(planned, environment(machine))
    machine.run(Totals)

    assert outputs_of(machine) == expected_totals(end=110)


@pytest.mark.parametrize(
    ("processor", "to", "policy", "message"),
    [
        (Totals, parse_offsets("7=1", ["readings"]), None, "has no bucket 7"),
        (Totals, parse_offsets("1=1000", ["readings"]), None, "has no offset 1,000"),
        (Copies, Edge.LATEST, StatePolicy.EMPTY, "has no state"),
        (Totals, Edge.EARLIEST, StatePolicy.KEEP, "would count events twice"),
    ],
)
def test_impossible_resets_are_refused(
    machine: Machine, processor: type[ps.Processor], to: ResetTarget, policy: StatePolicy | None, message: str
) -> None:
    """The error suggests an alternative, and nothing changes."""
    read_twice(machine, processor)
    before = positions(machine, processor)
    with pytest.raises(MaintenanceRefused, match=message):
        reset(machine, processor, to, policy)

    assert positions(machine, processor) == before


@pytest.mark.parametrize(
    ("text", "inputs", "message"),
    [
        ("0=x", ["clicks"], "'0=x' is not an offset"),
        ("0=1", ["clicks", "buys"], "bucket 0 exists in several inputs"),
        ("visits/0=1", ["clicks"], "visits is not an input"),
        ("0=1,0=2", ["clicks"], "appears twice"),
    ],
)
def test_ambiguous_offsets_are_refused(text: str, inputs: list[str], message: str) -> None:
    """The error quotes the wrong part."""
    with pytest.raises(MaintenanceRefused, match=message):
        parse_offsets(text, inputs)
