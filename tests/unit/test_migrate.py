"""What a migration of states promises: each key goes on with what a function made of its state, or all is as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.machines import Machine, created, read, write
from support.maintenance import environment, worker_backups
from support.migrations import (
    AGAIN,
    EVENTS,
    KINDS,
    LOGGED,
    NUMBERS,
    Kind,
    Numbers,
    NumbersSeen,
    begun,
    ended,
    function,
    migrate,
    seen,
    undisturbed,
)
from support.shop import Paid, Purchase, orders, payments

import penstock as ps
from penstock.ops.maintenance import staging
from penstock.ops.maintenance.migration import perform_migration
from penstock.ops.maintenance.migration_plan import plan_migration
from penstock.ops.maintenance.reset import perform_reset, plan_reset
from penstock.ops.maintenance.reset_plan import ResetMethod
from penstock.ops.maintenance.reset_target import Edge, ExplicitOffsets
from penstock.ops.maintenance.resize import perform_resize, plan_resize
from penstock.ops.worker.resume_checks import StateSuperseded
from penstock.processors.shard.position import StatePosition
from penstock.state.errors import ForeignState
from penstock.state.local.folder import RocksStateFolder
from penstock.state.protocols import Delta, ShardIdentity
from penstock.transport.messages import Bucket
from penstock.transport.tables.maintenance_log import ConvertedType, newest_maintenance
from penstock.transport.tables.maintenance_protocol import (
    MaintenanceRefused,
)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is written go in several batches."""
    monkeypatch.setattr(staging, "BATCH_ENTRIES", 8)


# Each key goes on.


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_each_key_goes_on_with_what_the_function_made_of_its_state(machine: Machine, kind: Kind) -> None:
    """Its timers, its held events, its windows and event time are as they were."""
    begun(machine, kind)
    planned = migrate(machine, kind)
    outputs = ended(machine, kind.now)

    assert not planned.is_continued
    assert {shard.shape for shard in planned.shards} == {kind.before.state_shape()}
    assert len(outputs) > 100
    assert outputs == undisturbed(kind)


@pytest.mark.parametrize("kind", [NUMBERS, LOGGED], ids=["not logged", "logged"])
def test_it_holds_without_the_disk(machine: Machine, kind: Kind) -> None:
    """The new states are the newest backups."""
    begun(machine, kind)
    migrate(machine, kind)
    machine.lose(kind.now)

    assert ended(machine, kind.now, worker_backups(machine)) == undisturbed(kind)


def test_a_changelog_gives_the_new_states(machine: Machine) -> None:
    """Also without backups."""
    begun(machine, LOGGED)
    migrate(machine, LOGGED, backups=False)
    machine.lose(LOGGED.now)

    assert ended(machine, LOGGED.now) == undisturbed(LOGGED)


def test_none_drops_a_key(machine: Machine) -> None:
    """It begins anew; others go on."""
    begun(machine, NUMBERS)
    planned = plan_migration(NumbersSeen, environment(machine))
    by = function(lambda key, state: None if key == "c3" else seen(key, state))
    counts = perform_migration(planned, environment(machine), by)
    write(machine.bus, orders, [Purchase("c3", EVENTS[-1].at, 1000), Purchase("c4", EVENTS[-1].at, 1001)])
    machine.run(NumbersSeen)
    said = {one.customer: one.said for one in read(machine.bus, Numbers.outputs()[0]) if one.said.startswith("100")}

    assert (counts.keys, counts.dropped) == (20, 1)
    assert said["c3"] == "1000 is 1"
    assert not said["c4"].endswith(" is 1")


def test_windows_that_are_dropped_tell_nothing(machine: Machine) -> None:
    """Their timers find nothing; other windows of the key are as they were."""
    kind, dropped = KINDS["windows"], {f"c{n}" for n in range(10)}
    begun(machine, kind)
    migrate(machine, kind._replace(by=lambda key, state: None if key in dropped else {"numbers": state}))
    outputs, truth = ended(machine, kind.now), undisturbed(kind)

    assert [one for one in outputs if one[0] not in dropped] == [one for one in truth if one[0] not in dropped]
    assert 0 < sum(one[0] in dropped for one in outputs) < sum(one[0] in dropped for one in truth)


def test_a_join_holds_what_its_records_are_now(machine: Machine) -> None:
    """The function is given both sides, as they are held."""
    created(machine.bus, [Paid])
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
        return [[[at, met, {**event, "shop": "here"}] for at, met, event in sides[0]], sides[1]]

    migrate(machine, Kind(Paid, now, with_shop))
    found = [msgspec.msgpack.decode(value) for value in machine.state(now).values()]

    assert {held[2]["shop"] for left_side, _ in found for held in left_side} == {"here"}


def test_a_prepared_checkpoint_is_settled_first(machine: Machine) -> None:
    """What its group has committed is part of the state; what it has not is none."""
    kind = KINDS["exactly-exactly"]
    begun(machine, kind)
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
    """Return in which bucket each customer is."""
    found = {}
    for number, end in machine.bus.describe("orders").ends.items():
        for message in machine.bus.slice(Bucket("orders", number), 0, end):
            found[message.key() or b""] = number
    return found


# Where the states are.


def test_a_state_that_is_only_in_a_backup_is_taken_from_there(machine: Machine) -> None:
    """What its group has read since is read again, for the state alone."""
    begun(machine, NUMBERS, 100)
    machine.back_up(Numbers)
    write(machine.bus, orders, EVENTS[100:150])
    machine.run(Numbers)
    machine.lose(Numbers)
    planned = migrate(machine, NUMBERS)

    assert {shard.plan.method for shard in planned.shards} == {ResetMethod.BACKUP}
    assert sum(shard.plan.caught_up for shard in planned.shards) == 50
    assert ended(machine, NumbersSeen) == undisturbed(NUMBERS)


