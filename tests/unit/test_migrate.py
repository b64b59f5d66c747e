"""What a migration of states promises: each key goes on with what a function made of its state, or all is as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import pytest
from support.machines import Machine, created, read, write
from support.shop import HOUR_MS, Baskets, Counted, Outcome, Paid, Purchase, Tale, lows, made_up, orders, payments, told

import penstock as ps
from penstock.ops.maintenance import staging
from penstock.ops.maintenance.environment import Around
from penstock.ops.maintenance.errors import MaintenanceRefused
from penstock.ops.maintenance.migration import (
    Migration,
    MigrationGap,
    MigrationStep,
    examples,
    perform_migration,
    plan_migration,
    try_out,
)
from penstock.ops.maintenance.reset import perform, plan_reset
from penstock.ops.maintenance.reset_plan import ResetMethod
from penstock.ops.maintenance.reset_target import Edge, Offsets
from penstock.ops.maintenance.resize import perform_resize, plan_resize
from penstock.ops.maintenance.state_conversion import Example, StateConversion, UserFunctionFailed
from penstock.ops.maintenance.user_function import StateFunction, function_named
from penstock.ops.worker.backups import WorkerBackups
from penstock.ops.worker.resume_checks import MoveUnfinished, StateSuperseded
from penstock.processors.errors import AppFileError
from penstock.processors.shard.position import StatePosition
from penstock.state.errors import ForeignState
from penstock.state.files.local_files import LocalFileStore
from penstock.state.local.folder import RocksStateFolder
from penstock.state.protocols import Delta, ShardIdentity
from penstock.transport.errors import GroupInUse
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Bucket
from penstock.transport.tables.maintenance_log import Retyped, newest_maintenance

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE
Undisturbed = Callable[["Kind"], list[Any]]
EVENTS = made_up(Purchase, 300, 1)


class Seen(ps.Record, frozen=True):
    """What is known of a customer."""

    orders: int
    customer: str


class Told(ps.Record, frozen=True):
    """What was told of a customer."""

    text: str


class Bought(ps.Record, frozen=True):
    """What lies in a basket."""

    numbers: tuple[int, ...]


class Numbers(ps.Stateful):
    """Numbers a customer's orders."""

    reads, writes, state = orders, told("numbers"), int

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[int, list[Outcome]]:
        """Count."""
        number = (state or 0) + 1
        return number, [Outcome(event.customer, event.at, f"{event.number} is {number}")]


