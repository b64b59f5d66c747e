"""Topics that are deleted and recreated, or get more partitions from another tool: the worker stops."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.machines import Machine, create_categories, read, write

import penstock as ps
from penstock.ops.change.maintenance.environment import MaintenanceEnvironment
from penstock.ops.change.maintenance.reset import perform_reset, plan_reset
from penstock.ops.change.maintenance.reset_plan import StatePolicy
from penstock.ops.change.maintenance.reset_target import Edge
from penstock.ops.kernel import Driver
from penstock.ops.kernel.shards.preflight import InputsChanged
from penstock.ops.kernel.shards.topic_watch import CHECK_EVERY_S, MISSING_CHECKS
from penstock.processors.shard import StatePosition
from penstock.state.files import LocalFileStore
from penstock.transport import BucketMismatch, CategorySpec, Polled, TopicRecreated
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import forget_registration, registration_of

EXACT = ps.Semantics.EXACTLY_ONCE
EMPTY = Polled([], [])


class Reading(ps.Record, frozen=True):
    """A reading of a meter."""

    meter: str
    at: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
totals = ps.Category("totals", Reading, key="meter", event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Adds the readings up."""

    reads, writes, state = readings, totals, int
    output_semantics: ClassVar[ps.Semantics] = ps.Semantics.AT_LEAST_ONCE

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Reading]]:
        """Add a reading."""
        total = (state or 0) + event.litres
        return total, [Reading(event.meter, event.at, total)]


class ExactTotals(Totals):
    """Totals with exactly-once outputs."""

    output_semantics = EXACT


class LoggedTotals(ExactTotals):
    """Totals with a changelog."""

    deterministic = False


class Copies(ps.Stateless):
    """Copies the readings."""

    reads, writes = readings, totals
    output_semantics = EXACT

    def process(self, event: Reading) -> Iterable[Reading]:
        """Copy a reading."""
        yield event


KINDS: tuple[type[ps.Processor], ...] = (Totals, ExactTotals, LoggedTotals, Copies)


def made(count: int, start: int = 0) -> list[Reading]:
    """Return readings of twenty meters, one litre each."""
    return [Reading(f"m{n % 20}", 1_000 * n, 1) for n in range(start, start + count)]


def recreate(bus: MemoryBus, category: ps.Category[Any]) -> None:
    """Delete a category, and create it again."""
    bus.delete(category.name)
    bus.create(CategorySpec.of(category))


@pytest.mark.parametrize("processor", KINDS)
@pytest.mark.parametrize("refilled", [10, 150])
def test_a_topic_created_again_is_refused(processor: type[ps.Processor], refilled: int) -> None:
    """It may have been filled beyond the old position, so that its offsets seem right."""
    driver = Driver(processor)
    driver.send(readings, made(100))
    driver._discard_worker(driver.app.processors[0])
    recreate(driver.bus, readings)
    before = driver.read(totals)

    with pytest.raises(TopicRecreated, match="deleted and created again"):
        driver.send(readings, made(refilled))
    assert driver.read(totals) == before


@pytest.mark.parametrize("processor", KINDS)
def test_positions_deleted_with_the_topic_do_not_start_a_new_processor(processor: type[ps.Processor]) -> None:
    """Kafka deletes a group's positions of a deleted topic; the state or the shard's record still contains the topic id."""
    driver = Driver(processor)
    driver.send(readings, made(100))
    driver._discard_worker(driver.app.processors[0])
    recreate(driver.bus, readings)
    driver.bus.forget_group(processor.name)

    with pytest.raises(TopicRecreated):
        driver.send(readings, made(150))


def test_a_state_alone_identifies_its_topic() -> None:
    """The bus may have lost all records, or be another cluster."""
    driver = Driver(Totals)
    driver.send(readings, made(100))
    driver._discard_worker(driver.app.processors[0])
    recreate(driver.bus, readings)
    driver.bus.forget_group(Totals.name)
    forget_registration(driver.bus, Totals.name)

    with pytest.raises(TopicRecreated, match=r"its state \(bucket"):
        driver.send(readings, made(150))


