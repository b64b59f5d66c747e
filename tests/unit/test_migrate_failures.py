"""State migrations that fail, crash or are refused: nothing changes, or the repeated command finishes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.machines import Machine, create_categories, write
from support.maintenance import Killed, environment, kill_before
from support.migrations import (
    EVENTS,
    LOGGED,
    NUMBERS,
    BasketsConverted,
    Kind,
    Numbers,
    NumbersConverted,
    failing_function,
    finish,
    function,
    migrate,
    outputs_without_migration,
    read_part,
    with_customer,
)
from support.shop import Baskets, Counted, Purchase, orders

import penstock as ps
from penstock.ops.change.maintenance import staging
from penstock.ops.change.maintenance.migration import perform_migration
from penstock.ops.change.maintenance.migration_plan import migration_examples, plan_migration, try_migration
from penstock.ops.change.maintenance.state_conversion import Example, StateConversion, UserFunctionFailed, load_function
from penstock.processors import AppFileError
from penstock.processors.declare import plan_of
from penstock.processors.shard import StatePosition
from penstock.state import ShardIdentity
from penstock.state.local import RocksStateFolder
from penstock.transport import GroupInUse
from penstock.transport.tables import MaintenanceRefused, MaintenanceStep, newest_maintenance


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write converted states in several batches."""
    monkeypatch.setattr(staging, "BATCH_ENTRIES", 8)


@pytest.mark.parametrize(
    ("step", "bucket"),
    [
        (MaintenanceStep.INSTALL_STATE, 1),
        (MaintenanceStep.STORE_BACKUP, 1),
        (MaintenanceStep.REWRITE_CHANGELOG, 2),
        (MaintenanceStep.RECORD_END, None),
    ],
)
def test_another_machine_can_finish_a_killed_migration(
    machine: Machine, tmp_path: Path, step: MaintenanceStep, bucket: int | None
) -> None:
    """It reads the backups, and converts no state twice."""
    read_part(machine, LOGGED)
    machine.back_up(LOGGED.before)
    with pytest.raises(Killed):
        migrate(machine, LOGGED, kill_before(step, bucket))
    other = Machine(tmp_path / "other", machine.bus, machine.place)
    migrate(other, LOGGED)

    assert finish(other, LOGGED.now) == outputs_without_migration(LOGGED)


def test_a_migration_does_not_reuse_staged_states_of_an_earlier_attempt(machine: Machine, tmp_path: Path) -> None:
    """The earlier attempt died after staging; a repetition on another machine failed and was rolled back."""
    read_part(machine, NUMBERS)
    machine.back_up(Numbers)
    with pytest.raises(Killed):
        migrate(machine, NUMBERS, kill_before(MaintenanceStep.INSTALL_STATE, 0))
    with pytest.raises(UserFunctionFailed):
        migrate(Machine(tmp_path / "other", machine.bus, machine.place), NUMBERS._replace(by=failing_function))
    machine.run(Numbers)
    migrate(machine, NUMBERS._replace(by=lambda key, state: {"orders": 1000 + state, "customer": key}))

    assert all(msgspec.msgpack.decode(value)["orders"] > 1000 for value in machine.state(NumbersConverted).values())


def test_a_migration_changes_nothing_before_its_start_is_recorded(machine: Machine) -> None:
    """The old code continues."""
    read_part(machine, NUMBERS)
    with pytest.raises(Killed):
        migrate(machine, NUMBERS, kill_before(MaintenanceStep.RECORD_START))

    assert finish(machine, Numbers) == outputs_without_migration(NUMBERS)


