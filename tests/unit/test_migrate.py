"""State migration: a function converts the state of each key, or nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.machines import Machine, create_categories, read, write
from support.maintenance import environment, worker_backups
from support.migrations import (
    AGAIN,
    EVENTS,
    KINDS,
    LOGGED,
    NUMBERS,
    Kind,
    Numbers,
    NumbersConverted,
    finish,
    function,
    migrate,
    outputs_without_migration,
    read_part,
    with_customer,
)
from support.shop import Paid, Purchase, orders, payments

import penstock as ps
from penstock.ops.change.maintenance import staging
from penstock.ops.change.maintenance.migration import perform_migration
from penstock.ops.change.maintenance.migration_plan import plan_migration
from penstock.ops.change.maintenance.reset import perform_reset, plan_reset
from penstock.ops.change.maintenance.reset_plan import ResetMethod
from penstock.ops.change.maintenance.reset_target import Edge, ExplicitOffsets
from penstock.ops.change.maintenance.resize import perform_resize, plan_resize
from penstock.ops.kernel.shards.resume_checks import StateSuperseded
from penstock.processors.declare import plan_of
from penstock.processors.shard import StatePosition
from penstock.state import Delta, ShardIdentity
from penstock.state.errors import ForeignState
from penstock.state.local import RocksStateFolder
from penstock.transport import Bucket
from penstock.transport.tables import ConvertedType, MaintenanceRefused, newest_maintenance


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write converted states in several batches."""
    monkeypatch.setattr(staging, "BATCH_ENTRIES", 8)


# Each key continues with its converted state.


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_each_key_continues_with_its_converted_state(machine: Machine, kind: Kind) -> None:
    """Timers, held events, windows and event time do not change."""
    read_part(machine, kind)
    planned = migrate(machine, kind)
    outputs = finish(machine, kind.now)

    assert not planned.is_continued
    assert {shard.shape for shard in planned.shards} == {plan_of(kind.before).state_shape}
    assert len(outputs) > 100
    assert outputs == outputs_without_migration(kind)


@pytest.mark.parametrize("kind", [NUMBERS, LOGGED], ids=["not logged", "logged"])
def test_migrated_states_survive_the_loss_of_the_disk(machine: Machine, kind: Kind) -> None:
    """The newest backups contain the converted states."""
    read_part(machine, kind)
    migrate(machine, kind)
    machine.lose(kind.now)

    assert finish(machine, kind.now, worker_backups(machine)) == outputs_without_migration(kind)


def test_a_changelog_restores_the_converted_states(machine: Machine) -> None:
    """It does so without backups, too."""
    read_part(machine, LOGGED)
    migrate(machine, LOGGED, backups=False)
    machine.lose(LOGGED.now)

    assert finish(machine, LOGGED.now) == outputs_without_migration(LOGGED)


def test_a_function_that_returns_none_drops_the_key(machine: Machine) -> None:
    """A dropped key restarts without state; the other keys continue."""
    read_part(machine, NUMBERS)
    planned = plan_migration(NumbersConverted, environment(machine))
    by = function(lambda key, state: None if key == "c3" else with_customer(key, state))
    counts = perform_migration(planned, environment(machine), by)
    write(machine.bus, orders, [Purchase("c3", EVENTS[-1].at, 1000), Purchase("c4", EVENTS[-1].at, 1001)])
    machine.run(NumbersConverted)
    texts = {
        line.customer: line.said
        for line in read(machine.bus, plan_of(Numbers).outputs[0])
        if line.said.startswith("100")
    }

    assert (counts.keys, counts.dropped) == (20, 1)
    assert texts["c3"] == "1000 is 1"
    assert not texts["c4"].endswith(" is 1")


def test_dropped_windows_write_no_output(machine: Machine) -> None:
    """Their timers are ignored; the key's later windows are written."""
    kind, dropped = KINDS["windows"], {f"c{n}" for n in range(10)}
    read_part(machine, kind)
    migrate(machine, kind._replace(by=lambda key, state: None if key in dropped else {"numbers": state}))
    outputs, expected = finish(machine, kind.now), outputs_without_migration(kind)

    assert [row for row in outputs if row[0] not in dropped] == [row for row in expected if row[0] not in dropped]
    assert 0 < sum(row[0] in dropped for row in outputs) < sum(row[0] in dropped for row in expected)