def test_a_changelog_created_again_is_refused() -> None:
    """A lost state would otherwise be rebuilt from later changes only."""
    driver = Driver(LoggedTotals)
    driver.send(readings, made(100))
    driver._discard_worker(driver.app.processors[0])
    spec = driver.bus.describe(f"{LoggedTotals.name}.changelog").spec
    driver.bus.delete(spec.name)
    driver.bus.create(spec)

    with pytest.raises(TopicRecreated, match=r"\.changelog"):
        driver.send(readings, made(10))


@pytest.mark.parametrize("processor", KINDS)
def test_a_running_worker_notices_a_topic_created_again(processor: type[ps.Processor]) -> None:
    """It checks every few seconds, also without events."""
    driver = Driver(processor)
    driver.send(readings, made(100))
    recreate(driver.bus, readings)
    driver.clock.advance(CHECK_EVERY_S)

    with pytest.raises(TopicRecreated, match=r"deleted and created again while .* ran"):
        run_checks(driver, processor, 2)


def test_a_running_worker_notices_a_deleted_topic() -> None:
    """It stops after several checks, since a starting broker does not know all topics at once."""
    driver = Driver(Copies)
    driver.send(readings, made(100))
    topics, checks = driver.bus.topics, 0

    def without_readings(names: Any) -> Any:
        nonlocal checks
        checks += 1
        return {name: topic for name, topic in topics(names).items() if name != readings.name}

    driver.bus.topics = without_readings  # type: ignore[method-assign]
    run_checks(driver, Copies, MISSING_CHECKS - 1)
    with pytest.raises(TopicRecreated, match="was deleted while"):
        run_checks(driver, Copies, 3)
    assert checks == MISSING_CHECKS


def run_checks(driver: Driver, processor: type[ps.Processor], times: int) -> None:
    """Run the worker until it has checked its topics this many times."""
    worker = driver._workers[processor]
    for _ in range(times):
        worker.run_once()
        driver.clock.advance(CHECK_EVERY_S)


@pytest.mark.parametrize("processor", KINDS)
def test_buckets_added_by_others_are_not_read(processor: type[ps.Processor]) -> None:
    """Their keys would be in other buckets than their states."""
    driver = Driver(processor)
    driver.send(readings, made(20))
    driver.bus.resize(readings.name, 3)

    with pytest.raises(BucketMismatch, match=r"readings has 3 buckets on the bus, but .* declares 2"):
        driver.send(readings, made(20, 20))
    assert not [one for one in driver.read(totals) if one.at >= 20_000 and one.litres == 1]