def test_a_backup_is_brought_up_from_the_changelog(machine: Machine) -> None:
    """Where reading the events again would not give the same state."""
    begun(machine, LOGGED, 100)
    machine.back_up(LOGGED.before)
    write(machine.bus, orders, EVENTS[100:150])
    machine.run(LOGGED.before)
    machine.lose(LOGGED.before)
    planned = migrate(machine, LOGGED)
    found = [msgspec.msgpack.decode(value)["orders"] for value in machine.state(LOGGED.now).values()]

    assert sum(shard.plan.caught_up for shard in planned.shards) == 0
    assert sum(found) == 150


def test_a_backup_that_is_further_than_this_machine_counts(machine: Machine, tmp_path: Path) -> None:
    """As where buckets have moved to another one."""
    begun(machine, NUMBERS, 100)
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    write(machine.bus, orders, EVENTS[100:150])
    other.run(Numbers)
    other.back_up(Numbers)
    planned = migrate(machine, NUMBERS)

    assert {shard.plan.method for shard in planned.shards} == {ResetMethod.BACKUP}
    assert ended(machine, NumbersSeen) == undisturbed(NUMBERS)


def test_a_state_that_is_nowhere_is_named(machine: Machine) -> None:
    """And nothing is changed."""
    begun(machine, NUMBERS)
    machine.lose(Numbers)
    with pytest.raises(
        MaintenanceRefused, match=r"bucket 0: it has read up to orders .* neither on this machine nor in the backups"
    ):
        migrate(machine, NUMBERS)

    assert newest_maintenance(machine.bus, "numbers") is None


def test_a_state_of_before_on_another_machine_is_not_used(machine: Machine, tmp_path: Path) -> None:
    """Neither by the code of before, nor by that of now; with backups that has the right one by itself."""
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    begun(other, NUMBERS)
    other.back_up(Numbers)
    migrate(machine, NUMBERS)
    with pytest.raises(StateSuperseded, match="from before the migration to Seen by customer"):
        other.run(Numbers)
    with pytest.raises(ForeignState, match="penstock state migrate"):
        other.run(NumbersSeen)
    with pytest.raises(MaintenanceRefused, match="neither on this machine nor in the backups"):
        migrate(other, Kind(NumbersSeen, Numbers, seen), backups=False)

    assert ended(other, NumbersSeen, worker_backups(other)) == undisturbed(NUMBERS)


# Types of one name.


def test_fields_may_change_under_one_name(machine: Machine) -> None:
    """Which its shape does not tell: values are looked at. Once they fit, there is nothing to do."""
    begun(machine, AGAIN)
    assert migrate(machine, AGAIN).shards
    assert not migrate(machine, AGAIN).shards

    assert ended(machine, AGAIN.now) == undisturbed(NUMBERS)


def test_values_that_fit_are_changed_only_when_asked_for(machine: Machine) -> None:
    """By a function that leaves the type."""
    begun(machine, NUMBERS)
    before = machine.state(Numbers)
    doubled = Kind(Numbers, Numbers, lambda _, state: 2 * state)
    assert not migrate(machine, doubled).shards
    assert machine.state(Numbers) == before
    migrate(machine, doubled, force=True)
    after = machine.state(Numbers)

    assert {key: msgspec.msgpack.decode(value) for key, value in after.items()} == {
        key: 2 * msgspec.msgpack.decode(value) for key, value in before.items()
    }


def test_a_reset_does_not_lead_back_to_values_of_another_type(machine: Machine) -> None:
    """Though that is called the same: it reads the events again."""
    created(machine.bus, [NumbersSeen])
    write(machine.bus, orders, EVENTS[:100])
    machine.run(NumbersSeen)
    machine.back_up(NumbersSeen)
    middle = machine.bus.committed("numbers", "orders")
    write(machine.bus, orders, EVENTS[100:150])
    machine.run(NumbersSeen)
    migrate(machine, AGAIN)
    target = ExplicitOffsets({Bucket("orders", bucket): offset for bucket, offset in middle.items()})
    planned = plan_reset(AGAIN.now, environment(machine), target, None)

    assert {shard.method for shard in planned.shards} == {ResetMethod.REBUILT}


def test_later_moves_remember_since_when_values_are_as_they_are(machine: Machine) -> None:
    """A reset leaves it as it is; after a resize it is so of all that is split."""
    begun(machine, AGAIN)
    migrate(machine, AGAIN)
    perform_reset(plan_reset(AGAIN.now, environment(machine), Edge.LATEST, None), environment(machine))
    after_reset = newest_maintenance(machine.bus, "numbers")
    perform_resize(plan_resize([AGAIN.now], environment(machine), "orders", 6), environment(machine))
    after_resize = newest_maintenance(machine.bus, "numbers")

    assert after_reset is not None
    assert after_resize is not None
    assert after_reset.lineage.converted == ConvertedType("Seen by customer", dict.fromkeys(range(3), 1))
    assert after_resize.lineage.converted == ConvertedType("Seen by customer", dict.fromkeys(range(6), 2))


def test_a_resize_splits_the_new_states(machine: Machine, tmp_path: Path) -> None:
    """Not those of before, which lie on another machine and are as far."""
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    begun(other, AGAIN)
    other.back_up(AGAIN.before)
    migrate(machine, AGAIN)
    more = ps.Category("orders", Purchase, key="customer", event_time="at", buckets=6)
    now = type("Resized", (AGAIN.now,), {"name": "numbers", "reads": more})
    perform_resize(plan_resize([AGAIN.now], environment(other), "orders", 6), environment(other))

    assert ended(other, now) == undisturbed(NUMBERS)