class NumbersSeen(Numbers):
    """The same, as it is declared later."""

    name = "numbers"
    state: ClassVar[Any] = Seen

    def process(self, event: Purchase, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Count."""
        number, outputs = super().process(event, state and state.orders, context)
        return Seen(number, event.customer), outputs


class Reminders(ps.Stateful):
    """Says after six hours how many orders there are."""

    reads, writes, state = orders, told("reminders"), int
    watermark = lows

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Count, and wait."""
        context.timer(event.at + 6 * HOUR_MS, str(event.number))
        return (state or 0) + 1, []

    def on_timer(self, timer: ps.Timer, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Tell."""
        return state, [Outcome(context.key, timer.at, f"{timer.tag} {state}")]


class RemindersSeen(Reminders):
    """The same, as it is declared later."""

    name = "reminders"
    state: ClassVar[Any] = Seen

    def process(self, event: Purchase, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Count, and wait."""
        number, outputs = super().process(event, state and state.orders, context)
        return Seen(number, event.customer), outputs

    def on_timer(self, timer: ps.Timer, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Tell."""
        return state, super().on_timer(timer, state.orders, context)[1]


class TaleTold(Tale):
    """The same, as it is declared later."""

    name = "tale"
    state: ClassVar[Any] = Told

    def process(self, event: Purchase, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Add the order."""
        tale, outputs = super().process(event, state and state.text, context)
        return Told(tale), outputs


class BasketsBought(Baskets):
    """The same, as it is declared later."""

    name = "baskets"
    state: ClassVar[Any] = Bought

    def fold(
        self, event: Purchase, state: Any, window: ps.windows.Window, context: ps.Context
    ) -> tuple[Any, Iterable[Outcome]]:
        """Add the order."""
        numbers, outputs = super().fold(event, state and state.numbers, window, context)
        return Bought(numbers), outputs

    def complete(self, state: Any, window: ps.windows.Window, context: ps.Context) -> Iterable[Outcome]:
        """Tell of all."""
        yield from super().complete(state.numbers, window, context)


class Kind(NamedTuple):
    """A processor as it was and as it is declared now, and what leads from the one to the other."""

    before: type[ps.Processor]
    now: type[ps.Processor]
    by: Callable[[str, Any], Any]

    def __str__(self) -> str:
        return self.now.__name__


def seen(key: str, state: int) -> dict[str, Any]:
    """Return what is known of a customer, from a count; of what was changed already there is none."""
    return {"orders": state + 0, "customer": key}


def with_semantics(kind: Kind, **semantics: Any) -> Kind:
    """Return a processor that asks for other guarantees, before and now."""
    return Kind(
        type("Before", (kind.before,), {**semantics, "name": kind.before.name}),
        type("Now", (kind.now,), {**semantics, "name": kind.before.name}),
        kind.by,
    )


NUMBERS = Kind(Numbers, NumbersSeen, seen)
LOGGED = with_semantics(NUMBERS, output_semantics=EXACT, deterministic=False)
KINDS = {
    "exactly-least": NUMBERS,
    "least-least": with_semantics(NUMBERS, state_semantics=LEAST),
    "most-most": with_semantics(NUMBERS, state_semantics=MOST, output_semantics=MOST),
    "exactly-most": with_semantics(NUMBERS, output_semantics=MOST),
    "exactly-exactly": with_semantics(NUMBERS, output_semantics=EXACT),
    "logged": LOGGED,
    "timers": Kind(Reminders, RemindersSeen, seen),
    "held": Kind(Tale, TaleTold, lambda _, state: Told(state)),
    "windows": Kind(Baskets, BasketsBought, lambda _, state: {"numbers": state}),
}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is written go in several batches."""
    monkeypatch.setattr(staging, "AT_ONCE", 8)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on a bus of its own."""
    return Machine(tmp_path / "one", MemoryBus(), LocalFileStore(tmp_path / "place"))


def around(machine: Machine, *, backups: bool = True) -> Around:
    """Return what a migration finds there."""
    return Around(machine.bus, machine.states, machine.place if backups else None)


def function(by: Callable[[str, Any], Any]) -> StateFunction:
    """Return a function as a user names it."""
    return StateFunction(Path("upgrade.py"), "upgraded", by)


def migrate(
    machine: Machine,
    kind: Kind,
    at_gap: Callable[[MigrationGap], None] = lambda _: None,
    *,
    backups: bool = True,
    anyway: bool = False,
) -> Migration:
    """Plan it and do it."""
    planned = plan_migration(kind.now, around(machine, backups=backups), anyway=anyway)
    if planned.shards:
        perform_migration(planned, around(machine, backups=backups), function(kind.by), at_gap)
    return planned


def begun(machine: Machine, kind: Kind, end: int = 150) -> None:
    """Let the processor of before read half of the orders."""
    created(machine.bus, [kind.before])
    write(machine.bus, orders, EVENTS[:end])
    machine.run(kind.before)


def ended(machine: Machine, processor: type[ps.Processor], backups: WorkerBackups | None = None) -> list[Any]:
    """Let a processor read the rest; return what was written in all."""
    write(machine.bus, orders, EVENTS[150:])
    machine.run(processor, backups)
    return written(machine, processor)


def written(machine: Machine, processor: type[ps.Processor]) -> list[Any]:
    """Return what was written, in an order that does not depend on buckets."""
    return sorted((one.customer, one.at, one.said) for one in read(machine.bus, processor.outputs()[0]))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Return what the processor of before writes of it all."""
    known: dict[type[ps.Processor], list[Any]] = {}

    def outputs_of(kind: Kind) -> list[Any]:
        if kind.before not in known:
            folder = tmp_path_factory.mktemp("undisturbed")
            machine = Machine(folder / "one", MemoryBus(), LocalFileStore(folder / "place"))
            begun(machine, kind)
            known[kind.before] = ended(machine, kind.before)
        return known[kind.before]

    return outputs_of


def backups_of(machine: Machine) -> WorkerBackups:
    """Return the backups as a worker has them."""
    return WorkerBackups(machine.place, machine.states, timedelta(hours=1))


# Each key goes on.


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_each_key_goes_on_with_what_the_function_made_of_its_state(
    machine: Machine, undisturbed: Undisturbed, kind: Kind
) -> None:
    """Its timers, its held events, its windows and event time are as they were."""
    begun(machine, kind)
    planned = migrate(machine, kind)
    outputs = ended(machine, kind.now)

    assert not planned.goes_on
    assert {shard.shape for shard in planned.shards} == {kind.before.state_shape()}
    assert len(outputs) > 100
    assert outputs == undisturbed(kind)


@pytest.mark.parametrize("kind", [NUMBERS, LOGGED], ids=["not logged", "logged"])
def test_it_holds_without_the_disk(machine: Machine, undisturbed: Undisturbed, kind: Kind) -> None:
    """The new states are the newest backups."""
    begun(machine, kind)
    migrate(machine, kind)
    machine.lose(kind.now)

    assert ended(machine, kind.now, backups_of(machine)) == undisturbed(kind)


def test_a_changelog_gives_the_new_states(machine: Machine, undisturbed: Undisturbed) -> None:
    """Also without backups."""
    begun(machine, LOGGED)
    migrate(machine, LOGGED, backups=False)
    machine.lose(LOGGED.now)

    assert ended(machine, LOGGED.now) == undisturbed(LOGGED)


def test_none_drops_a_key(machine: Machine) -> None:
    """It begins anew; others go on."""
    begun(machine, NUMBERS)
    planned = plan_migration(NumbersSeen, around(machine))
    by = function(lambda key, state: None if key == "c3" else seen(key, state))
    counts = perform_migration(planned, around(machine), by)
    write(machine.bus, orders, [Purchase("c3", EVENTS[-1].at, 1000), Purchase("c4", EVENTS[-1].at, 1001)])
    machine.run(NumbersSeen)
    said = {one.customer: one.said for one in read(machine.bus, Numbers.outputs()[0]) if one.said.startswith("100")}

    assert (counts.keys, counts.dropped) == (20, 1)
    assert said["c3"] == "1000 is 1"
    assert not said["c4"].endswith(" is 1")


def test_windows_that_are_dropped_tell_nothing(machine: Machine, undisturbed: Undisturbed) -> None:
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


def test_a_state_that_is_only_in_a_backup_is_taken_from_there(machine: Machine, undisturbed: Undisturbed) -> None:
    """What its group has read since is read again, for the state alone."""
    begun(machine, NUMBERS, 100)
    machine.back_up(Numbers)
    write(machine.bus, orders, EVENTS[100:150])
    machine.run(Numbers)
    machine.lose(Numbers)
    planned = migrate(machine, NUMBERS)

    assert {shard.plan.how for shard in planned.shards} == {ResetMethod.BACKUP}
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


def test_a_backup_that_is_further_than_this_machine_counts(
    machine: Machine, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """As where buckets have moved to another one."""
    begun(machine, NUMBERS, 100)
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    write(machine.bus, orders, EVENTS[100:150])
    other.run(Numbers)
    other.back_up(Numbers)
    planned = migrate(machine, NUMBERS)

    assert {shard.plan.how for shard in planned.shards} == {ResetMethod.BACKUP}
    assert ended(machine, NumbersSeen) == undisturbed(NUMBERS)


def test_a_state_that_is_nowhere_is_named(machine: Machine) -> None:
    """And nothing is changed."""
    begun(machine, NUMBERS)
    machine.lose(Numbers)
    with pytest.raises(
        MaintenanceRefused, match=r"bucket 0: it has read up to orders .* neither on this machine nor among"
    ):
        migrate(machine, NUMBERS)

    assert newest_maintenance(machine.bus, "numbers") is None


def test_a_state_of_before_on_another_machine_is_not_used(
    machine: Machine, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """Neither by the code of before, nor by that of now; with backups that has the right one by itself."""
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    begun(other, NUMBERS)
    other.back_up(Numbers)
    migrate(machine, NUMBERS)
    with pytest.raises(StateSuperseded, match="of before the migration to Seen by customer"):
        other.run(Numbers)
    with pytest.raises(ForeignState, match="penstock state migrate"):
        other.run(NumbersSeen)
    with pytest.raises(MaintenanceRefused, match="neither on this machine nor among"):
        migrate(other, Kind(NumbersSeen, Numbers, seen), backups=False)

    assert ended(other, NumbersSeen, backups_of(other)) == undisturbed(NUMBERS)


# Types of one name.


def renamed(fields: list[Any]) -> type[Numbers]:
    """Return the processor with a state of the name Seen that has other fields."""
    other = msgspec.defstruct("Seen", fields, bases=(ps.Record,), frozen=True)

    def process(self: Any, event: Purchase, state: Any, context: ps.Context) -> Any:
        number, outputs = Numbers().process(event, state and state.count, context)
        return other(number), outputs

    return type("NumbersAgain", (Numbers,), {"name": "numbers", "state": other, "process": process})


AGAIN = Kind(NumbersSeen, renamed([("count", int)]), lambda _, state: {"count": state["orders"]})


def test_fields_may_change_under_one_name(machine: Machine, undisturbed: Undisturbed) -> None:
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
    migrate(machine, doubled, anyway=True)
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
    target = Offsets({Bucket("orders", bucket): offset for bucket, offset in middle.items()})
    planned = plan_reset(AGAIN.now, around(machine), target, None)

    assert {shard.how for shard in planned.shards} == {ResetMethod.REBUILT}


def test_later_moves_remember_since_when_values_are_as_they_are(machine: Machine) -> None:
    """A reset leaves it as it is; after a resize it is so of all that is split."""
    begun(machine, AGAIN)
    migrate(machine, AGAIN)
    perform(plan_reset(AGAIN.now, around(machine), Edge.LATEST, None), around(machine))
    after_reset = newest_maintenance(machine.bus, "numbers")
    perform_resize(plan_resize([AGAIN.now], around(machine), "orders", 6), around(machine))
    after_resize = newest_maintenance(machine.bus, "numbers")

    assert after_reset is not None
    assert after_resize is not None
    assert after_reset.retyped == Retyped("Seen by customer", dict.fromkeys(range(3), 1))
    assert after_resize.retyped == Retyped("Seen by customer", dict.fromkeys(range(6), 2))


def test_a_resize_splits_the_new_states(machine: Machine, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """Not those of before, which lie on another machine and are as far."""
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    begun(other, AGAIN)
    other.back_up(AGAIN.before)
    migrate(machine, AGAIN)
    more = ps.Category("orders", Purchase, key="customer", event_time="at", buckets=6)
    now = type("Resized", (AGAIN.now,), {"name": "numbers", "reads": more})
    perform_resize(plan_resize([AGAIN.now], around(other), "orders", 6), around(other))

    assert ended(other, now) == undisturbed(NUMBERS)


# Not half done.


class Killed(BaseException):
    """The process died: nothing is taken back."""


def dying(gap: MigrationGap, how: type[BaseException] = Killed) -> Callable[[MigrationGap], None]:
    """Die in a gap."""

    def at_gap(here: MigrationGap) -> None:
        if here == gap:
            raise how

    return at_gap


GAPS = [
    MigrationGap(MigrationStep.MAKE_STATE, 0),
    MigrationGap(MigrationStep.MAKE_STATE, 2),
    MigrationGap(MigrationStep.PLACE_STATE, 0),
    MigrationGap(MigrationStep.PLACE_STATE, 1),
    MigrationGap(MigrationStep.STORE_BACKUP, 0),
    MigrationGap(MigrationStep.STORE_BACKUP, 1),
    MigrationGap(MigrationStep.REWRITE_CHANGELOG, 0),
    MigrationGap(MigrationStep.REWRITE_CHANGELOG, 2),
    MigrationGap(MigrationStep.NOTE_END),
]


DEATHS = [*((LOGGED, gap) for gap in GAPS), *((AGAIN, gap) for gap in GAPS[1:4:2])]


@pytest.mark.parametrize(("kind", "gap"), DEATHS, ids=str)
def test_one_that_died_is_given_again(
    machine: Machine, undisturbed: Undisturbed, kind: Kind, gap: MigrationGap
) -> None:
    """No worker starts before that, and then all is as if it had not died: the function is applied once."""
    begun(machine, kind)
    machine.back_up(kind.before)
    with pytest.raises(Killed):
        migrate(machine, kind, dying(gap))
    for declared in (kind.before, kind.now):
        with pytest.raises(MoveUnfinished, match="a migration to Seen by customer was begun"):
            machine.run(declared)
    with pytest.raises(MaintenanceRefused, match="half done"):
        plan_reset(kind.now, around(machine), Edge.EARLIEST, None)
    assert migrate(machine, kind).goes_on
    machine.lose(kind.now)

    assert ended(machine, kind.now, backups_of(machine)) == undisturbed(NUMBERS)


@pytest.mark.parametrize("gap", GAPS[3::2], ids=str)
def test_it_may_be_finished_on_another_machine(
    machine: Machine, undisturbed: Undisturbed, tmp_path: Path, gap: MigrationGap
) -> None:
    """From the backups; what is new there is not changed a second time."""
    begun(machine, LOGGED)
    machine.back_up(LOGGED.before)
    with pytest.raises(Killed):
        migrate(machine, LOGGED, dying(gap))
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    migrate(other, LOGGED)

    assert ended(other, LOGGED.now) == undisturbed(LOGGED)


def test_what_was_made_for_another_try_is_not_used(machine: Machine, tmp_path: Path) -> None:
    """One that died here when all was made, and was given again and taken back on another machine."""
    begun(machine, NUMBERS)
    machine.back_up(Numbers)
    with pytest.raises(Killed):
        migrate(machine, NUMBERS, dying(MigrationGap(MigrationStep.PLACE_STATE, 0)))
    with pytest.raises(UserFunctionFailed):
        migrate(Machine(tmp_path / "other", machine.bus, machine.place), NUMBERS._replace(by=raising))
    machine.run(Numbers)
    migrate(machine, NUMBERS._replace(by=lambda key, state: {"orders": 1000 + state, "customer": key}))

    assert all(msgspec.msgpack.decode(value)["orders"] > 1000 for value in machine.state(NumbersSeen).values())


def test_before_it_is_noted_nothing_is_done(machine: Machine, undisturbed: Undisturbed) -> None:
    """The processor of before goes on."""
    begun(machine, NUMBERS)
    with pytest.raises(Killed):
        migrate(machine, NUMBERS, dying(MigrationGap(MigrationStep.NOTE_BEGIN)))

    assert ended(machine, Numbers) == undisturbed(NUMBERS)


def test_one_that_is_broken_off_is_taken_back(machine: Machine, undisturbed: Undisturbed) -> None:
    """As long as no new state is in place."""
    begun(machine, NUMBERS)
    with pytest.raises(KeyboardInterrupt):
        migrate(machine, NUMBERS, dying(MigrationGap(MigrationStep.MAKE_STATE, 2), KeyboardInterrupt))
    assert newest_maintenance(machine.bus, "numbers") is None
    assert not list(machine.states.glob("numbers/.move*"))

    assert ended(machine, Numbers) == undisturbed(NUMBERS)


def raising(key: str, state: int) -> Any:
    """Fail for one key."""
    if key == "c7":
        raise KeyError("price")
    return seen(key, state)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (raising, r"upgrade\.py:upgraded raised KeyError: 'price', for key 'c7' of numbers, of which is saved: 3\. "),
        (lambda key, state: {"orders": "many"}, r"returned \{'orders': 'many'\}, which is not of the type .*`int`"),
        (lambda key, state: {"orders": 1}, r"missing required field `customer`"),
        (lambda key, state: object(), r"returned <object object .*not of the type"),
        (lambda key, state: 10**30, r"returned 1000000000000000000000000000000, which is not"),
    ],
    ids=["raises", "another field type", "a field too few", "not to be saved", "too large"],
)
def test_a_function_that_fails_is_told_for_which_key(by: Callable[[str, Any], Any], said: str) -> None:
    """With what is saved of it."""
    retyping = StateConversion(NumbersSeen, function(by))
    with pytest.raises(UserFunctionFailed, match=f"{said}.*Nothing was changed") as failed:
        list(retyping.changed([(b"c7", msgspec.msgpack.encode(3))]))

    assert "for key 'c7'" in str(failed.value)


def test_a_function_that_fails_changes_nothing(machine: Machine, undisturbed: Undisturbed) -> None:
    """Nor leaves it anything behind."""
    begun(machine, NUMBERS)
    with pytest.raises(UserFunctionFailed):
        migrate(machine, NUMBERS._replace(by=raising))
    assert newest_maintenance(machine.bus, "numbers") is None
    assert not list(machine.states.glob("numbers/.move*"))

    assert ended(machine, Numbers) == undisturbed(NUMBERS)


def test_a_failed_try_after_another_move_leaves_that_noted(machine: Machine) -> None:
    """What a state has to be of then is still known."""
    begun(machine, NUMBERS)
    migrate(machine, NUMBERS)
    noted = newest_maintenance(machine.bus, "numbers")
    with pytest.raises(UserFunctionFailed):
        migrate(machine, Kind(NumbersSeen, Numbers, lambda _, state: state))

    assert newest_maintenance(machine.bus, "numbers") == noted


def test_it_leads_there_and_back(machine: Machine, undisturbed: Undisturbed) -> None:
    """A second migration follows on the first."""
    begun(machine, NUMBERS)
    migrate(machine, NUMBERS)
    migrate(machine, Kind(NumbersSeen, Numbers, lambda _, state: state["orders"]))

    assert ended(machine, Numbers) == undisturbed(NUMBERS)


# Refused.


def test_not_while_a_worker_runs(machine: Machine, undisturbed: Undisturbed) -> None:
    """Nothing is changed, and it goes on."""
    begun(machine, NUMBERS)
    planned = plan_migration(NumbersSeen, around(machine))
    with machine.working(Numbers) as worker:
        worker.run_once()
        with pytest.raises(GroupInUse):
            perform_migration(planned, around(machine), function(seen))
        worker.run_once()
    assert newest_maintenance(machine.bus, "numbers") is None

    assert ended(machine, Numbers) == undisturbed(NUMBERS)


def test_not_when_it_has_gone_on_since(machine: Machine, undisturbed: Undisturbed) -> None:
    """What was shown is what is done, or nothing."""
    begun(machine, NUMBERS, 100)
    planned = plan_migration(NumbersSeen, around(machine))
    write(machine.bus, orders, EVENTS[100:150])
    machine.run(Numbers)
    with pytest.raises(MaintenanceRefused, match="has gone on since"):
        perform_migration(planned, around(machine), function(seen))
    migrate(machine, NUMBERS)

    assert ended(machine, NumbersSeen) == undisturbed(NUMBERS)


by_number = ps.Category("orders", Purchase, key=lambda event: str(event.number), event_time="at", buckets=3)
elsewhere = ps.Category("elsewhere", Purchase, key="customer", event_time="at", buckets=3)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (Numbers, type("Keyed", (NumbersSeen,), {"name": "numbers", "reads": by_number}), "more has changed than the"),
        (Numbers, type("Moved", (NumbersSeen,), {"name": "numbers", "reads": elsewhere}), "counts what came in orders"),
        (
            Baskets,
            type("Windows", (BasketsBought,), {"name": "baskets", "window": ps.windows.Tumbling(timedelta(hours=1))}),
            "more",
        ),
        (Baskets, type("NumbersNow", (Numbers,), {"name": "baskets"}), "more has changed"),
        (Counted, type("NumbersNow", (Numbers,), {"name": "counted"}), "more has changed"),
        (Counted, type("Larger", (Counted,), {"name": "counted", "monoid": ps.monoids.Max()}), "keeps partials of Max"),
    ],
    ids=["key", "input", "window", "no window", "kind", "monoid"],
)
def test_more_than_a_type_is_refused(
    machine: Machine, before: type[ps.Processor], now: type[ps.Processor], said: str
) -> None:
    """With what to do instead."""
    created(machine.bus, [now])
    state = RocksStateFolder(machine.states).open(ShardIdentity(now.name, 0, before.state_shape() or ""))
    state.save_position(StatePosition({"orders": 0}))
    state.close()
    with pytest.raises(MaintenanceRefused, match=f"{said}.*Nothing was changed.*`name`.*penstock bootstrap"):
        plan_migration(now, around(machine))


def test_what_keeps_no_state_has_none_to_migrate(machine: Machine) -> None:
    """Nor does a processor that has read nothing yet."""
    created(machine.bus, [Numbers])
    copies = type("Copies", (ps.Stateless,), {"reads": orders, "process": lambda self, event: []})
    with pytest.raises(MaintenanceRefused, match="keeps no state"):
        plan_migration(copies, around(machine))

    assert not plan_migration(NumbersSeen, around(machine)).shards


# Tried first.


def test_a_trial_changes_nothing_and_needs_no_rest(machine: Machine, undisturbed: Undisturbed) -> None:
    """A worker may run meanwhile."""
    begun(machine, NUMBERS)
    with machine.working(Numbers) as worker:
        worker.run_once()
        planned, looked = plan_migration(NumbersSeen, around(machine)), list[int]()
        counts = try_out(planned, around(machine), function(seen), looked.append)
        with pytest.raises(UserFunctionFailed, match="KeyError"):
            try_out(planned, around(machine), function(raising))
        first = examples(planned, around(machine), function(seen), 1)
    assert (counts.keys, counts.dropped, sum(looked)) == (20, 0, 20)
    assert first == [Example(first[0].key, first[0].before, seen(first[0].key, first[0].before))]

    assert ended(machine, Numbers) == undisturbed(NUMBERS)


def test_a_trial_looks_into_backups(machine: Machine) -> None:
    """Where the states are not here."""
    begun(machine, NUMBERS)
    machine.back_up(Numbers)
    machine.lose(Numbers)
    planned = plan_migration(NumbersSeen, around(machine))

    assert try_out(planned, around(machine), function(seen)).keys == 20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("upgraded", "name a function as FILE:FUNCTION"),
        ("{}/none.py:upgraded", r"There is no file .*none\.py"),
        ("{}/upgrade.py:other", "There is no function 'other'"),
        ("{}/upgrade.py:one", "does not take a key and a state"),
        ("{}/upgrade.py:NUMBER", "There is no function 'NUMBER'"),
        ("{}/broken.py:upgraded", r"broken\.py cannot be imported: line 2: NameError"),
    ],
)
def test_a_function_is_named_by_its_file(tmp_path: Path, text: str, said: str) -> None:
    """What cannot be one is told before anything is looked at."""
    (tmp_path / "upgrade.py").write_text(
        "NUMBER = 1\ndef one(state): ...\ndef upgraded(key, state): return state + 1\n"
    )
    (tmp_path / "broken.py").write_text("\nnothing_of_that_name\n")
    with pytest.raises(AppFileError, match=said):
        function_named(text.format(tmp_path))

    assert function_named(f"{tmp_path}/upgrade.py:upgraded").call("key", 1) == 2


def test_what_a_function_raises_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However its file was named."""
    monkeypatch.chdir(tmp_path)
    Path("upgrade.py").write_text("\ndef upgraded(key, state):\n    return state['orders']\n")
    for named in ("upgrade.py", "./upgrade.py", f"{tmp_path}/upgrade.py"):
        retyping = StateConversion(NumbersSeen, function_named(f"{named}:upgraded"))
        with pytest.raises(UserFunctionFailed, match="raised line 3: TypeError"):
            list(retyping.changed([(b"c7", msgspec.msgpack.encode(3))]))