def test_a_worker_without_new_buckets_stops_too() -> None:
    """Keys of its input or its output now belong to other buckets."""
    for grown in (readings, totals):
        driver = Driver(Totals)
        driver.send(readings, made(20))
        worker = driver._workers[Totals]
        worker._parts.ownership.reader.poll = lambda timeout_s: EMPTY  # type: ignore[method-assign]
        driver.bus.resize(grown.name, 3)
        driver.clock.advance(CHECK_EVERY_S)

        with pytest.raises(BucketMismatch, match=f"{grown.name} has 3 buckets"):
            run_checks(driver, Totals, 2)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with its own bus, where processors have run, and whose input was recreated since."""
    machine = Machine(tmp_path / "one", MemoryBus(), LocalFileStore(tmp_path / "place"))
    create_categories(machine.bus, KINDS)
    write(machine.bus, readings, made(100))
    return machine


@pytest.mark.parametrize("processor", KINDS)
def test_a_reset_starts_with_the_new_topic(machine: Machine, processor: type[ps.Processor]) -> None:
    """It is the command that the error names."""
    machine.run(processor)
    recreate(machine.bus, readings)
    write(machine.bus, readings, made(150))
    with pytest.raises(TopicRecreated):
        machine.run(processor)
    around = MaintenanceEnvironment(machine.bus, machine.states, machine.place)
    policy = None if processor is Copies else StatePolicy.EMPTY
    perform_reset(plan_reset(processor, around, Edge.EARLIEST, policy), around)
    machine.run(processor)
    again = read(machine.bus, totals)[-150:]

    assert sum(one.litres for one in again) > 0
    assert len(read(machine.bus, totals)) == 250
    assert registration_of(machine.bus, processor.name).inputs == {readings.name: 2}


def test_a_backup_of_the_old_topic_is_refused(machine: Machine) -> None:
    """It contains expired events, at offsets that belong to other events now."""
    machine.run(Totals)
    machine.back_up(Totals)
    recreate(machine.bus, readings)
    write(machine.bus, readings, made(150))
    forget_registration(machine.bus, Totals.name)

    with pytest.raises(TopicRecreated):
        machine.run(Totals)


def test_a_position_records_its_topic_ids() -> None:
    """A position without topic ids reports no recreated topic."""
    ids = {"a": "id of a", "b": "id of b"}
    position = StatePosition({"a": 3, "b": 4}, topic_ids=ids)

    assert position.recreated(ids) == []
    assert position.recreated({**ids, "b": "another"}) == ["b"]
    assert StatePosition({"a": 3, "b": 4}).recreated(ids) == []


refunds = ps.Category("refunds", Reading, key="meter", event_time="at", buckets=2)


class OtherTotals(Totals):
    """Another processor with the same name."""

    name, reads = "totals", refunds


@pytest.mark.parametrize("processor", [Totals, Copies])
def test_two_processors_with_the_same_name_are_refused(machine: Machine, processor: type[ps.Processor]) -> None:
    """They would share a group and states; the error names the inputs of both, and the first processor continues."""
    create_categories(machine.bus, [OtherTotals])
    machine.run(processor)
    other = type("Other", (OtherTotals,), {"name": processor.name, "__doc__": "Another."})

    with pytest.raises(InputsChanged, match=f"reads refunds, but .* called {processor.name} has read readings"):
        machine.run(other)
    write(machine.bus, readings, made(20, 100))
    machine.run(processor)
    assert len(read(machine.bus, totals)) == 120


def test_a_purged_name_may_be_used_again(machine: Machine) -> None:
    """The registration, the group and the states were deleted before."""
    create_categories(machine.bus, [OtherTotals])
    machine.run(Totals)
    forget_registration(machine.bus, Totals.name)
    machine.bus.forget_group(Totals.name)
    machine.lose(Totals)
    write(machine.bus, refunds, made(7))
    machine.run(OtherTotals)

    assert registration_of(machine.bus, Totals.name).inputs == {refunds.name: 2}
    assert len(read(machine.bus, totals)) == 107


def test_a_reset_accepts_changed_inputs(machine: Machine) -> None:
    """The processor keeps its name."""
    create_categories(machine.bus, [OtherTotals])
    machine.run(Totals)
    write(machine.bus, refunds, made(7))
    around = MaintenanceEnvironment(machine.bus, machine.states, machine.place)
    perform_reset(plan_reset(OtherTotals, around, Edge.EARLIEST, StatePolicy.EMPTY), around)
    machine.run(OtherTotals)

    assert len(read(machine.bus, totals)) == 107


def test_a_state_of_another_number_of_buckets_is_refused(machine: Machine) -> None:
    """Declaring a new number does not move state between buckets; it suffices for a stateless processor."""
    machine.run(Totals)
    machine.run(Copies)
    machine.bus.resize(readings.name, 3)
    more = ps.Category("readings", Reading, key="meter", event_time="at", buckets=3)
    grown = [type(one.__name__, (one,), {"name": one.name, "reads": more, "__doc__": "."}) for one in (Totals, Copies)]

    with pytest.raises(BucketMismatch, match=r"readings \(2 then, 3 now\)"):
        machine.run(grown[0])
    machine.run(grown[1])
    assert registration_of(machine.bus, Copies.name).inputs == {readings.name: 3}