def test_a_migration_converts_the_held_records_of_a_join(machine: Machine) -> None:
    """The function receives the held records of both sides."""
    create_categories(machine.bus, [Paid])
    write(machine.bus, orders, EVENTS[:150])
    machine.run(Paid)
    more: Any = msgspec.defstruct(
        "Purchase",
        [("customer", str), ("at", ps.EventTime), ("number", int), ("shop", str)],
        bases=(ps.Record,),
        frozen=True,
    )
    left = ps.Category("orders", more, key="customer", event_time="at", buckets=3)
    now = type("PaidNow", (Paid,), {"left": left, "right": payments, "name": "paid"})

    def with_shop(_: str, sides: Any) -> Any:
        return [[[at, matched, {**event, "shop": "here"}] for at, matched, event in sides[0]], sides[1]]

    migrate(machine, Kind(Paid, now, with_shop))
    found = [msgspec.msgpack.decode(value) for value in machine.state(now).values()]

    assert {record[2]["shop"] for left_side, _ in found for record in left_side} == {"here"}


def test_a_migration_first_completes_or_rolls_back_a_prepared_checkpoint(machine: Machine) -> None:
    """The state includes a prepared checkpoint only if its group has committed it."""
    kind = KINDS["exactly-exactly"]
    read_part(machine, kind)
    committed = machine.bus.committed("numbers", "orders")
    keys = {bucket: key for key, bucket in buckets_of_keys(machine).items()}
    for bucket, further in ((0, 0), (1, 5)):
        state = RocksStateFolder(machine.states).open(ShardIdentity("numbers", bucket, "int by customer"))
        after = StatePosition({"orders": committed[bucket] + further})
        state.prepare(Delta({"orders": committed[bucket]}, after, {keys[bucket]: msgspec.msgpack.encode(1000)}))
        state.close()
    migrate(machine, kind)
    found = {key: msgspec.msgpack.decode(value)["orders"] for key, value in machine.state(kind.now).items()}

    assert found[keys[0]] == 1000
    assert found[keys[1]] < 1000


def buckets_of_keys(machine: Machine) -> dict[bytes, int]:
    """Return the bucket of each customer."""
    found = {}
    for number, end in machine.bus.describe("orders").ends.items():
        for message in machine.bus.slice(Bucket("orders", number), 0, end):
            found[message.key() or b""] = number
    return found


# Sources of the states.


def test_a_state_that_only_a_backup_contains_is_restored_from_it(machine: Machine) -> None:
    """The events after the backup are read again to update the state; they produce no output."""
    read_part(machine, NUMBERS, 100)
    machine.back_up(Numbers)
    write(machine.bus, orders, EVENTS[100:150])
    machine.run(Numbers)
    machine.lose(Numbers)
    planned = migrate(machine, NUMBERS)

    assert {shard.plan.method for shard in planned.shards} == {ResetMethod.BACKUP}
    assert sum(shard.plan.caught_up for shard in planned.shards) == 50
    assert finish(machine, NumbersConverted) == outputs_without_migration(NUMBERS)


def test_a_changelog_brings_a_backup_up_to_date(machine: Machine) -> None:
    """Events are not read again, since a second processing could produce another state."""
    read_part(machine, LOGGED, 100)
    machine.back_up(LOGGED.before)
    write(machine.bus, orders, EVENTS[100:150])
    machine.run(LOGGED.before)
    machine.lose(LOGGED.before)
    planned = migrate(machine, LOGGED)
    found = [msgspec.msgpack.decode(value)["orders"] for value in machine.state(LOGGED.now).values()]

    assert sum(shard.plan.caught_up for shard in planned.shards) == 0
    assert sum(found) == 150


def test_a_backup_newer_than_the_local_state_replaces_it(machine: Machine, tmp_path: Path) -> None:
    """Buckets that moved to another machine have such backups."""
    read_part(machine, NUMBERS, 100)
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    write(machine.bus, orders, EVENTS[100:150])
    other.run(Numbers)
    other.back_up(Numbers)
    planned = migrate(machine, NUMBERS)

    assert {shard.plan.method for shard in planned.shards} == {ResetMethod.BACKUP}
    assert finish(machine, NumbersConverted) == outputs_without_migration(NUMBERS)