def test_an_interrupted_migration_is_rolled_back(machine: Machine) -> None:
    """A rollback is possible until the first converted state is installed."""
    read_part(machine, NUMBERS)
    with pytest.raises(KeyboardInterrupt):
        migrate(machine, NUMBERS, kill_before(MaintenanceStep.STAGE_STATE, 2, KeyboardInterrupt))
    assert newest_maintenance(machine.bus, "numbers") is None
    assert not list(machine.states.glob("numbers/.move*"))

    assert finish(machine, Numbers) == outputs_without_migration(NUMBERS)


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (
            failing_function,
            r"upgrade\.py:upgraded raised KeyError: 'price', for key 'c7' of numbers. Its saved state is 3\. ",
        ),
        (lambda key, state: {"orders": "many"}, r"returned \{'orders': 'many'\}, which is not of the type .*`int`"),
        (lambda key, state: {"orders": 1}, r"missing required field `customer`"),
        (lambda key, state: object(), r"returned <object object .*not of the type"),
        (lambda key, state: 10**30, r"returned 1000000000000000000000000000000, which is not"),
    ],
    ids=["raises", "another field type", "a field too few", "not to be saved", "too large"],
)
def test_the_error_of_a_failed_function_names_the_key(by: Callable[[str, Any], Any], message: str) -> None:
    """The error also shows the key's saved state."""
    conversion = StateConversion(NumbersConverted, function(by))
    with pytest.raises(UserFunctionFailed, match=f"{message}.*Nothing was changed") as failed:
        list(conversion.convert([(b"c7", msgspec.msgpack.encode(3))]))

    assert "for key 'c7'" in str(failed.value)


def test_a_function_that_fails_changes_nothing(machine: Machine) -> None:
    """Its staged states are deleted."""
    read_part(machine, NUMBERS)
    with pytest.raises(UserFunctionFailed):
        migrate(machine, NUMBERS._replace(by=failing_function))
    assert newest_maintenance(machine.bus, "numbers") is None
    assert not list(machine.states.glob("numbers/.move*"))

    assert finish(machine, Numbers) == outputs_without_migration(NUMBERS)


def test_a_failed_migration_keeps_the_record_of_the_previous_operation(machine: Machine) -> None:
    """The record still states the current type of the states."""
    read_part(machine, NUMBERS)
    migrate(machine, NUMBERS)
    recorded = newest_maintenance(machine.bus, "numbers")
    with pytest.raises(UserFunctionFailed):
        migrate(machine, Kind(NumbersConverted, Numbers, lambda _, state: state))

    assert newest_maintenance(machine.bus, "numbers") == recorded


def test_a_second_migration_can_reverse_the_first(machine: Machine) -> None:
    """It restores the old type, and the outputs do not change."""
    read_part(machine, NUMBERS)
    migrate(machine, NUMBERS)
    migrate(machine, Kind(NumbersConverted, Numbers, lambda _, state: state["orders"]))

    assert finish(machine, Numbers) == outputs_without_migration(NUMBERS)


# Refused migrations.


def test_a_migration_is_refused_while_a_worker_runs(machine: Machine) -> None:
    """Nothing changes, and the worker continues."""
    read_part(machine, NUMBERS)
    planned = plan_migration(NumbersConverted, environment(machine))
    with machine.working(Numbers) as worker:
        worker.run_once()
        with pytest.raises(GroupInUse):
            perform_migration(planned, environment(machine), function(with_customer))
        worker.run_once()
    assert newest_maintenance(machine.bus, "numbers") is None

    assert finish(machine, Numbers) == outputs_without_migration(NUMBERS)


def test_an_outdated_migration_plan_is_refused(machine: Machine) -> None:
    """A migration performs the displayed plan or nothing."""
    read_part(machine, NUMBERS, 100)
    planned = plan_migration(NumbersConverted, environment(machine))
    write(machine.bus, orders, EVENTS[100:150])
    machine.run(Numbers)
    with pytest.raises(MaintenanceRefused, match="has read more events since"):
        perform_migration(planned, environment(machine), function(with_customer))
    migrate(machine, NUMBERS)

    assert finish(machine, NumbersConverted) == outputs_without_migration(NUMBERS)


