"""What a reset promises: a processor goes on elsewhere, with the state that belongs there, however often the reset dies on the way."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from support.machines import Machine, created, read, write
from support.maintenance import Killed, dying, environment
from support.resets import (
    PAIRS,
    Balances,
    Copies,
    Totals,
    half,
    made,
    of_pair,
    places,
    positions,
    readings,
    reset,
    totals,
    truth,
    written,
)

import penstock as ps
from penstock.ops.maintenance.reset import perform_reset, plan_reset
from penstock.ops.maintenance.reset_plan import ResetMethod, StatePolicy
from penstock.ops.maintenance.reset_target import Edge, ExplicitOffsets, ResetTarget, parse_offsets
from penstock.ops.worker.backups import WorkerBackups
from penstock.ops.worker.resume_checks import StateSuperseded
from penstock.state.files.local_files import LocalFileStore
from penstock.transport.errors import GroupInUse
from penstock.transport.memory import MemoryBus
from penstock.transport.tables.maintenance_log import newest_maintenance
from penstock.transport.tables.maintenance_protocol import (
    MaintenanceRefused,
    MaintenanceStep,
)
from penstock.transport.tables.upstream_watermarks import watermarks_on

# Where it goes on, and with what.


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_state_goes_back_with_positions(machine: Machine, pair: tuple[ps.Semantics, ps.Semantics]) -> None:
    """From the backup that fits, and the rest of the way by reading again, without outputs: from the target on they are as they were."""
    processor = of_pair(pair)
    middle = half(machine, processor)
    at_60 = {
        bucket: offset + sum(one.number == bucket.number for one in places(50, 60)) for bucket, offset in middle.items()
    }
    planned = reset(machine, processor, ExplicitOffsets(at_60))
    machine.run(processor)

    assert {shard.method for shard in planned.shards} == {ResetMethod.BACKUP}
    assert (planned.repeated, sum(shard.caught_up for shard in planned.shards)) == (40, 10)
    assert written(machine) == sorted(truth() + truth(begin=60))
    assert machine.state(processor) == {f"m{n}".encode(): b"\x14" for n in range(5)}


def test_without_a_backup_state_is_built_again_from_the_bus(machine: Machine) -> None:
    """As far as the target, without outputs."""
    middle = half(machine, Totals)
    planned = reset(machine, Totals, ExplicitOffsets(middle), backups=False)
    machine.run(Totals)

    assert {shard.method for shard in planned.shards} == {ResetMethod.REBUILT}
    assert written(machine) == sorted(truth() + truth(begin=50))


def test_empty_state_counts_from_the_target_on(machine: Machine) -> None:
    """Also where a worker of another machine, without that state, goes on."""
    middle = half(machine, Totals)
    reset(machine, Totals, ExplicitOffsets(middle), StatePolicy.EMPTY, backups=False)
    machine.lose(Totals)
    machine.run(Totals)

    assert written(machine) == sorted(truth() + truth(begin=50, counted_from=50))


def test_earliest_begins_anew(machine: Machine) -> None:
    """With no state, at the first event."""
    half(machine, Totals)
    reset(machine, Totals, Edge.EARLIEST)
    machine.run(Totals)

    assert written(machine) == sorted(truth() + truth())


def test_latest_passes_over_what_waits_but_counts_it(machine: Machine) -> None:
    """Nothing is written for it, and the state is what it would have been."""
    half(machine, Totals)
    write(machine.bus, readings, made(100, 120))
    planned = reset(machine, Totals, Edge.LATEST)
    write(machine.bus, readings, made(120, 130))
    machine.run(Totals)

    assert {shard.method for shard in planned.shards} == {ResetMethod.KEPT}
    assert planned.skipped == 20
    assert written(machine) == sorted(truth() + truth(begin=120, end=130))


def test_a_state_that_is_kept_leaves_out_what_is_passed_over(machine: Machine) -> None:
    """It is in no output and in no state, whatever machine goes on, from whichever backup."""
    half(machine, Totals)
    write(machine.bus, readings, made(100, 120))
    reset(machine, Totals, Edge.LATEST, StatePolicy.KEEP)
    machine.lose(Totals)
    backups = WorkerBackups(machine.place, machine.states, timedelta(hours=1))
    write(machine.bus, readings, made(120, 125))
    machine.run(Totals, backups)

    assert written(machine) == sorted(truth() + [(f"m{n % 5}", 1_000 * n, 21) for n in range(120, 125)])


def test_a_time_is_that_of_arrival(tmp_path: Path) -> None:
    """As `category tail --from` has it."""
    now_ms = 1_000_000
    machine = Machine(tmp_path / "one", MemoryBus(lambda: now_ms), LocalFileStore(tmp_path / "place"))
    created(machine.bus, [Copies])
    write(machine.bus, readings, made(0, 10))
    now_ms = 2_000_000
    write(machine.bus, readings, made(10, 30))
    machine.run(Copies)
    planned = reset(machine, Copies, datetime.fromtimestamp(1_500, timezone.utc))
    machine.run(Copies)

    assert planned.repeated == 20
    assert {shard.method for shard in planned.shards} == {ResetMethod.NONE}
    assert len(read(machine.bus, totals)) == 50


def test_offsets_move_the_buckets_that_they_name(machine: Machine) -> None:
    """Others stay."""
    half(machine, Copies)
    before = positions(machine, Copies)
    reset(machine, Copies, parse_offsets("1=3", ["readings"]))

    assert positions(machine, Copies) == {**before, 1: 3}


def test_state_with_a_changelog_goes_back_to_where_a_backup_is(machine: Machine) -> None:
    """Exactly: reading again would give another; and whoever lost it has it from the changelog."""
    middle = half(machine, Balances)
    ahead = {bucket: offset + 1 for bucket, offset in middle.items()}
    planned = reset(machine, Balances, ExplicitOffsets(ahead))
    machine.lose(Balances)
    machine.run(Balances)

    assert {shard.target["readings"] for shard in planned.shards} == set(middle.values())
    assert written(machine) == sorted(truth() + truth(begin=50))
    assert machine.state(Balances) == {f"m{n}".encode(): b"\x14" for n in range(5)}


def test_what_is_written_again_is_not_promised_as_complete(machine: Machine) -> None:
    """Consumers that go by promises wait until it is."""
    half(machine, Totals)
    before = {bucket for name, bucket in watermarks_on(machine.bus) if name == "totals"}
    reset(machine, Totals, parse_offsets("0=1", ["readings"]))

    assert before == {0, 1}
    assert {bucket for name, bucket in watermarks_on(machine.bus) if name == "totals"} == {1}


# Other machines and older backups.


def test_a_state_on_another_machine_does_not_undo_it(machine: Machine, tmp_path: Path) -> None:
    """A worker there that finds the state of before says what to do; with backups it has the right one by itself."""
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    half(other, Totals)
    other.back_up(Totals)
    reset(machine, Totals, Edge.EARLIEST)
    with pytest.raises(StateSuperseded, match="from before the reset to earliest"):
        other.run(Totals)
    other.run(Totals, WorkerBackups(other.place, other.states, timedelta(hours=1)))

    assert written(machine) == sorted(truth() + truth())


# Not half done.


def test_half_a_reset_is_not_left_behind(machine: Machine) -> None:
    """What another one would not take further is refused."""
    middle = half(machine, Totals)
    with pytest.raises(Killed):
        reset(
            machine, Totals, ExplicitOffsets(middle), StatePolicy.EMPTY, at_gap=dying(MaintenanceStep.INSTALL_STATE, 1)
        )
    for other in (Edge.LATEST, parse_offsets("0=1", ["readings"])):
        with pytest.raises(MaintenanceRefused, match="is unfinished"):
            reset(machine, Totals, other)


def test_a_state_that_passed_over_events_is_not_taken_for_one_that_counts_them(machine: Machine) -> None:
    """Where some shards of it did when the reset died: it is finished as it was begun."""
    half(machine, Totals)
    write(machine.bus, readings, made(100, 120))
    with pytest.raises(Killed):
        reset(machine, Totals, Edge.LATEST, StatePolicy.KEEP, at_gap=dying(MaintenanceStep.INSTALL_STATE, 1))
    with pytest.raises(MaintenanceRefused, match="is unfinished"):
        reset(machine, Totals, Edge.LATEST)
    reset(machine, Totals, Edge.LATEST, StatePolicy.KEEP)
    write(machine.bus, readings, made(120, 125))
    machine.run(Totals)

    assert written(machine) == sorted(truth() + [(f"m{n % 5}", 1_000 * n, 21) for n in range(120, 125)])


def test_it_may_be_repeated(machine: Machine) -> None:
    """The second changes nothing more."""
    middle = half(machine, Totals)
    for _ in range(2):
        planned = reset(machine, Totals, ExplicitOffsets(middle))
    machine.run(Totals)

    assert planned.repeated == planned.skipped == 0
    assert written(machine) == sorted(truth() + truth(begin=50))


def test_a_plan_changes_nothing(machine: Machine) -> None:
    """It only says what would be done."""
    middle = half(machine, Totals)
    before = positions(machine, Totals)
    plan_reset(Totals, environment(machine), ExplicitOffsets(middle), None)
    machine.run(Totals)

    assert positions(machine, Totals) == before
    assert newest_maintenance(machine.bus, "totals") is None
    assert written(machine) == truth()


# Refused.


def test_not_while_it_runs(machine: Machine) -> None:
    """Nothing was changed, and the worker goes on."""
    half(machine, Totals)
    with machine.working(Totals) as worker:
        planned = plan_reset(Totals, environment(machine), Edge.EARLIEST, None)
        worker.run_once()
        with pytest.raises(GroupInUse):
            perform_reset(planned, environment(machine))
        write(machine.bus, readings, made(100, 110))
        worker.run_once()
    machine.run(Totals)

    assert newest_maintenance(machine.bus, "totals") is None
    assert written(machine) == truth(end=110)


def test_not_when_it_has_gone_on_since(machine: Machine) -> None:
    """What was shown is what is done, or nothing."""
    middle = half(machine, Totals)
    planned = plan_reset(Totals, environment(machine), ExplicitOffsets(middle), None)
    write(machine.bus, readings, made(100, 110))
    machine.run(Totals)
    with pytest.raises(MaintenanceRefused, match="has been read further"):
        perform_reset(planned, environment(machine))
    machine.run(Totals)

    assert written(machine) == truth(end=110)


@pytest.mark.parametrize(
    ("processor", "to", "policy", "said"),
    [
        (Totals, parse_offsets("7=1", ["readings"]), None, "has no bucket 7"),
        (Totals, parse_offsets("1=1000", ["readings"]), None, "has no offset 1,000"),
        (Copies, Edge.LATEST, StatePolicy.EMPTY, "has no state"),
        (Totals, Edge.EARLIEST, StatePolicy.KEEP, "would count events twice"),
    ],
)
def test_what_cannot_be_is_refused(
    machine: Machine, processor: type[ps.Processor], to: ResetTarget, policy: StatePolicy | None, said: str
) -> None:
    """With what to do instead; and nothing is changed."""
    half(machine, processor)
    before = positions(machine, processor)
    with pytest.raises(MaintenanceRefused, match=said):
        reset(machine, processor, to, policy)

    assert positions(machine, processor) == before


@pytest.mark.parametrize(
    ("text", "inputs", "said"),
    [
        ("0=x", ["clicks"], "'0=x' is not an offset"),
        ("0=1", ["clicks", "buys"], "bucket 0 exists in several inputs"),
        ("visits/0=1", ["clicks"], "visits is not an input"),
        ("0=1,0=2", ["clicks"], "appears twice"),
    ],
)
def test_offsets_are_read_with_care(text: str, inputs: list[str], said: str) -> None:
    """What could mean several things is asked back."""
    with pytest.raises(MaintenanceRefused, match=said):
        parse_offsets(text, inputs)