def test_a_missing_state_stops_the_migration(machine: Machine) -> None:
    """The error names the bucket, and nothing changes."""
    read_part(machine, NUMBERS)
    machine.lose(Numbers)
    with pytest.raises(
        MaintenanceRefused, match=r"bucket 0: it has read up to orders .* neither on this machine nor in the backups"
    ):
        migrate(machine, NUMBERS)

    assert newest_maintenance(machine.bus, "numbers") is None


def test_an_outdated_state_on_another_machine_is_not_used(machine: Machine, tmp_path: Path) -> None:
    """Old code and new code refuse it; with backups, new code restores the converted state itself."""
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    read_part(other, NUMBERS)
    other.back_up(Numbers)
    migrate(machine, NUMBERS)
    with pytest.raises(StateSuperseded, match="from before the migration to Seen by customer"):
        other.run(Numbers)
    with pytest.raises(ForeignState, match="penstock state migrate"):
        other.run(NumbersConverted)
    with pytest.raises(MaintenanceRefused, match="neither on this machine nor in the backups"):
        migrate(other, Kind(NumbersConverted, Numbers, with_customer), backups=False)

    assert finish(other, NumbersConverted, worker_backups(other)) == outputs_without_migration(NUMBERS)


# Types with the same name.


def test_a_migration_converts_a_type_that_keeps_its_name(machine: Machine) -> None:
    """The shapes are equal, so the plan checks the stored values. A second migration finds no work."""
    read_part(machine, AGAIN)
    assert migrate(machine, AGAIN).shards
    assert not migrate(machine, AGAIN).shards

    assert finish(machine, AGAIN.now) == outputs_without_migration(NUMBERS)


def test_valid_values_are_converted_only_with_force(machine: Machine) -> None:
    """The function keeps the type and changes the values."""
    read_part(machine, NUMBERS)
    before = machine.state(Numbers)
    doubled = Kind(Numbers, Numbers, lambda _, state: 2 * state)
    assert not migrate(machine, doubled).shards
    assert machine.state(Numbers) == before
    migrate(machine, doubled, force=True)
    after = machine.state(Numbers)

    assert {key: msgspec.msgpack.decode(value) for key, value in after.items()} == {
        key: 2 * msgspec.msgpack.decode(value) for key, value in before.items()
    }


def test_a_reset_ignores_backups_with_values_of_another_type(machine: Machine) -> None:
    """It rebuilds the state from events, although the types have the same name."""
    create_categories(machine.bus, [NumbersConverted])
    write(machine.bus, orders, EVENTS[:100])
    machine.run(NumbersConverted)
    machine.back_up(NumbersConverted)
    middle = machine.bus.committed("numbers", "orders")
    write(machine.bus, orders, EVENTS[100:150])
    machine.run(NumbersConverted)
    migrate(machine, AGAIN)
    target = ExplicitOffsets({Bucket("orders", bucket): offset for bucket, offset in middle.items()})
    planned = plan_reset(AGAIN.now, environment(machine), target, None)

    assert {shard.method for shard in planned.shards} == {ResetMethod.REBUILT}


def test_later_operations_keep_the_record_of_the_converted_type(machine: Machine) -> None:
    """A reset keeps the record; a resize extends it to each new bucket."""
    read_part(machine, AGAIN)
    migrate(machine, AGAIN)
    perform_reset(plan_reset(AGAIN.now, environment(machine), Edge.LATEST, None), environment(machine))
    after_reset = newest_maintenance(machine.bus, "numbers")
    perform_resize(plan_resize([AGAIN.now], environment(machine), "orders", 6), environment(machine))
    after_resize = newest_maintenance(machine.bus, "numbers")

    assert after_reset is not None
    assert after_resize is not None
    assert after_reset.lineage.converted == ConvertedType("Seen by customer", dict.fromkeys(range(3), 1))
    assert after_resize.lineage.converted == ConvertedType("Seen by customer", dict.fromkeys(range(6), 2))


def test_a_resize_splits_the_converted_states(machine: Machine, tmp_path: Path) -> None:
    """It ignores outdated states of another machine with the same position."""
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    read_part(other, AGAIN)
    other.back_up(AGAIN.before)
    migrate(machine, AGAIN)
    more = ps.Category("orders", Purchase, key="customer", event_time="at", buckets=6)
    now = type("Resized", (AGAIN.now,), {"name": "numbers", "reads": more})
    perform_resize(plan_resize([AGAIN.now], environment(other), "orders", 6), environment(other))

    assert finish(other, now) == outputs_without_migration(NUMBERS)