by_number = ps.Category("orders", Purchase, key=lambda event: str(event.number), event_time="at", buckets=3)
elsewhere = ps.Category("elsewhere", Purchase, key="customer", event_time="at", buckets=3)


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (Numbers, type("Keyed", (NumbersConverted,), {"name": "numbers", "reads": by_number}), "More than the type"),
        (
            Numbers,
            type("Moved", (NumbersConverted,), {"name": "numbers", "reads": elsewhere}),
            "contains events of orders",
        ),
        (
            Baskets,
            type(
                "Windows", (BasketsConverted,), {"name": "baskets", "window": ps.windows.Tumbling(timedelta(hours=1))}
            ),
            "More",
        ),
        (Baskets, type("NumbersNow", (Numbers,), {"name": "baskets"}), "More than the type"),
        (Counted, type("NumbersNow", (Numbers,), {"name": "counted"}), "More than the type"),
        (Counted, type("Larger", (Counted,), {"name": "counted", "monoid": ps.monoids.Max()}), "keeps partials of Max"),
    ],
    ids=["key", "input", "window", "no window", "kind", "monoid"],
)
def test_a_migration_refuses_changes_beyond_the_type(
    machine: Machine, before: type[ps.Processor], now: type[ps.Processor], message: str
) -> None:
    """The error names the alternatives."""
    create_categories(machine.bus, [now])
    state = RocksStateFolder(machine.states).open(ShardIdentity(now.name, 0, plan_of(before).state_shape or ""))
    state.save_position(StatePosition({"orders": 0}))
    state.close()
    with pytest.raises(MaintenanceRefused, match=f"{message}.*Nothing was changed.*`name`.*penstock bootstrap"):
        plan_migration(now, environment(machine))


def test_a_processor_without_state_has_nothing_to_migrate(machine: Machine) -> None:
    """A stateless processor is refused; the plan of a processor that has read no event is empty."""
    create_categories(machine.bus, [Numbers])
    copies = type("Copies", (ps.Stateless,), {"reads": orders, "process": lambda self, event: []})
    with pytest.raises(MaintenanceRefused, match="has no state"):
        plan_migration(copies, environment(machine))

    assert not plan_migration(NumbersConverted, environment(machine)).shards


# Dry runs.


def test_a_dry_run_changes_nothing_while_a_worker_runs(machine: Machine) -> None:
    """It reports the number of keys, failures of the function, and examples."""
    read_part(machine, NUMBERS)
    with machine.working(Numbers) as worker:
        worker.run_once()
        planned, checked = plan_migration(NumbersConverted, environment(machine)), list[int]()
        counts = try_migration(planned, environment(machine), function(with_customer), checked.append)
        with pytest.raises(UserFunctionFailed, match="KeyError"):
            try_migration(planned, environment(machine), function(failing_function))
        first = migration_examples(planned, environment(machine), function(with_customer), 1)
    assert (counts.keys, counts.dropped, sum(checked)) == (20, 0, 20)
    assert first == [Example(first[0].key, first[0].before, with_customer(first[0].key, first[0].before))]

    assert finish(machine, Numbers) == outputs_without_migration(NUMBERS)


def test_a_dry_run_reads_backups(machine: Machine) -> None:
    """It reads them if this machine has no states."""
    read_part(machine, NUMBERS)
    machine.back_up(Numbers)
    machine.lose(Numbers)
    planned = plan_migration(NumbersConverted, environment(machine))

    assert try_migration(planned, environment(machine), function(with_customer)).keys == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("upgraded", "name a function as FILE:FUNCTION"),
        ("{}/none.py:upgraded", r"The file .*none\.py does not exist"),
        ("{}/upgrade.py:other", "There is no function 'other'"),
        ("{}/upgrade.py:one", "does not take a key and a state"),
        ("{}/upgrade.py:NUMBER", "There is no function 'NUMBER'"),
        ("{}/broken.py:upgraded", r"broken\.py cannot be imported: line 2: NameError"),
    ],
)
def test_an_invalid_function_reference_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """A reference is FILE:FUNCTION, and the function takes a key and a state."""
    (tmp_path / "upgrade.py").write_text(
        "NUMBER = 1\ndef one(state): ...\ndef upgraded(key, state): return state + 1\n"
    )
    (tmp_path / "broken.py").write_text("\nnothing_of_that_name\n")
    with pytest.raises(AppFileError, match=message):
        load_function(text.format(tmp_path))

    assert load_function(f"{tmp_path}/upgrade.py:upgraded").call("key", 1) == 2


def test_the_error_of_a_failed_function_names_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so for relative and absolute paths of the file."""
    monkeypatch.chdir(tmp_path)
    Path("upgrade.py").write_text("\ndef upgraded(key, state):\n    return state['orders']\n")
    for named in ("upgrade.py", "./upgrade.py", f"{tmp_path}/upgrade.py"):
        conversion = StateConversion(NumbersConverted, load_function(f"{named}:upgraded"))
        with pytest.raises(UserFunctionFailed, match="raised line 3: TypeError"):
            list(conversion.convert([(b"c7", msgspec.msgpack.encode(3))]))
